// SPDX-License-Identifier: Apache-2.0
// Whole models for benchmarks: a Llama's layers in any size, with random bf16 weights.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "loci/model/model_spec.h"

namespace loci::cuda {

// Its tensors view one piece of random values: only sizes matter.
struct BenchModel {
  std::vector<std::uint16_t> matrices;  // bf16
  std::vector<float> ones;
  ModelSpec spec;
  double product_values = 0;  // of all matrices that each token is multiplied with
};

struct BenchModelShape {
  std::uint32_t layers = 32;
  std::uint32_t hidden = 4096;
  std::uint32_t heads = 32;
  std::uint32_t kv_heads = 8;
  std::uint32_t head_dim = 128;
  std::uint32_t ffn = 14336;
  std::uint32_t vocabulary = 128256;
  std::uint32_t context = 131072;
  double rope_base = 500000;
};
inline constexpr BenchModelShape kLlama8b{};
inline constexpr BenchModelShape kLlama2With7b{32, 4096, 32, 32, 128, 11008, 32000, 8192, 10000};

std::unique_ptr<BenchModel> make_bench_model(const BenchModelShape& shape);

}  // namespace loci::cuda
