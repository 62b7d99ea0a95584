// SPDX-License-Identifier: Apache-2.0
#include "loci/model/tensor_block.h"

#include <bit>
#include <cstring>

#include "loci/base/check.h"

namespace loci {

namespace {

int u8_at(const std::byte* from, std::size_t index) { return std::to_integer<int>(from[index]); }
std::int8_t i8(int value) { return static_cast<std::int8_t>(value); }
std::uint8_t u8(int value) { return static_cast<std::uint8_t>(value); }

void set_scale(QuantBlock& block, const std::byte* from) {
  block.scale_bits = load_u16(from);
  block.scale = f16_to_f32(block.scale_bits);
}

void set_offset(QuantBlock& block, const std::byte* from, float sign) {
  block.has_offset = true;
  block.offset_bits = load_u16(from);
  block.offset = sign * f16_to_f32(block.offset_bits);
}

void set_single_group(QuantBlock& block) {
  block.group = 32;
  block.scales[0] = 1;
  block.offsets[0] = 1;
}

// 16 bytes: low nibbles are elements 0 to 15, high ones 16 to 31.
int split_nibble(const std::byte* nibbles, std::size_t i) {
  return i < 16 ? u8_at(nibbles, i) & 15 : u8_at(nibbles, i - 16) >> 4;
}

// Q8_0: f16 scale, 32 int8.
void unpack_q8_0(const std::byte* from, QuantBlock& block) {
  set_single_group(block);
  set_scale(block, from);
  std::memcpy(block.values.data(), from + 2, 32);
}

// Q4_0, Q4_1, Q5_0, Q5_1: f16 scale, [f16 minimum], [32 fifth bits], 16 bytes of nibbles. Without a minimum
// the middle of the range is subtracted.
void unpack_legacy(const std::byte* from, bool fifth_bit, bool minimum, QuantBlock& block) {
  set_single_group(block);
  set_scale(block, from);
  if (minimum) set_offset(block, from + 2, 1.0f);
  const std::byte* bits = from + (minimum ? 4 : 2);
  const std::byte* nibbles = bits + (fifth_bit ? 4 : 0);
  const int middle = minimum ? 0 : fifth_bit ? 16 : 8;
  for (std::size_t i = 0; i < 32; ++i) {
    const int fifth = fifth_bit ? (u8_at(bits, i / 8) >> (i % 8) & 1) << 4 : 0;
    block.values[i] = i8((split_nibble(nibbles, i) | fifth) - middle);
  }
}

// Q2_K: 16 bytes, a scale in the low nibble and a minimum in the high one for 16 elements each; 64 bytes of
// bit pairs; f16 scale; f16 scale of the minima. Element 128 h + 32 s + i is pair s of byte 32 h + i.
void unpack_q2_k(const std::byte* from, QuantBlock& block) {
  block.group = 16;
  set_scale(block, from + 80);
  set_offset(block, from + 82, -1.0f);
  for (std::size_t g = 0; g < 16; ++g) {
    block.scales[g] = i8(u8_at(from, g) & 15);
    block.offsets[g] = u8(u8_at(from, g) >> 4);
  }
  for (std::size_t run = 0; run < 8; ++run) {
    const std::byte* pairs = from + 16 + run / 4 * 32;
    std::int8_t* values = &block.values[32 * run];
    const std::size_t shift = run % 4 * 2;
    for (std::size_t i = 0; i < 32; ++i) values[i] = i8(u8_at(pairs, i) >> shift & 3);
  }
}

// Q3_K: 32 bytes of third bits (element 32 s + i: bit s of byte i; without it 4 is subtracted); 64 bytes of
// bit pairs as in Q2_K; 12 bytes of 16 six-bit scales, which mean value + 32; f16 scale. Of scale j the low
// nibble is in byte j mod 8 (low half, from 8 on the high one), the upper two bits in pair j / 4 of byte
// 8 + j mod 4.
void unpack_q3_k(const std::byte* from, QuantBlock& block) {
  block.group = 16;
  const std::byte* scales = from + 96;
  set_scale(block, from + 108);
  for (std::size_t j = 0; j < 16; ++j) {
    const int low = u8_at(scales, j % 8) >> (j < 8 ? 0 : 4) & 15;
    const int high = u8_at(scales, 8 + j % 4) >> (j / 4 * 2) & 3;
    block.scales[j] = i8((low | high << 4) - 32);
  }
  for (std::size_t run = 0; run < 8; ++run) {
    const std::byte* pairs = from + 32 + run / 4 * 32;
    std::int8_t* values = &block.values[32 * run];
    const std::size_t shift = run % 4 * 2;
    for (std::size_t i = 0; i < 32; ++i) {
      values[i] = i8((u8_at(pairs, i) >> shift & 3) + (u8_at(from, i) >> run & 1) * 4 - 4);
    }
  }
}

// Eight six-bit scales and eight minima in 12 bytes: those of j < 4 are the low bits of bytes j and 4 + j;
// of the others the low nibbles are the two of byte 4 + j, the upper bits the tops of bytes j - 4 and j.
void unpack_scales_and_minima(const std::byte* packed, QuantBlock& block) {
  for (std::size_t j = 0; j < 8; ++j) {
    if (j < 4) {
      block.scales[j] = i8(u8_at(packed, j) & 63);
      block.offsets[j] = u8(u8_at(packed, j + 4) & 63);
    } else {
      block.scales[j] = i8((u8_at(packed, j + 4) & 15) | u8_at(packed, j - 4) >> 6 << 4);
      block.offsets[j] = u8(u8_at(packed, j + 4) >> 4 | u8_at(packed, j) >> 6 << 4);
    }
  }
}

// Q4_K: f16 scale; f16 scale of the minima; the scales and minima; 128 bytes of nibbles, element
// 64 p + i in the low one of byte 32 p + i, element 64 p + 32 + i in its high one. Q5_K has 32 bytes of
// fifth bits before the nibbles: element 32 s + i is bit s of byte i.
void unpack_q45_k(const std::byte* from, bool fifth_bit, QuantBlock& block) {
  block.group = 32;
  set_scale(block, from);
  set_offset(block, from + 2, -1.0f);
  unpack_scales_and_minima(from + 4, block);
  const std::byte* nibbles = from + (fifth_bit ? 48 : 16);
  for (std::size_t run = 0; run < 8; ++run) {
    const std::byte* low = nibbles + run / 2 * 32;
    std::int8_t* values = &block.values[32 * run];
    const std::size_t shift = run % 2 * 4;
    for (std::size_t i = 0; i < 32; ++i) values[i] = i8(u8_at(low, i) >> shift & 15);
    if (!fifth_bit) continue;
    for (std::size_t i = 0; i < 32; ++i) values[i] = i8(values[i] | (u8_at(from + 16, i) >> run & 1) << 4);
  }
}

// Q6_K: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales (one for 16 elements), f16
// scale; 32 is subtracted. Each half of 128 elements is four runs of 32 that share the bytes: runs 0 and 1 in
// the low nibbles of 32 bytes each, runs 2 and 3 in their high nibbles, the bit pairs of all four in one
// byte, run 0 lowest.
void unpack_q6_k(const std::byte* from, QuantBlock& block) {
  block.group = 16;
  set_scale(block, from + 208);
  std::memcpy(block.scales.data(), from + 192, 16);
  for (std::size_t part = 0; part < 8; ++part) {
    const std::size_t half = part / 4, run = part % 4;
    const std::byte* low = from + half * 64 + run % 2 * 32;
    const std::byte* high = from + 128 + half * 32;
    std::int8_t* values = &block.values[32 * part];
    const std::size_t low_shift = run < 2 ? 0 : 4, high_shift = 2 * run;
    for (std::size_t i = 0; i < 32; ++i) {
      values[i] = i8(((u8_at(low, i) >> low_shift & 15) | (u8_at(high, i) >> high_shift & 3) << 4) - 32);
    }
  }
}

// IQ4_NL: f16 scale, nibbles that choose from a table.
void unpack_iq4_nl(const std::byte* from, QuantBlock& block) {
  set_single_group(block);
  set_scale(block, from);
  for (std::size_t i = 0; i < 32; ++i) block.values[i] = kIQ4Values[split_nibble(from + 2, i)];
}

// IQ4_XS: f16 scale; eight pairs of upper bits and eight low nibbles of six-bit scales, which mean
// value + 32; then for each 32 elements 16 bytes as in IQ4_NL.
void unpack_iq4_xs(const std::byte* from, QuantBlock& block) {
  block.group = 32;
  set_scale(block, from);
  const int upper = load_u16(from + 2);
  for (std::size_t j = 0; j < 8; ++j) {
    const int low = u8_at(from + 4, j / 2) >> (j % 2 * 4) & 15;
    block.scales[j] = i8((low | (upper >> (2 * j) & 3) << 4) - 32);
    for (std::size_t i = 0; i < 32; ++i) {
      block.values[32 * j + i] = kIQ4Values[split_nibble(from + 8 + 16 * j, i)];
    }
  }
}

// MXFP4 (OCP microscaling): a biased exponent, nibbles that are 4-bit floats. The table holds them doubled,
// so the scale is 2^(exponent - 128).
void unpack_mxfp4(const std::byte* from, QuantBlock& block) {
  set_single_group(block);
  const int exponent = u8_at(from, 0);
  block.scale_bits = static_cast<std::uint16_t>(exponent < 2 ? 0x20 << exponent : (exponent - 1) << 7);
  block.scale = bf16_to_f32(block.scale_bits);
  for (std::size_t i = 0; i < 32; ++i) block.values[i] = kMXFP4Values[split_nibble(from + 1, i)];
}

}  // namespace

void unpack_block(TensorType type, const std::byte* from, QuantBlock& block) {
  block.has_offset = false;
  switch (type) {
    case TensorType::kQ8_0: return unpack_q8_0(from, block);
    case TensorType::kQ4_0: return unpack_legacy(from, false, false, block);
    case TensorType::kQ4_1: return unpack_legacy(from, false, true, block);
    case TensorType::kQ5_0: return unpack_legacy(from, true, false, block);
    case TensorType::kQ5_1: return unpack_legacy(from, true, true, block);
    case TensorType::kQ2_K: return unpack_q2_k(from, block);
    case TensorType::kQ3_K: return unpack_q3_k(from, block);
    case TensorType::kQ4_K: return unpack_q45_k(from, false, block);
    case TensorType::kQ5_K: return unpack_q45_k(from, true, block);
    case TensorType::kQ6_K: return unpack_q6_k(from, block);
    case TensorType::kIQ4_NL: return unpack_iq4_nl(from, block);
    case TensorType::kIQ4_XS: return unpack_iq4_xs(from, block);
    case TensorType::kMXFP4: return unpack_mxfp4(from, block);
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16: break;
  }
  LOCI_CHECK(false, "only quantised types have blocks");
}

}  // namespace loci
