// SPDX-License-Identifier: Apache-2.0
// Exercises a tokenizer that was made from an untrusted file, for fuzz targets: it encodes and decodes text,
// and checks that plain text gives no control token. It must end and never crash.
#pragma once

#include <string>
#include <string_view>

#include "loci/model/tokenizer.h"

namespace loci {

inline void exercise_tokenizer(const Tokenizer& tokenizer, std::string_view extra) {
  // The texts are short, because a file may have a regular expression that takes long on any text.
  std::string own = tokenizer.control_texts().empty() ? "x" : tokenizer.control_texts().front();
  for (const std::string_view text :
       {std::string_view("Hi 12 \n\u00e9"), extra.substr(0, 24), std::string_view(own)}) {
    for (const ControlText control : {ControlText::kAsText, ControlText::kAsControl}) {
      const auto tokens = tokenizer.encode(text, control);
      if (!tokens.ok()) continue;
      StreamDecoder decoder(tokenizer);
      for (const TokenId token : *tokens) {
        if (token.value >= tokenizer.vocabulary_size()) __builtin_trap();
        // An unknown character may become the unknown token, which counts as a control token.
        const bool may_control = control == ControlText::kAsControl || token == tokenizer.unknown();
        if (tokenizer.is_control(token) && !may_control) __builtin_trap();
        decoder.push(token);
      }
      decoder.finish();
      if (!tokenizer.decode(*tokens, control).ok()) __builtin_trap();
    }
  }
}

}  // namespace loci
