// SPDX-License-Identifier: Apache-2.0
// The models that the CPU backend's tests run on.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loci/compute/model_testing.h"

namespace loci {

// Every tensor type, every group size, the head sizes that are awkward for some kernel, both forms of input.
inline std::vector<NamedShape> shapes() {
  const auto shape = [](TensorType type, std::uint32_t hidden, std::uint32_t heads, std::uint32_t kv_heads,
                        std::uint32_t head_dim, std::uint32_t ffn, std::uint32_t layers) {
    RandomModelOptions options;
    options.type = type;
    options.hidden = hidden;
    options.heads = heads;
    options.kv_heads = kv_heads;
    options.head_dim = head_dim;
    options.ffn = ffn;
    options.layers = layers;
    return options;
  };
  std::vector<std::pair<const char*, RandomModelOptions>> all = {
      {"q4_1", shape(TensorType::kQ4_1, 64, 6, 2, 16, 96, 3)},
      {"q4_0", shape(TensorType::kQ4_0, 96, 4, 4, 24, 64, 2)},
      {"q8_0", shape(TensorType::kQ8_0, 64, 4, 1, 40, 160, 3)},
      {"q6_k", shape(TensorType::kQ6_K, 256, 4, 2, 64, 256, 2)},
      {"f16", shape(TensorType::kF16, 50, 5, 5, 8, 70, 3)},
      {"bf16", shape(TensorType::kBF16, 48, 16, 1, 32, 40, 2)},
      {"f32", shape(TensorType::kF32, 33, 3, 3, 16, 47, 2)},
  };
  all[0].second.biases = true;
  all[1].second.embedding_type = TensorType::kQ8_0;
  all[2].second.rope_dimensions = 24;
  all[3].second.embedding_type = TensorType::kF32;  // a float output after quantised layers
  all[4].second.embedding_type = TensorType::kF32;
  std::vector<NamedShape> named;
  for (const auto& [name, options] : all) named.push_back({name, options});
  // spec_oracle_test.cc checks that such seeds draw every part of ModelSpec. These seeds draw small models.
  for (const std::uint64_t seed : {101, 102, 103, 105, 108, 109, 110, 111, 113, 132, 135, 136})
    named.push_back({"spec_" + std::to_string(seed), seed});
  return named;
}

// The shapes for state in q8, which differs in attention and in how state is stored.
inline std::vector<NamedShape> q8_shapes() {
  std::vector<NamedShape> some;
  for (const NamedShape& shape : shapes()) {
    for (const char* name : {"q4_1", "q4_0", "q8_0", "bf16", "spec_103", "spec_110", "spec_132"}) {
      if (shape.name == name) some.push_back(shape);
    }
  }
  return some;
}

}  // namespace loci
