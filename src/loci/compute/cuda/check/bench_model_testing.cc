// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/check/bench_model_testing.h"

#include <algorithm>
#include <cmath>

#include "loci/base/check.h"
#include "loci/base/random.h"

namespace loci::cuda {
namespace {

TensorView matrix_of(BenchModel& model, std::uint64_t rows, std::uint64_t columns, const char* name) {
  LOCI_CHECK(rows * columns <= model.matrices.size(), "the largest matrix is known");
  model.product_values += static_cast<double>(rows * columns);
  return {name, TensorType::kBF16, rows, columns, reinterpret_cast<const std::byte*>(model.matrices.data())};
}

}  // namespace

std::unique_ptr<BenchModel> make_bench_model(const BenchModelShape& shape) {
  auto model = std::make_unique<BenchModel>();
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
  model->matrices.resize(std::max(std::uint64_t{spec.vocabulary}, std::uint64_t{2} * spec.ffn) * spec.hidden);
  Random random(1);
  for (std::uint16_t& value : model->matrices) {
    // Of random sign, between 2^-7 and 2^-6.
    const std::uint64_t bits = random.next();
    value = static_cast<std::uint16_t>((bits & 0x8000u) | 0x3c00u | (bits & 0x7fu));
  }
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
