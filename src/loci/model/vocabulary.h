// SPDX-License-Identifier: Apache-2.0
// A model's checked vocabulary, from its GGUF file (tokenizer.ggml.*) or its tokenizer.json. It tells which
// tokens are control tokens, which end a generation, and which bytes each stands for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/ids.h"
#include "loci/base/status.h"

namespace loci {

class ModelSource;

enum class VocabularyKind : std::uint8_t {
  kByteLevelBpe,         // tokenizer.ggml.model "gpt2"
  kSentencePiece,        // "llama": BPE by scores
  kUnigram,              // "t5"
  kSentencePieceMerges,  // "gemma4": BPE by merges
};

// GGUF's numbers (tokenizer.ggml.token_type).
enum class TokenType : std::int32_t {
  kNormal = 1,
  kUnknown = 2,
  kControl = 3,
  kUserDefined = 4,
  kUnused = 5,
  kByte = 6,
};

struct Vocabulary {
  VocabularyKind kind = VocabularyKind::kByteLevelBpe;
  std::string pre_tokenizer;         // kByteLevelBpe
  std::vector<std::string> tokens;   // by id; UTF-8
  std::vector<std::int32_t> types;   // by id; TokenType
  std::vector<float> scores;         // by id; kSentencePiece, kUnigram
  std::vector<std::string> merges;   // kByteLevelBpe, kSentencePieceMerges: "left right"
  std::string chars_map;             // kUnigram: SentencePiece's precompiled normalisation; may be empty
  bool remove_extra_spaces = false;  // kUnigram
  bool add_space_prefix = false;     // all but kByteLevelBpe: a space before each piece of text
  bool add_bos = false;
  bool special_takes_blanks = false;  // blanks after a control or user-defined token belong to it
  std::optional<TokenId> bos, eos, unknown;
  std::vector<TokenId> end_tokens;

  bool is_control(std::uint32_t id) const {
    const auto type = static_cast<TokenType>(types[id]);
    return type == TokenType::kControl || type == TokenType::kUnknown;
  }
};

// Errors: kInvalidArgument naming the key, its value and what was expected.
Result<Vocabulary> read_vocabulary(const ModelSource& source);

// Adds to the end tokens those control tokens whose texts end a turn in every model that has them.
void add_known_ends(Vocabulary& vocabulary);

// The bytes that each token stands for, by id. Errors: kInvalidArgument for a byte token that names none.
Result<std::vector<std::string>> token_bytes_of(const Vocabulary& vocabulary);

}  // namespace loci
