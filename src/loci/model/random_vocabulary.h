// SPDX-License-Identifier: Apache-2.0
// A small byte-level BPE vocabulary in GGUF's "gpt2" form, for random models.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace loci {

struct BpeVocabulary {
  std::vector<std::string> tokens;        // 0: <|endoftext|>, 1: <|im_start|>, 2: <|im_end|>, then bytes
  std::vector<std::int32_t> token_types;  // GGUF's: 1 normal, 3 control
  std::vector<std::string> merges;        // "left right", in order of priority
};

// `size` tokens, or as many as there are (about 866,000) if that is fewer; at least the control tokens
// and bytes. 0: those, and the parts of a few frequent words.
BpeVocabulary make_bpe_vocabulary(std::uint32_t size);

// ChatML, as SmolLM2 and others use it, without a default system message.
extern const char* const kChatMlTemplate;

}  // namespace loci
