// SPDX-License-Identifier: Apache-2.0
// The layout of quantised matrices in device memory. A tile is 16 rows. It is cut into units of 128 columns
// (Q8_0: 64), [tile][unit], so that a warp that multiplies a tile reads one stream. Missing rows and columns
// are zeros.
//
// Inside a unit the 32 columns of a block are divided among the 32 lanes of a warp as the tensor cores' first
// operand requires (products/fragments.h): lane 4 g + t has columns 8 t .. 8 t + 7 of rows g and g + 8. The
// order of columns inside a product does not matter if activations have the same order; they are read 16
// bytes (8 columns) at a time.
//
//   format  unit     bytes  what, in order
//   Q8_0    16 x 64   1088  [block][lane][row half][8] int8; [g][block][row half] f16 scale
//   Q4_0    16 x 128  1152  nibbles; [g][block][row half] f16 scale
//   Q4_1    16 x 128  1280  nibbles; scales; minima like the scales
//   Q4_K    16 x 128  1216  nibbles; [g]{scale, scale of minima}[row half] f16; [g][block]{scale,
//                           minimum}[row half] of 6 bits in a byte
//   Q6_K    16 x 128  1696  low nibbles; [lane][block] high pairs; [g][t / 2][block][row half] int8 scale;
//                           [g][row half] f16 scale
//
// Nibbles: [block pair][lane][block][row half] words of 8 columns. Column i's nibble is number i / 2 + 4 (i %
// 2): masking with 0x000f000f leaves two neighbours in the two halves of a register. High pairs: one word a
// block; field 4 (row half) + i / 2 of 2 bits, even columns in the lower 16 bits, odd ones in the upper.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "loci/compute/cuda/products/matrix_format.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

inline constexpr std::uint32_t kTileRows = 16;
inline constexpr std::uint32_t kBlockColumns = 32;
// Columns are padded to a multiple of this: two units of Q8_0. Kernels divide sums at these steps.
inline constexpr std::uint32_t kStepColumns = 128;
LOCI_HOST_DEVICE constexpr std::uint32_t padded_columns(std::uint32_t columns) {
  return (columns + kStepColumns - 1) / kStepColumns * kStepColumns;
}

// Columns of a unit. A unit of a 16-bit matrix is so many columns of rows, whose layout is unchanged.
LOCI_HOST_DEVICE constexpr std::uint32_t unit_columns(MatrixFormat format) {
  return format <= MatrixFormat::kQ8_0 ? 64 : 128;
}

LOCI_HOST_DEVICE constexpr std::uint32_t unit_bytes(MatrixFormat format) {
  switch (format) {
    case MatrixFormat::kQ8_0: return 1088;
    case MatrixFormat::kQ4_0: return 1152;
    case MatrixFormat::kQ4_1: return 1280;
    case MatrixFormat::kQ4_K: return 1216;
    case MatrixFormat::kQ6_K: return 1696;
    default: return 0;
  }
}

// Where the parts of a unit begin, in bytes:
inline constexpr std::uint32_t kQuantBytes = 1024;       // the nibbles; Q8_0: both blocks
inline constexpr std::uint32_t kScalesAt = kQuantBytes;  // Q8_0, Q4_0, Q4_1; Q4_K: the two f16
inline constexpr std::uint32_t kMinimaAt = 1152;         // Q4_1
inline constexpr std::uint32_t kSmallScalesAt = 1088;    // Q4_K
inline constexpr std::uint32_t kHighPairsAt = 1024;      // Q6_K
inline constexpr std::uint32_t kGroupScalesAt = 1536;    // Q6_K
inline constexpr std::uint32_t kRowScalesAt = 1664;      // Q6_K

// The place of one value in a unit, by its row in the tile (0 to 15) and its column in the unit.
struct UnitPlace {
  std::uint32_t block, lane, g, t, half, i;
  LOCI_HOST_DEVICE UnitPlace(std::uint32_t row, std::uint32_t column)
      : block(column / 32),
        lane(row % 8 * 4 + column % 32 / 8),
        g(row % 8),
        t(column % 32 / 8),
        half(row / 8),
        i(column % 8) {}
  // Offset of the word with the 8 nibbles, and number of the column's nibble in it.
  LOCI_HOST_DEVICE std::uint32_t nibbles_at() const {
    return block / 2 * 512 + lane * 16 + block % 2 * 8 + half * 4;
  }
  LOCI_HOST_DEVICE std::uint32_t nibble_shift() const { return 4 * (i / 2 + 4 * (i % 2)); }
  LOCI_HOST_DEVICE std::uint32_t bytes_at() const { return block * 512 + lane * 16 + half * 8; }
  LOCI_HOST_DEVICE std::uint32_t pairs_at() const { return kHighPairsAt + lane * 16 + block * 4; }
  LOCI_HOST_DEVICE std::uint32_t pair_shift() const { return i % 2 * 16 + 2 * (half * 4 + i / 2); }
  // Offset of a 16-bit scale in the table at `table`, for a unit of `blocks` blocks.
  LOCI_HOST_DEVICE std::uint32_t scale_at(std::uint32_t table, std::uint32_t blocks) const {
    return table + (g * blocks + block) * 4 + half * 2;
  }
  LOCI_HOST_DEVICE std::uint32_t row_pair_at() const { return kScalesAt + g * 8 + half * 2; }  // Q4_K
  LOCI_HOST_DEVICE std::uint32_t small_scale_at() const { return kSmallScalesAt + g * 16 + block * 4 + half; }
  LOCI_HOST_DEVICE std::uint32_t group_scale_at() const {
    return kGroupScalesAt + (g * 2 + t / 2) * 8 + block * 2 + half;
  }
  LOCI_HOST_DEVICE std::uint32_t row_scale_at() const { return kRowScalesAt + g * 4 + half * 2; }
};

template <class V>
LOCI_HOST_DEVICE V load_at(const std::byte* from, std::uint32_t at) {
  return *reinterpret_cast<const V*>(from + at);
}

// f16 to float32, exactly.
LOCI_HOST_DEVICE float half_value(std::uint16_t bits) {
  const std::uint32_t exponent = bits >> 10 & 31u, fraction = bits & 1023u;
  const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
  if (exponent == 0) return sign * (static_cast<float>(fraction) * 0x1p-24f);
  const std::uint32_t wide = static_cast<std::uint32_t>(bits & 0x8000u) << 16 |
                             (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
  float value;
  memcpy(&value, &wide, sizeof(value));
  return value;
}

// One value of a unit, as decode_row() (model/tensor.h) defines it.
LOCI_HOST_DEVICE float packed_value(MatrixFormat format, const std::byte* unit, std::uint32_t row,
                                    std::uint32_t column) {
  const UnitPlace at(row, column);
  const auto half_at = [unit](std::uint32_t place) {
    return half_value(load_at<std::uint16_t>(unit, place));
  };
  if (format == MatrixFormat::kQ8_0) {
    const auto value = static_cast<float>(load_at<std::int8_t>(unit, at.bytes_at() + at.i));
    return half_at(at.scale_at(kScalesAt, 2)) * value;
  }
  const int nibble =
      static_cast<int>(load_at<std::uint32_t>(unit, at.nibbles_at()) >> at.nibble_shift() & 15u);
  const auto value = static_cast<float>(nibble);
  switch (format) {
    case MatrixFormat::kQ4_0: return half_at(at.scale_at(kScalesAt, 4)) * (value - 8);
    case MatrixFormat::kQ4_1:
      return half_at(at.scale_at(kScalesAt, 4)) * value + half_at(at.scale_at(kMinimaAt, 4));
    case MatrixFormat::kQ4_K: {
      const auto scale = static_cast<float>(load_at<std::uint8_t>(unit, at.small_scale_at()));
      const auto minimum = static_cast<float>(load_at<std::uint8_t>(unit, at.small_scale_at() + 2));
      return half_at(at.row_pair_at()) * scale * value + -half_at(at.row_pair_at() + 4) * minimum;
    }
    default: {
      const auto pair = static_cast<int>(load_at<std::uint32_t>(unit, at.pairs_at()) >> at.pair_shift() & 3u);
      const auto scale = static_cast<float>(load_at<std::int8_t>(unit, at.group_scale_at()));
      return half_at(at.row_scale_at()) * scale * static_cast<float>((nibble | pair << 4) - 32);
    }
  }
}

}  // namespace loci::cuda
