// SPDX-License-Identifier: Apache-2.0
// Random values, rows and tensors for the tests of the kernels. Test code only.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/cpu/buffer.h"
#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/cpu/packed_matrix.h"
#include "loci/compute/cpu/state_layout.h"
#include "loci/model/quantize.h"
#include "loci/model/tensor.h"

namespace loci::cpu {

// Roughly normal, with mean 0 and standard deviation 1.
inline float normal_value(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.unit();
  return static_cast<float>(sum);
}

inline std::vector<float> normal_values(Random& random, std::size_t count, float deviation = 1) {
  std::vector<float> values(count);
  for (float& value : values) value = deviation * normal_value(random);
  return values;
}

// A random tensor that owns its bytes, and its packed form.
struct TestMatrix {
  std::vector<std::byte> bytes;
  TensorView view;
  Buffer memory;
  PackedMatrix packed;

  TestMatrix(TensorType type, std::uint32_t rows, std::uint32_t columns, Random& random) {
    const TensorTypeInfo& info = tensor_type_info(type);
    const std::size_t row_bytes = columns / info.block_elements * info.block_bytes;
    bytes.resize(rows * row_bytes);
    for (std::uint32_t row = 0; row < rows; ++row) {
      std::vector<float> values = normal_values(random, columns, 0.05f);
      for (float& value : values) value += 0.01f;  // Q4_1's minimum is not just minus its maximum
      encode_row(type, values, {bytes.data() + row * row_bytes, row_bytes});
    }
    view = {"test", type, rows, columns, bytes.data()};
    packed = *describe_packed(view);
    memory.reserve(packed.size_bytes(), "a test");
    packed.data = memory.data();
    for (std::uint32_t group = 0; group < packed.groups; ++group) pack_group(view, packed, group);
  }
};

// One token's key or value in one dimension of a head, read as kernel_table.h describes HeadState.
inline float stored_key(StateType type, const HeadState& head, std::uint32_t head_dim, std::uint32_t token,
                        std::uint32_t dim) {
  if (type == StateType::kF16) {
    return f16_to_f32(reinterpret_cast<const std::uint16_t*>(head.keys)[dim * kTokensPerBlock + token]);
  }
  const int byte = head.keys[token / 16 * 16 * head_dim + dim / 4 * 64 + token % 16 * 4 + dim % 4] - 128;
  return std::ldexp(static_cast<float>(byte),
                    head.key_scales[dim / q8_group_size(head_dim) * kTokensPerBlock + token] - 127);
}
inline float stored_value(StateType type, const HeadState& head, std::uint32_t head_dim, std::uint32_t token,
                          std::uint32_t dim) {
  if (type == StateType::kF16) {
    return f16_to_f32(reinterpret_cast<const std::uint16_t*>(head.values)[token * head_dim + dim]);
  }
  const auto byte = static_cast<std::int8_t>(head.values[token / 4 * 4 * head_dim + dim * 4 + token % 4]);
  return std::ldexp(static_cast<float>(byte),
                    head.value_scales[dim / q8_group_size(head_dim) * kTokensPerBlock + token] - 127);
}

// Compares bit for bit, as == does not for floats.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

inline std::vector<TensorType> all_tensor_types() {
  std::vector<TensorType> types;
  for (const TensorTypeInfo& info : supported_tensor_types()) types.push_back(info.type);
  return types;
}

}  // namespace loci::cpu
