// SPDX-License-Identifier: Apache-2.0
// Random weights for benchmarks, and whole models of them: a Llama's layers in any size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "loci/model/model_spec.h"

namespace loci::cuda {

// Bytes of BF16 or packed weights, all below 1: random bits under scales of 2^-10.
std::vector<std::byte> random_weights(TensorType type, std::uint64_t values);

// Its tensors view one piece of random weights: only sizes matter.
struct BenchModel {
  TensorType type;
  std::vector<std::byte> matrices;
  std::vector<float> ones;
  ModelSpec spec;
  double product_values = 0;  // of all matrices that each token is multiplied with

  double product_bytes() const;  // of these, in a file
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

std::unique_ptr<BenchModel> make_bench_model(const BenchModelShape& shape,
                                             TensorType type = TensorType::kBF16);

}  // namespace loci::cuda
