// SPDX-License-Identifier: Apache-2.0
// What a model is, as data: sizes, tensors, and how a layer is put together. A family (families/)
// turns a source's metadata into a ModelSpec; a backend needs nothing else to compute.
#pragma once

#include <cstdint>
#include <optional>
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
// Scalings of frequencies (linear, Llama 3's, YaRN, LongRoPE) are already inside inverse_frequency.
struct RopeSpec {
  RopeLayout layout = RopeLayout::kAdjacent;
  std::uint32_t dimensions = 0;           // the first ones of a head; the others are left as they are
  std::vector<double> inverse_frequency;  // [dimensions / 2]
  double magnitude = 1;                   // multiplies the rotated dimensions (YaRN's mscale, LongRoPE)
};

enum class NormKind : std::uint8_t {
  kRms,    // x / sqrt(mean(x^2) + epsilon) * weight
  kLayer,  // (x - mean) / sqrt(variance + epsilon) * weight + bias
};

enum class Activation : std::uint8_t {
  kSilu,           // x / (1 + e^-x)
  kGelu,           // x * Phi(x), by erf
  kGeluTanh,       // the tanh approximation
  kRelu,           //
  kClampedSwiglu,  // gate' = min(gate, 7), up' = clamp(up, -7, 7): gate' * sigmoid(1.702 gate') * (up' + 1)
};

// One norm; without a weight there is no norm.
struct NormSpec {
  TensorView weight;  // [1, width]
  TensorView bias;    // [1, width] or absent; kLayer only

  bool present() const { return weight.present(); }
};

// A feed-forward part. In a mixture, each matrix and bias holds `experts` of them one after the other: rows
// [e * ffn, (e + 1) * ffn) belong to expert e.
struct FeedForwardSpec {
  TensorView gate, gate_bias;  // [ffn, hidden]; absent: activation(up) instead of activation(gate) * up
  TensorView up, up_bias;      // [ffn, hidden]
  TensorView down, down_bias;  // [hidden, ffn]
  // Mixtures only: gives the scores of the experts, of which the best expert_uses take part.
  TensorView router, router_bias;  // [experts, hidden], [1, experts]
};

// One decoder layer over the residual stream x. Steps whose tensors are absent are left out.
//   n  = attention_norm(x)
//   a  = output · attention(rope(query_norm(wq·n)), rope(key_norm(wk·n)), wv·n)
//   x' = x + attention_post_norm(a)
//   m  = ffn_norm(x'), or of x where the spec says parallel; n itself where parallel and ffn_norm absent
//   x  = x' + ffn_post_norm(ffn(m))
// Matrices are [outputs, inputs]; biases are [1, outputs] or absent.
struct LayerSpec {
  NormSpec attention_norm;                             // [1, hidden]
  TensorView query, query_bias;                        // [heads * head_dim, hidden]
  TensorView key, key_bias;                            // [kv_heads * head_dim, hidden]
  TensorView value, value_bias;                        // [kv_heads * head_dim, hidden]
  NormSpec query_norm, key_norm;                       // [1, head_dim], of each head; always kRms
  TensorView attention_sinks;                          // [1, heads]: one more score for each head, whose
                                                       // value vector is zero
  TensorView attention_output, attention_output_bias;  // [hidden, heads * head_dim]
  NormSpec attention_post_norm;                        // [1, hidden]
  NormSpec ffn_norm;                                   // [1, hidden]
  FeedForwardSpec ffn;
  NormSpec ffn_post_norm;  // [1, hidden]
  // A token sees itself and the window - 1 tokens before it; 0: all before it.
  std::uint32_t window = 0;
  std::optional<std::uint32_t> rope;  // index into ModelSpec::ropes; absent: no rotation
};

struct ModelSpec {
  std::string family;        // "llama"
  std::string display_name;  // from the file, for people
  std::uint32_t hidden = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t ffn = 0;  // of one expert in a mixture
  std::uint32_t vocabulary = 0;
  std::uint32_t context_length = 0;  // tokens it was trained for
  NormKind norm = NormKind::kRms;
  float norm_epsilon = 0;
  float attention_scale = 0;    // multiplies q·k
  float attention_softcap = 0;  // scores become cap * tanh(score / cap); 0: none
  float output_softcap = 0;     // logits likewise
  Activation activation = Activation::kSilu;
  bool parallel = false;  // feed-forward beside attention, from the same x
  // Mixtures; 0: every layer is dense.
  std::uint32_t experts = 0;
  std::uint32_t expert_uses = 0;  // experts that compute each token
  // True: experts' weights are the softmax over the chosen ones; false: their part of the softmax over all.
  bool expert_weights_normalised = true;
  std::vector<RopeSpec> ropes;
  float embedding_scale = 1;  // multiplies the embedding's rows
  TensorView embedding;       // [vocabulary, hidden]
  // Learned: row (position + position_offset) is added to the embedding; absent: none.
  TensorView position_embedding;  // [context_length + offset or more, hidden]
  std::uint32_t position_offset = 0;
  std::vector<LayerSpec> layers;
  NormSpec output_norm;  // [1, hidden]
  TensorView output;     // [vocabulary, hidden]; the embedding itself if they are tied
  // 128 bits over everything above and every tensor's bytes, so that one model's state is never taken for
  // another's.
  std::array<std::uint8_t, 16> fingerprint{};

  std::uint32_t layer_count() const { return static_cast<std::uint32_t>(layers.size()); }
  std::uint32_t kv_width() const { return kv_heads * head_dim; }
};

}  // namespace loci
