// SPDX-License-Identifier: Apache-2.0
// Random models of the family llama, complete with a small byte-level BPE vocabulary and a chat template, so
// that they can be served end to end. Tests use tiny ones; benchmarks use models with a real model's shape,
// because only sizes and types matter to them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/gguf_writer_testing.h"

namespace loci {

struct RandomModelOptions {
  std::uint64_t seed = 1;
  TensorType type = TensorType::kF32;                       // type of all matrices but the embedding
  std::optional<TensorType> embedding_type = std::nullopt;  // type of embedding and output; `type` if absent
  std::uint32_t hidden = 64;
  std::uint32_t heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t head_dim = 16;
  std::uint32_t ffn = 128;
  std::uint32_t layers = 2;
  std::uint32_t context_length = 2048;
  // 0: only what the tokenizer needs (kSmallestVocabulary and a few words). A larger one is filled with
  // strings of two and three printable characters, so that every token is text.
  std::uint32_t vocabulary = 0;
  bool tokenizer = true;  // false: no tokenizer.* keys, and any vocabulary (0: 256)
  bool tied_embedding = true;
  bool biases = false;                // on query, key, value and attention output
  std::uint32_t rope_dimensions = 0;  // 0: head_dim
  double rope_base = 10000;
  double rope_linear_factor = 1;
  bool rope_factors = false;        // Llama 3's rope_freqs.weight: 1 for fast pairs, 8 for slow ones
  std::uint32_t window = 0;         // of layers that do not see everything; 0: all do
  std::uint32_t window_period = 2;  // of so many layers the last sees everything
};

// Three control tokens and one for each byte.
inline constexpr std::uint32_t kSmallestVocabulary = 3 + 256;

// A writer for such a model. Rows are made as they are written, so memory does not grow with the model. The
// same options give the same bytes. Errors: kInvalidArgument naming the option: rows that are not a whole
// number of blocks, sizes of zero, a vocabulary that is too small or too large.
Result<GgufWriter> make_random_model(const RandomModelOptions& options);

// Shapes of real models: "tiny", "tiny-wide" (keys and values twice as wide as hidden states),
// "tiny-windows" (of its four layers two see 128 tokens), "tiny-narrow" (of six layers five see 512 tokens,
// as in Gemma 3), "smollm2-135m",
// "llama-150m" (rows that K-quants can hold), "llama-1b" (Llama 3.2 1B). Errors: kInvalidArgument with the
// list.
Result<RandomModelOptions> find_random_model_shape(std::string_view name);
std::vector<std::string_view> random_model_shapes();

}  // namespace loci
