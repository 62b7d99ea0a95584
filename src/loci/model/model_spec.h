// What a model is, as data: sizes, tensors, and how a layer is put together. A family (families/)
// turns a file's metadata into a ModelSpec; a backend needs nothing else to compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/model/tensor.h"

namespace loci {

// Which pairs of a head's dimensions rotate together.
enum class RopeLayout : std::uint8_t {
  kAdjacent,  // (0,1), (2,3), ...: GGUF's order for Llama
  kHalves,    // (0, d/2), (1, d/2+1), ...: Hugging Face's order
};

// Rotary position embedding: pair i of `dimensions`/2 turns by position * inverse_frequency[i].
// Scalings (linear, Llama 3's factors, ...) are already inside inverse_frequency.
struct RopeSpec {
  RopeLayout layout = RopeLayout::kAdjacent;
  std::uint32_t dimensions = 0;
  std::vector<double> inverse_frequency;  // [dimensions / 2]
};

enum class Activation : std::uint8_t { kSilu };

// One pre-norm decoder layer:
//   x += wo · attention(rope(wq·n), rope(wk·n), wv·n),  n = rms_norm(x) * attention_norm
//   x += down · (activation(gate·m) * (up·m)),          m = rms_norm(x) * ffn_norm
// Matrices are [outputs, inputs]. Biases are absent where TensorView::present() is false.
struct LayerSpec {
  TensorView attention_norm;                           // [1, hidden]
  TensorView query, query_bias;                        // [heads * head_dim, hidden]
  TensorView key, key_bias;                            // [kv_heads * head_dim, hidden]
  TensorView value, value_bias;                        // [kv_heads * head_dim, hidden]
  TensorView attention_output, attention_output_bias;  // [hidden, heads * head_dim]
  TensorView ffn_norm;                                 // [1, hidden]
  TensorView ffn_gate;                                 // [ffn, hidden]
  TensorView ffn_up;                                   // [ffn, hidden]
  TensorView ffn_down;                                 // [hidden, ffn]
};

struct ModelSpec {
  std::string family;        // "llama"
  std::string display_name;  // from the file, for people
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t ffn = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t context_length = 0;  // tokens it was trained for
  float norm_epsilon = 0;
  float attention_scale = 0;  // multiplies q·k
  Activation activation = Activation::kSilu;
  RopeSpec rope;
  TensorView embedding;  // [vocabulary, hidden]
  std::vector<LayerSpec> layers;
  TensorView output_norm;  // [1, hidden]
  TensorView output;       // [vocabulary, hidden]; the embedding itself where they are tied
  // 128 bits over everything above and every tensor's bytes: state of one model is never taken for
  // another's.
  std::array<std::uint8_t, 16> fingerprint{};

  std::uint32_t layer_count() const { return static_cast<std::uint32_t>(layers.size()); }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
};

}  // namespace loci
