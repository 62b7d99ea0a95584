// SPDX-License-Identifier: Apache-2.0
// Owners of the handles of deps/loci_text. Internal to the tokenizer and the chat template.
#pragma once

#include <loci_text/loci_text.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"

namespace loci {

struct TextTokenizerDeleter {
  void operator()(loci_text_tokenizer* handle) const { loci_text_tokenizer_destroy(handle); }
};
using TextTokenizer = std::unique_ptr<loci_text_tokenizer, TextTokenizerDeleter>;

struct TextTemplateDeleter {
  void operator()(loci_text_template* handle) const { loci_text_template_destroy(handle); }
};
using TextTemplate = std::unique_ptr<loci_text_template, TextTemplateDeleter>;

inline loci_text_view text_view(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}

inline std::string take_text(loci_text_bytes bytes) {
  std::string text(reinterpret_cast<const char*>(bytes.data), bytes.size);
  loci_text_bytes_free(bytes);
  return text;
}

inline std::vector<TokenId> take_tokens(loci_text_ids ids) {
  std::vector<TokenId> tokens;
  tokens.reserve(ids.size);
  for (std::size_t i = 0; i < ids.size; ++i) tokens.emplace_back(ids.data[i]);
  loci_text_ids_free(ids);
  return tokens;
}

// Turns an error of the crate into a Status. A text like "tokenizer.ggml.pre: what is wrong" begins with the
// field.
inline Status take_error(loci_text_bytes error, std::string field = {}) {
  std::string message = take_text(error);
  const std::size_t colon = message.find(": ");
  if (message.starts_with("tokenizer.") && colon != std::string::npos) {
    field = message.substr(0, colon);
    message.erase(0, colon + 2);
  }
  return invalid_argument(std::move(message), std::move(field));
}

}  // namespace loci
