// SPDX-License-Identifier: Apache-2.0
// Unpacks the blocks of GGUF's quantised tensor types. All types have the same meaning in different packings.
// With g the group of element i,
//   x[i] = (scale * scales[g]) * values[i] + offset * offsets[g]
// in float32. All operations but the last product and the addition are exact; the product is exact too,
// except for Q6_K and MXFP4's subnormals. Decoding (tensor.h) and packing for the kernels both begin with
// this.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "loci/model/tensor.h"

namespace loci {

struct QuantBlock {
  float scale = 0;
  float offset = 0;               // Q4_1, Q5_1: the minimum; Q2_K, Q4_K, Q5_K: minus the scale of the minima
  std::uint16_t scale_bits = 0;   // f16 as it lies in the file; MXFP4: bf16 of the same value
  std::uint16_t offset_bits = 0;  // f16 as it lies in the file
  std::uint32_t group = 32;       // elements that share scales[g]: 16 or 32
  bool has_offset = false;        // without an offset nothing is added, so a zero keeps the product's sign
  std::array<std::int8_t, 16> scales{};    // 1 where a type has none
  std::array<std::uint8_t, 16> offsets{};  // likewise
  std::array<std::int8_t, 256> values{};   // [block_elements]
};

// Takes one block of a quantised type apart. `from` holds its block_bytes.
void unpack_block(TensorType type, const std::byte* from, QuantBlock& block);

// The inverse: writes block_bytes from scale_bits, offset_bits, scales, offsets and values, which must be
// in the type's range. (MXFP4's two zeros become the first one.)
void pack_block(TensorType type, const QuantBlock& block, std::byte* to);

// Two bytes as a file has them (little-endian, at any address).
inline std::uint16_t load_u16(const std::byte* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// The values of a nibble of IQ4_NL and IQ4_XS, and of MXFP4 (doubled, because its scale is halved).
inline constexpr std::array<std::int8_t, 16> kIQ4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                           1,    13,   25,  38,  53,  69,  89,  113};
inline constexpr std::array<std::int8_t, 16> kMXFP4Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                             0, -1, -2, -3, -4, -6, -8, -12};

}  // namespace loci
