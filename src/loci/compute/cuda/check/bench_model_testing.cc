// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/check/bench_model_testing.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "loci/base/check.h"
#include "loci/base/random.h"

namespace loci::cuda {
namespace {

TensorView matrix_of(BenchModel& model, std::uint64_t rows, std::uint64_t columns, const char* name) {
  const TensorView view{name, model.type, rows, columns, model.matrices.data()};
  LOCI_CHECK(view.size_bytes() <= model.matrices.size(), "the largest matrix is known");
  model.product_values += static_cast<double>(rows * columns);
  return view;
}

}  // namespace

std::vector<std::byte> random_weights(TensorType type, std::uint64_t values) {
  const TensorTypeInfo& info = tensor_type_info(type);
  std::vector<std::byte> bytes(values / info.block_elements * info.block_bytes);
  Random random(1);
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    std::uint64_t bits = random.next();
    // Of random sign, between 2^-7 and 2^-6.
    if (type == TensorType::kBF16) bits = (bits & 0x807f807f807f807fu) | 0x3c003c003c003c00u;
    std::memcpy(&bytes[at], &bits, 8);
  }
  if (type == TensorType::kBF16) return bytes;
  const std::uint32_t scale_at = type == TensorType::kQ6_K ? 208 : 0;
  const bool two = type == TensorType::kQ4_1 || type == TensorType::kQ4_K;
  const std::uint16_t scale = 0x1400;  // 2^-10
  for (std::size_t at = scale_at; at < bytes.size(); at += info.block_bytes) {
    std::memcpy(&bytes[at], &scale, 2);
    if (two) std::memcpy(&bytes[at + 2], &scale, 2);
  }
  return bytes;
}

double BenchModel::product_bytes() const {
  const TensorTypeInfo& info = tensor_type_info(type);
  return product_values / static_cast<double>(info.block_elements) * static_cast<double>(info.block_bytes);
}

std::unique_ptr<BenchModel> make_bench_model(const BenchModelShape& shape, TensorType type) {
  auto model = std::make_unique<BenchModel>();
  model->type = type;
  ModelSpec& spec = model->spec;
  spec.family = "llama";
  spec.hidden = shape.hidden;
  spec.heads = shape.heads;
  spec.kv_heads = shape.kv_heads;
  spec.head_dim = shape.head_dim;
  spec.ffn = shape.ffn;
  spec.vocabulary = shape.vocabulary;
  spec.context_length = shape.context;
  spec.norm_epsilon = 1e-5f;
  spec.attention_scale = 1 / std::sqrt(static_cast<float>(spec.head_dim));
  RopeSpec rope;
  rope.dimensions = spec.head_dim;
  for (std::uint32_t i = 0; i < rope.dimensions / 2; ++i)
    rope.inverse_frequency.push_back(std::pow(shape.rope_base, -2.0 * i / rope.dimensions));
  spec.ropes.push_back(rope);
  model->matrices = random_weights(
      type, std::max(std::uint64_t{spec.vocabulary}, std::uint64_t{2} * spec.ffn) * spec.hidden);
  model->ones.assign(spec.hidden, 1.0f);
  const TensorView ones{"norm", TensorType::kF32, 1, spec.hidden,
                        reinterpret_cast<const std::byte*>(model->ones.data())};
  const std::uint64_t heads = std::uint64_t{spec.heads} * spec.head_dim;
  for (std::uint32_t i = 0; i < shape.layers; ++i) {
    LayerSpec layer;
    layer.attention_norm.weight = layer.ffn_norm.weight = ones;
    layer.query = matrix_of(*model, heads, spec.hidden, "query");
    layer.key = matrix_of(*model, spec.kv_width(), spec.hidden, "key");
    layer.value = matrix_of(*model, spec.kv_width(), spec.hidden, "value");
    layer.attention_output = matrix_of(*model, spec.hidden, heads, "attention output");
    layer.ffn.gate = matrix_of(*model, spec.ffn, spec.hidden, "gate");
    layer.ffn.up = matrix_of(*model, spec.ffn, spec.hidden, "up");
    layer.ffn.down = matrix_of(*model, spec.hidden, spec.ffn, "down");
    layer.rope = 0;
    spec.layers.push_back(layer);
  }
  spec.output_norm.weight = ones;
  // Tied: one matrix is read for the logits, as in a model that holds two.
  spec.output = spec.embedding = matrix_of(*model, spec.vocabulary, spec.hidden, "embedding");
  return model;
}

}  // namespace loci::cuda
