// SPDX-License-Identifier: Apache-2.0
#include "loci/model/fingerprint.h"

#include <xxhash.h>

#include <bit>
#include <memory>
#include <string_view>

#include "loci/base/check.h"

namespace loci {
namespace {

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

// Everything that is hashed goes through here in a form that is the same on every machine: 64-bit
// little-endian words, and bytes behind their count.
class Hasher {
 public:
  Hasher() : state_(XXH3_createState()) {
    LOCI_CHECK(state_ != nullptr && XXH3_128bits_reset(state_.get()) == XXH_OK, "no memory for a hash state");
  }
  void word(std::uint64_t value) { bytes(&value, sizeof(value)); }
  void number(double value) { word(std::bit_cast<std::uint64_t>(value)); }
  void text(std::string_view value) {
    word(value.size());
    bytes(value.data(), value.size());
  }
  void tensor(const TensorView& view) {
    word(view.present() ? 1 : 0);
    if (!view.present()) return;
    word(static_cast<std::uint64_t>(view.type));
    word(view.rows);
    word(view.columns);
    bytes(view.data, view.size_bytes());
  }
  std::array<std::uint8_t, 16> digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
    return std::to_array(canonical.digest);
  }

 private:
  void bytes(const void* data, std::size_t size) {
    LOCI_CHECK(XXH3_128bits_update(state_.get(), data, size) == XXH_OK, "hashing null bytes");
  }

  std::unique_ptr<XXH3_state_t, FreeState> state_;
};

void hash_rope(Hasher& hasher, const RopeSpec& rope) {
  hasher.word(static_cast<std::uint64_t>(rope.layout));
  hasher.word(rope.dimensions);
  hasher.number(rope.magnitude);
  for (const double frequency : rope.inverse_frequency) hasher.number(frequency);
}

void hash_layer(Hasher& hasher, const LayerSpec& layer) {
  hasher.word(layer.window);
  hasher.word(layer.rope ? *layer.rope + 1 : 0);
  for (const NormSpec* norm : {&layer.attention_norm, &layer.query_norm, &layer.key_norm,
                               &layer.attention_post_norm, &layer.ffn_norm, &layer.ffn_post_norm}) {
    hasher.tensor(norm->weight);
    hasher.tensor(norm->bias);
  }
  const FeedForwardSpec& ffn = layer.ffn;
  for (const TensorView* view :
       {&layer.query, &layer.query_bias, &layer.key, &layer.key_bias, &layer.value, &layer.value_bias,
        &layer.attention_sinks, &layer.attention_output, &layer.attention_output_bias, &ffn.gate,
        &ffn.gate_bias, &ffn.up, &ffn.up_bias, &ffn.down, &ffn.down_bias, &ffn.router, &ffn.router_bias}) {
    hasher.tensor(*view);
  }
}

}  // namespace

std::array<std::uint8_t, 16> compute_fingerprint(const ModelSpec& spec) {
  Hasher hasher;
  hasher.text("loci model 2");  // the version of this order of fields
  hasher.text(spec.family);
  for (const std::uint32_t size :
       {spec.hidden, spec.heads, spec.kv_heads, spec.head_dim, spec.ffn, spec.vocabulary, spec.context_length,
        spec.layer_count(), spec.experts, spec.expert_uses, spec.position_offset}) {
    hasher.word(size);
  }
  for (const float number : {spec.norm_epsilon, spec.attention_scale, spec.attention_softcap,
                             spec.output_softcap, spec.embedding_scale}) {
    hasher.number(static_cast<double>(number));
  }
  hasher.word(static_cast<std::uint64_t>(spec.norm));
  hasher.word(static_cast<std::uint64_t>(spec.activation));
  hasher.word(spec.parallel ? 1 : 0);
  hasher.word(spec.expert_weights_normalised ? 1 : 0);
  hasher.word(spec.ropes.size());
  for (const RopeSpec& rope : spec.ropes) hash_rope(hasher, rope);
  hasher.tensor(spec.embedding);
  hasher.tensor(spec.position_embedding);
  for (const LayerSpec& layer : spec.layers) hash_layer(hasher, layer);
  hasher.tensor(spec.output_norm.weight);
  hasher.tensor(spec.output_norm.bias);
  const bool tied = spec.output.data == spec.embedding.data;
  hasher.word(tied ? 1 : 0);
  if (!tied) hasher.tensor(spec.output);
  return hasher.digest();
}

}  // namespace loci
