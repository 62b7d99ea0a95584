// SPDX-License-Identifier: Apache-2.0
// Weights in the order in which tensor cores take them. In a tile of 16 rows and a block of 32 columns, lane
// 4 g + t has columns 8 t .. 8 t + 7 of rows g and g + 8. They are the first operands of two products of 16
// columns each: columns 8 t .. 8 t + 3 of all t, then 8 t + 4 .. 8 t + 7. Activations have the same order.
// All kernels use this order, so all sums over one matrix have the same order.
//
// Decoding. Integers of a few bits are put under the exponent of 1024 (0x6400 | n is 1024 + n in f16). Then
// 1024 and the type's middle are subtracted, both exactly. Scale (and minimum) are applied in one f16
// operation with one rounding, so the result is the decoded weight rounded to f16. K types multiply two
// scales, whose product is rounded to f16 first. With BF16 elements the result is rounded again.
//
// Instructions of few_rows' loop for a block of a tile, counted in the machine code for sm_90a: 16 weights a
// lane, decoding, scales, two products, loads, the loop. The last column has the issue slots in the time that
// an H200's memory needs for the bytes: 4.3 TB/s over 132 SMs of 4 schedulers at 1.7 GHz are 4.8 bytes for
// each cycle and scheduler.
//
//   format   instructions  bytes a block of 16 rows  issue slots at 4.8 B
//   16 bits            16                      1024                   213
//   Q8_0               41                       544                   113
//   Q4_0               36                       288                    60
//   Q4_1               36                       320                    67
//   Q4_K               45                       304                    63
//   Q6_K               63                       424                    88
//
// So all formats fit. Integer products of int8 activations take 4 dp4a for 16 values of a row, but 8 times as
// many for 8 rows, with their scales and sums. They would be faster only for one row, would round activations
// to 8 bits, and would sum in another order than the kernels for many rows.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/products/half_pairs.h"
#include "loci/compute/cuda/products/packed_layout.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

// First operands of the two products of a block.
struct BlockFragments {
  std::uint32_t first[4], second[4];
};

// f16 pairs as pairs of elements.
template <class T>
LOCI_DEVICE std::uint32_t as_elements(std::uint32_t pair);
template <>
LOCI_DEVICE std::uint32_t as_elements<Half>(std::uint32_t pair) {
  return pair;
}
template <>
LOCI_DEVICE std::uint32_t as_elements<BFloat16>(std::uint32_t pair) {
  const float2 values = unpack2<Half>(pair);
  return pack2<BFloat16>(values.x, values.y);
}

// Puts the pairs of columns (8 t + 2 p, 8 t + 2 p + 1) of rows g and g + 8 where the products take them.
template <class T>
LOCI_DEVICE void set_fragments(const std::uint32_t (&lower)[4], const std::uint32_t (&upper)[4],
                               BlockFragments& to) {
  to.first[0] = as_elements<T>(lower[0]);
  to.first[1] = as_elements<T>(upper[0]);
  to.first[2] = as_elements<T>(lower[1]);
  to.first[3] = as_elements<T>(upper[1]);
  to.second[0] = as_elements<T>(lower[2]);
  to.second[1] = as_elements<T>(upper[2]);
  to.second[2] = as_elements<T>(lower[3]);
  to.second[3] = as_elements<T>(upper[3]);
}
// 16-bit weights: the lane's 16 bytes of either row.
LOCI_DEVICE void set_fragments(const uint4& lower, const uint4& upper, BlockFragments& to) {
  to.first[0] = lower.x, to.first[1] = upper.x, to.first[2] = lower.y, to.first[3] = upper.y;
  to.second[0] = lower.z, to.second[1] = upper.z, to.second[2] = lower.w, to.second[3] = upper.w;
}

// Turns the nibbles of a word into four pairs of exact integers less `kMiddle`.
template <int kMiddle>
LOCI_DEVICE void decode_nibbles(std::uint32_t word, std::uint32_t (&pairs)[4]) {
  // -(1024 + middle) and -(64 + middle): 1024 + 16 n is multiplied by 1 / 16 first.
  constexpr std::uint32_t kLow = kMiddle == 8 ? 0xe408e408u : 0xe400e400u;
  constexpr std::uint32_t kHigh = kMiddle == 8 ? 0xd480d480u : 0xd400d400u;
  constexpr std::uint32_t kSixteenth = 0x2c002c00u;
  constexpr std::uint32_t kMagic = 0x64006400u;
  static_assert(kMiddle == 0 || kMiddle == 8);
  const std::uint32_t later = word >> 8;
  pairs[0] = half2_add(masked_with<0x000f000f, kMagic>(word), kLow);
  pairs[1] = half2_fma(masked_with<0x00f000f0, kMagic>(word), kSixteenth, kHigh);
  pairs[2] = half2_add(masked_with<0x000f000f, kMagic>(later), kLow);
  pairs[3] = half2_fma(masked_with<0x00f000f0, kMagic>(later), kSixteenth, kHigh);
}

// Two bytes of a word, chosen by `selector` over (word, magic), less their offset of 128.
LOCI_DEVICE std::uint32_t decode_bytes(std::uint32_t flipped, std::uint32_t selector) {
  return half2_add(permute_bytes(flipped, 0x64646464u, selector), 0xe480e480u);  // -(1024 + 128)
}

template <std::uint32_t N>
LOCI_DEVICE void set_words(std::uint32_t (&to)[N], int at, const uint4& v) {
  to[at] = v.x, to[at + 1] = v.y, to[at + 2] = v.z, to[at + 3] = v.w;
}

// A lane's part of a unit of a packed matrix, and the fragments of its blocks. `Read` loads 16 bytes.
template <MatrixFormat F>
struct PackedUnit;

template <>
struct PackedUnit<MatrixFormat::kQ8_0> {
  std::uint32_t quants[8];  // [block][row half][2]
  std::uint32_t scales[4];  // of this g and its neighbour: [g % 2][block], both row halves in a word

  template <class Read>
  LOCI_DEVICE void load(const std::byte* unit, std::uint32_t lane, Read read) {
    set_words(quants, 0, read(unit + lane * 16));
    set_words(quants, 4, read(unit + 512 + lane * 16));
    set_words(scales, 0, read(unit + kScalesAt + lane / 8 * 16));
    if (lane / 4 % 2 != 0) scales[0] = scales[2], scales[1] = scales[3];
  }
  template <class T>
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const {
    std::uint32_t rows[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t scale = half == 0 ? both_low(scales[block]) : both_high(scales[block]);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const std::uint32_t flipped = quants[block * 4 + half * 2 + p / 2] ^ 0x80808080u;
        rows[half][p] = half2_multiply(decode_bytes(flipped, p % 2 == 0 ? 0x4140 : 0x4342), scale);
      }
    }
    set_fragments<T>(rows[0], rows[1], to);
  }
};

// The nibbles of a unit of 4 blocks.
struct NibbleWords {
  std::uint32_t words[8];  // [block][row half]
  template <class Read>
  LOCI_DEVICE void load(const std::byte* unit, std::uint32_t lane, Read read) {
    set_words(words, 0, read(unit + lane * 16));
    set_words(words, 4, read(unit + 512 + lane * 16));
  }
};

template <>
struct PackedUnit<MatrixFormat::kQ4_0> {
  NibbleWords nibbles;
  std::uint32_t scales[4];  // [block], both row halves

  template <class Read>
  LOCI_DEVICE void load(const std::byte* unit, std::uint32_t lane, Read read) {
    nibbles.load(unit, lane, read);
    set_words(scales, 0, read(unit + kScalesAt + lane / 4 * 16));
  }
  template <class T>
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const {
    std::uint32_t rows[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      decode_nibbles<8>(nibbles.words[block * 2 + half], rows[half]);
      const std::uint32_t scale = half == 0 ? both_low(scales[block]) : both_high(scales[block]);
#pragma unroll
      for (std::uint32_t& pair : rows[half]) pair = half2_multiply(pair, scale);
    }
    set_fragments<T>(rows[0], rows[1], to);
  }
};

// Nibbles without a middle, times `scale` plus `minimum`, each of both row halves.
template <class T>
LOCI_DEVICE void scaled_fragments(const NibbleWords& nibbles, int block, std::uint32_t scale,
                                  std::uint32_t minimum, BlockFragments& to) {
  std::uint32_t rows[2][4];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    decode_nibbles<0>(nibbles.words[block * 2 + half], rows[half]);
    const std::uint32_t s = half == 0 ? both_low(scale) : both_high(scale);
    const std::uint32_t m = half == 0 ? both_low(minimum) : both_high(minimum);
#pragma unroll
    for (std::uint32_t& pair : rows[half]) pair = half2_fma(pair, s, m);
  }
  set_fragments<T>(rows[0], rows[1], to);
}

template <>
struct PackedUnit<MatrixFormat::kQ4_1> {
  NibbleWords nibbles;
  std::uint32_t scales[4], minima[4];  // [block], both row halves

  template <class Read>
  LOCI_DEVICE void load(const std::byte* unit, std::uint32_t lane, Read read) {
    nibbles.load(unit, lane, read);
    set_words(scales, 0, read(unit + kScalesAt + lane / 4 * 16));
    set_words(minima, 0, read(unit + kMinimaAt + lane / 4 * 16));
  }
  template <class T>
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const {
    scaled_fragments<T>(nibbles, block, scales[block], minima[block], to);
  }
};

template <>
struct PackedUnit<MatrixFormat::kQ4_K> {
  NibbleWords nibbles;
  std::uint32_t row_scale, row_minimum;  // both row halves
  std::uint32_t small[4];                // [block]: scales of both row halves, minima of both

  template <class Read>
  LOCI_DEVICE void load(const std::byte* unit, std::uint32_t lane, Read read) {
    nibbles.load(unit, lane, read);
    const uint4 two_rows = read(unit + kScalesAt + lane / 8 * 16);
    const bool odd = lane / 4 % 2 != 0;
    row_scale = odd ? two_rows.z : two_rows.x;
    row_minimum = (odd ? two_rows.w : two_rows.y) ^ 0x80008000u;
    set_words(small, 0, read(unit + kSmallScalesAt + lane / 4 * 16));
  }
  template <class T>
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const {
    constexpr std::uint32_t kLess1024 = 0xe400e400u;
    const std::uint32_t scale = half2_add(permute_bytes(small[block], 0x64646464u, 0x4140), kLess1024);
    const std::uint32_t minimum = half2_add(permute_bytes(small[block], 0x64646464u, 0x4342), kLess1024);
    scaled_fragments<T>(nibbles, block, half2_multiply(scale, row_scale),
                        half2_multiply(minimum, row_minimum), to);
  }
};

template <>
struct PackedUnit<MatrixFormat::kQ6_K> {
  NibbleWords nibbles;
  std::uint32_t pairs[4];   // [block]
  std::uint32_t small[2];   // [block pair]: int8 scales [block][row half] of this lane's group
  std::uint32_t row_scale;  // both row halves

  template <class Read>
  LOCI_DEVICE void load(const std::byte* unit, std::uint32_t lane, Read read) {
    nibbles.load(unit, lane, read);
    set_words(pairs, 0, read(unit + kHighPairsAt + lane * 16));
    const uint4 groups = read(unit + kGroupScalesAt + lane / 4 * 16);
    const bool second = lane % 4 >= 2;
    small[0] = (second ? groups.z : groups.x) ^ 0x80808080u;
    small[1] = (second ? groups.w : groups.y) ^ 0x80808080u;
    const uint4 rows = read(unit + kRowScalesAt + lane / 16 * 16);
    const std::uint32_t g = lane / 4 % 4;
    row_scale = g < 2 ? (g == 0 ? rows.x : rows.y) : (g == 2 ? rows.z : rows.w);
  }
  template <class T>
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const {
    const std::uint32_t scales =
        half2_multiply(decode_bytes(small[block / 2], block % 2 == 0 ? 0x4140 : 0x4342), row_scale);
    std::uint32_t rows[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t scale = half == 0 ? both_low(scales) : both_high(scales);
#pragma unroll
      for (int p = 0; p < 4; ++p) {
        const std::uint32_t low =
            masked_with<0x000f000f, 0x64006400>(nibbles.words[block * 2 + half] >> (4 * p));
        const int field = half * 4 + p;  // its two bits go to bits 4 and 5
        const std::uint32_t high =
            field < 2 ? pairs[block] << (4 - 2 * field) : pairs[block] >> (2 * field - 4);
        const std::uint32_t value = (high & 0x00300030u) | low;
        rows[half][p] = half2_multiply(half2_add(value, 0xe420e420u), scale);  // -(1024 + 32)
      }
    }
    set_fragments<T>(rows[0], rows[1], to);
  }
};

}  // namespace loci::cuda
