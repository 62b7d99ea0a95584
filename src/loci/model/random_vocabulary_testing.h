// SPDX-License-Identifier: Apache-2.0
// A small byte-level BPE vocabulary in GGUF's "gpt2" form, for random models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/model/gguf_writer_testing.h"

namespace loci {

struct BpeVocabulary {
  std::vector<std::string> tokens;        // 0: <|endoftext|>, 1: <|im_start|>, 2: <|im_end|>, then bytes
  std::vector<std::int32_t> token_types;  // GGUF's: 1 normal, 3 control
  std::vector<std::string> merges;        // "left right", in order of priority
};

// A vocabulary of `size` tokens, at least the control tokens and bytes, at most about 866,000. 0: the control
// tokens, the bytes, and parts of a few frequent words.
BpeVocabulary make_bpe_vocabulary(std::uint32_t size);

// Adds it as a model's tokenizer, whose turns begin with token 1 and end with token 2.
void add_bpe_vocabulary(GgufWriter& writer, BpeVocabulary vocabulary);

// ChatML, as SmolLM2 and others use it, without a default system message.
extern const char* const kChatMlTemplate;

}  // namespace loci
