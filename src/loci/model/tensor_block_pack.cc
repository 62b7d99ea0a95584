// SPDX-License-Identifier: Apache-2.0
// The inverse of tensor_block.cc, where the layouts are described.
#include <algorithm>
#include <cstring>

#include "loci/base/check.h"
#include "loci/model/tensor_block.h"

namespace loci {
namespace {

void store_u16(std::byte* to, std::uint16_t value) { std::memcpy(to, &value, sizeof(value)); }
void or_bits(std::byte& to, int bits) { to |= static_cast<std::byte>(bits); }

// Element i of 32: low nibbles are elements 0 to 15, high ones 16 to 31.
void or_split_nibble(std::byte* nibbles, std::size_t i, int value) {
  or_bits(nibbles[i % 16], value << (i < 16 ? 0 : 4));
}

int index_in(const std::array<std::int8_t, 16>& table, std::int8_t value) {
  const auto found = std::find(table.begin(), table.end(), value);
  LOCI_CHECK(found != table.end(), "a value that the table has");
  return static_cast<int>(found - table.begin());
}

void pack_legacy(const QuantBlock& block, bool fifth_bit, bool minimum, std::byte* to) {
  store_u16(to, block.scale_bits);
  if (minimum) store_u16(to + 2, block.offset_bits);
  std::byte* bits = to + (minimum ? 4 : 2);
  std::byte* nibbles = bits + (fifth_bit ? 4 : 0);
  const int middle = minimum ? 0 : fifth_bit ? 16 : 8;
  for (std::size_t i = 0; i < 32; ++i) {
    const int value = block.values[i] + middle;
    or_split_nibble(nibbles, i, value & 15);
    if (fifth_bit) or_bits(bits[i / 8], (value >> 4) << (i % 8));
  }
}

void pack_q2_k(const QuantBlock& block, std::byte* to) {
  store_u16(to + 80, block.scale_bits);
  store_u16(to + 82, block.offset_bits);
  for (std::size_t g = 0; g < 16; ++g) or_bits(to[g], block.scales[g] | block.offsets[g] << 4);
  for (std::size_t e = 0; e < 256; ++e) {
    or_bits(to[16 + e / 128 * 32 + e % 32], block.values[e] << (e % 128 / 32 * 2));
  }
}

void pack_q3_k(const QuantBlock& block, std::byte* to) {
  std::byte* scales = to + 96;
  store_u16(to + 108, block.scale_bits);
  for (std::size_t j = 0; j < 16; ++j) {
    const int scale = block.scales[j] + 32;
    or_bits(scales[j % 8], (scale & 15) << (j < 8 ? 0 : 4));
    or_bits(scales[8 + j % 4], (scale >> 4) << (j / 4 * 2));
  }
  for (std::size_t e = 0; e < 256; ++e) {
    const int value = block.values[e] + 4;
    or_bits(to[32 + e / 128 * 32 + e % 32], (value & 3) << (e % 128 / 32 * 2));
    or_bits(to[e % 32], (value >> 2) << (e / 32));
  }
}

void pack_q45_k(const QuantBlock& block, bool fifth_bit, std::byte* to) {
  store_u16(to, block.scale_bits);
  store_u16(to + 2, block.offset_bits);
  std::byte* packed = to + 4;
  for (std::size_t j = 0; j < 8; ++j) {
    const int scale = block.scales[j], minimum = block.offsets[j];
    if (j < 4) {
      or_bits(packed[j], scale);
      or_bits(packed[j + 4], minimum);
    } else {
      or_bits(packed[j + 4], (scale & 15) | (minimum & 15) << 4);
      or_bits(packed[j - 4], (scale >> 4) << 6);
      or_bits(packed[j], (minimum >> 4) << 6);
    }
  }
  std::byte* nibbles = to + (fifth_bit ? 48 : 16);
  for (std::size_t e = 0; e < 256; ++e) {
    or_bits(nibbles[e / 64 * 32 + e % 32], (block.values[e] & 15) << (e % 64 < 32 ? 0 : 4));
    if (fifth_bit) or_bits(to[16 + e % 32], (block.values[e] >> 4) << (e / 32));
  }
}

void pack_q6_k(const QuantBlock& block, std::byte* to) {
  store_u16(to + 208, block.scale_bits);
  std::memcpy(to + 192, block.scales.data(), 16);
  for (std::size_t e = 0; e < 256; ++e) {
    const std::size_t half = e / 128, run = e % 128 / 32, i = e % 32;
    const int value = block.values[e] + 32;
    or_bits(to[half * 64 + run % 2 * 32 + i], (value & 15) << (run < 2 ? 0 : 4));
    or_bits(to[128 + half * 32 + i], (value >> 4) << (2 * run));
  }
}

void pack_iq4_xs(const QuantBlock& block, std::byte* to) {
  store_u16(to, block.scale_bits);
  int upper = 0;
  for (std::size_t j = 0; j < 8; ++j) {
    const int scale = block.scales[j] + 32;
    or_bits(to[4 + j / 2], (scale & 15) << (j % 2 * 4));
    upper |= (scale >> 4) << (2 * j);
    for (std::size_t i = 0; i < 32; ++i) {
      or_split_nibble(to + 8 + 16 * j, i, index_in(kIQ4Values, block.values[32 * j + i]));
    }
  }
  store_u16(to + 2, static_cast<std::uint16_t>(upper));
}

void pack_q8_0(const QuantBlock& block, std::byte* to) {
  store_u16(to, block.scale_bits);
  std::memcpy(to + 2, block.values.data(), 32);
}

void pack_iq4_nl(const QuantBlock& block, std::byte* to) {
  store_u16(to, block.scale_bits);
  for (std::size_t i = 0; i < 32; ++i) or_split_nibble(to + 2, i, index_in(kIQ4Values, block.values[i]));
}

void pack_mxfp4(const QuantBlock& block, std::byte* to) {
  const int exponent = block.scale_bits < 0x80 ? block.scale_bits >> 6 : (block.scale_bits >> 7) + 1;
  to[0] = static_cast<std::byte>(exponent);
  for (std::size_t i = 0; i < 32; ++i) or_split_nibble(to + 1, i, index_in(kMXFP4Values, block.values[i]));
}

}  // namespace

void pack_block(TensorType type, const QuantBlock& block, std::byte* to) {
  std::fill_n(to, tensor_type_info(type).block_bytes, std::byte{0});
  switch (type) {
    case TensorType::kQ8_0: return pack_q8_0(block, to);
    case TensorType::kQ4_0: return pack_legacy(block, false, false, to);
    case TensorType::kQ4_1: return pack_legacy(block, false, true, to);
    case TensorType::kQ5_0: return pack_legacy(block, true, false, to);
    case TensorType::kQ5_1: return pack_legacy(block, true, true, to);
    case TensorType::kQ2_K: return pack_q2_k(block, to);
    case TensorType::kQ3_K: return pack_q3_k(block, to);
    case TensorType::kQ4_K: return pack_q45_k(block, false, to);
    case TensorType::kQ5_K: return pack_q45_k(block, true, to);
    case TensorType::kQ6_K: return pack_q6_k(block, to);
    case TensorType::kIQ4_NL: return pack_iq4_nl(block, to);
    case TensorType::kIQ4_XS: return pack_iq4_xs(block, to);
    case TensorType::kMXFP4: return pack_mxfp4(block, to);
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16: break;
  }
  LOCI_CHECK(false, "only quantised types have blocks");
}

}  // namespace loci
