// SPDX-License-Identifier: Apache-2.0
#include "loci/model/random_spec_testing.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "loci/base/random.h"
#include "loci/model/quantize.h"

namespace loci {
namespace {

class SpecMaker {
 public:
  explicit SpecMaker(std::uint64_t seed) : random_(seed), made_(std::make_unique<RandomSpec>()) {}

  std::unique_ptr<RandomSpec> make() {
    draw_sizes();
    draw_shared();
    const auto layers = static_cast<std::uint32_t>(2 + random_.below(2));
    for (std::uint32_t i = 0; i < layers; ++i) spec_.layers.push_back(make_layer());
    spec_.output_norm = norm(spec_.hidden, spec_.norm);
    spec_.output = has("untied")
                       ? tensor(type_, spec_.vocabulary, spec_.hidden, 0, 3 / std::sqrt(spec_.hidden))
                       : spec_.embedding;
    made_->spec = std::move(spec_);
    return std::move(made_);
  }

 private:
  // A feature that one model in two has, or one in `of`.
  bool has(const char* feature, std::uint64_t of = 2) {
    const bool drawn = random_.below(of) == 0;
    if (drawn) made_->features.insert(feature);
    return drawn;
  }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return values.begin()[random_.below(values.size())];
  }

  TensorView tensor(TensorType type, std::uint64_t rows, std::uint64_t columns, double mean,
                    double deviation) {
    TensorView view{"tensor " + std::to_string(made_->storage.size()), type, rows, columns, nullptr};
    std::vector<std::byte>& bytes = made_->storage.emplace_back(view.size_bytes());
    std::vector<float> values(columns);
    for (std::uint64_t row = 0; row < rows; ++row) {
      for (float& value : values)
        value = static_cast<float>(mean + deviation * std::sqrt(12.0) * (random_.unit() - 0.5));
      encode_row(type, values, {bytes.data() + row * view.row_bytes(), view.row_bytes()});
    }
    view.data = bytes.data();
    return view;
  }
  TensorView matrix(std::uint64_t rows, std::uint64_t columns) {
    return tensor(type_, rows, columns, 0, 1 / std::sqrt(static_cast<double>(columns)));
  }
  TensorView bias(std::uint64_t count) {
    return biases_ ? tensor(TensorType::kF32, 1, count, 0, 0.2) : TensorView{};
  }
  NormSpec norm(std::uint64_t width, NormKind kind) {
    NormSpec made;
    made.weight = tensor(TensorType::kF32, 1, width, 1, 0.2);
    if (kind == NormKind::kLayer && has("norm bias")) made.bias = tensor(TensorType::kF32, 1, width, 0, 0.2);
    return made;
  }

  // Rows of quantised matrices are whole blocks; those of float ones need not be whole vectors.
  void draw_sizes() {
    type_ = one_of({TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ8_0,
                    TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ6_K});
    const TensorTypeInfo& info = tensor_type_info(type_);
    std::string name(info.name);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    made_->features.insert(name);
    const std::uint32_t block = info.block_elements;
    spec_.family = "random";
    spec_.hidden = block > 1 ? std::max(block, 64u) : one_of({33u, 50u, 64u});
    spec_.kv_heads = one_of({1u, 2u, 3u});
    spec_.head_dim = one_of({8u, 16u, 24u, 40u, 64u, 80u, 128u, 256u});
    std::uint32_t group = one_of({1u, 2u, 3u, 5u, 16u});
    while (spec_.kv_heads * group * spec_.head_dim % block != 0) ++group;
    spec_.heads = spec_.kv_heads * group;
    made_->features.insert("head_dim " + std::to_string(spec_.head_dim));
    if (group >= 16) made_->features.insert("many heads");
    spec_.ffn = block > 1 ? block * one_of({1u, 2u}) : one_of({47u, 64u, 70u});
    spec_.vocabulary = 72;
    spec_.context_length = 512;
  }

  void draw_shared() {
    spec_.norm = has("layer norm") ? NormKind::kLayer : NormKind::kRms;
    spec_.norm_epsilon = 1e-5f;
    spec_.attention_scale = 1 / std::sqrt(static_cast<float>(spec_.head_dim));
    if (has("attention softcap")) spec_.attention_softcap = 3;
    if (has("output softcap", 3)) spec_.output_softcap = 4;
    gated_ = has("gated");
    spec_.activation = one_of({Activation::kSilu, Activation::kGelu, Activation::kGeluTanh, Activation::kRelu,
                               Activation::kClampedSwiglu});
    if (spec_.activation == Activation::kClampedSwiglu) gated_ = true;
    made_->features.insert("activation " + std::to_string(static_cast<int>(spec_.activation)));
    biases_ = has("biases");
    spec_.parallel = has("parallel", 3);
    pre_norms_ = spec_.parallel || !has("no norm before", 4);
    post_norms_ = !pre_norms_ || has("norm after", 3);
    shared_norm_ = spec_.parallel && has("shared norm");
    head_norms_ = has("norm of heads");
    if (has("mixture", 3)) {
      spec_.experts = one_of({4u, 6u, 17u});
      spec_.expert_uses = one_of({1u, 2u, 4u});
      spec_.expert_weights_normalised = has("normalised");
      quantised_router_ = has("router as the rest");
    }
    for (std::uint64_t i = 0; i < 1 + random_.below(2); ++i) spec_.ropes.push_back(rope());
    if (has("embedding scale", 3)) spec_.embedding_scale = 2.5f;
    spec_.embedding = tensor(type_, spec_.vocabulary, spec_.hidden, 0, 3 / std::sqrt(spec_.hidden));
    if (has("learned positions", 3)) {
      spec_.position_offset = 2;
      spec_.position_embedding = tensor(TensorType::kF32, 514, spec_.hidden, 0, 0.1);
    }
  }

  RopeSpec rope() {
    RopeSpec made;
    made.layout = has("adjacent pairs") ? RopeLayout::kAdjacent : RopeLayout::kHalves;
    made.dimensions = has("partial rotation") ? spec_.head_dim / 4 * 2 : spec_.head_dim;
    if (has("magnitude", 3)) made.magnitude = 1.2;
    for (std::uint32_t i = 0; i < made.dimensions / 2; ++i)
      made.inverse_frequency.push_back(std::pow(1000.0, -2.0 * i / made.dimensions));
    return made;
  }

  LayerSpec make_layer() {
    LayerSpec layer;
    const std::uint64_t q = std::uint64_t{spec_.heads} * spec_.head_dim, kv = spec_.kv_width();
    if (pre_norms_) layer.attention_norm = norm(spec_.hidden, spec_.norm);
    if (pre_norms_ && !shared_norm_) layer.ffn_norm = norm(spec_.hidden, spec_.norm);
    if (post_norms_) layer.attention_post_norm = norm(spec_.hidden, spec_.norm);
    if (post_norms_) layer.ffn_post_norm = norm(spec_.hidden, spec_.norm);
    if (head_norms_) layer.query_norm = norm(spec_.head_dim, NormKind::kRms);
    if (head_norms_) layer.key_norm = norm(spec_.head_dim, NormKind::kRms);
    layer.query = matrix(q, spec_.hidden), layer.query_bias = bias(q);
    layer.key = matrix(kv, spec_.hidden), layer.key_bias = bias(kv);
    layer.value = matrix(kv, spec_.hidden), layer.value_bias = bias(kv);
    layer.attention_output = matrix(spec_.hidden, q), layer.attention_output_bias = bias(spec_.hidden);
    if (has("sinks", 3)) layer.attention_sinks = tensor(TensorType::kF32, 1, spec_.heads, 0, 2);
    if (has("window")) layer.window = one_of({2u, 5u, 33u, 64u, 270u});
    if (!has("no rotation", 5)) layer.rope = static_cast<std::uint32_t>(random_.below(spec_.ropes.size()));
    const bool mixture = spec_.experts > 0 && !has("dense layer beside mixtures", 6);
    const std::uint32_t parts = mixture ? spec_.experts : 1;
    if (mixture) {
      layer.ffn.router = tensor(quantised_router_ ? type_ : TensorType::kF32, parts, spec_.hidden, 0,
                                2 / std::sqrt(spec_.hidden));
      layer.ffn.router_bias = bias(parts);
    }
    if (gated_) layer.ffn.gate = matrix(parts * spec_.ffn, spec_.hidden);
    if (gated_) layer.ffn.gate_bias = bias(parts * spec_.ffn);
    layer.ffn.up = matrix(parts * spec_.ffn, spec_.hidden), layer.ffn.up_bias = bias(parts * spec_.ffn);
    layer.ffn.down = matrix(parts * spec_.hidden, spec_.ffn),
    layer.ffn.down_bias = bias(parts * spec_.hidden);
    return layer;
  }

  Random random_;
  std::unique_ptr<RandomSpec> made_;
  ModelSpec spec_;
  TensorType type_ = TensorType::kF32;
  bool gated_ = false, biases_ = false, pre_norms_ = false, post_norms_ = false, shared_norm_ = false;
  bool head_norms_ = false, quantised_router_ = false;
};

}  // namespace

std::unique_ptr<RandomSpec> make_random_spec(std::uint64_t seed) { return SpecMaker(seed).make(); }

}  // namespace loci
