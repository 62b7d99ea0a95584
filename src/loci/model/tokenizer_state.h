// SPDX-License-Identifier: Apache-2.0
// The contents of a Tokenizer. Internal to the tokenizer and the chat template.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "loci/model/text_handles.h"
#include "loci/model/tokenizer.h"
#include "loci/model/vocabulary.h"

namespace loci {

struct Tokenizer::State {
  Vocabulary vocabulary;           // without merges and scores, which the handle holds
  std::vector<std::string> bytes;  // by id
  std::unordered_map<std::string_view, std::uint32_t> ids;  // keys point into vocabulary.tokens
  std::vector<std::string> control_texts;                   // longest first
  std::array<bool, 3> adds_space{};                         // by TextPlace
  TextTokenizer handle;
};

}  // namespace loci
