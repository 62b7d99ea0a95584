#include "loci/model/quantize.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "loci/base/check.h"

namespace loci {
namespace {

void store_u16(std::byte* to, std::uint16_t value) { std::memcpy(to, &value, sizeof(value)); }

// Stores a scale as f16 and returns what was stored.
float store_f16(std::byte* to, float value) {
  const std::uint16_t bits = f32_to_f16(value);
  store_u16(to, bits);
  return f16_to_f32(bits);
}

int round_within(float value, int least, int most) {
  return static_cast<int>(std::lrint(std::clamp(value, static_cast<float>(least), static_cast<float>(most))));
}

float inverse(float value) { return value == 0 ? 0 : 1 / value; }

float largest_magnitude(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::fabs(value));
  return largest;
}

void encode_q8_0(std::span<const float> values, std::byte* out) {
  const float per_step = inverse(store_f16(out, largest_magnitude(values) / 127));
  for (std::size_t i = 0; i < 32; ++i) {
    out[2 + i] = static_cast<std::byte>(round_within(values[i] * per_step, -127, 127));
  }
}

// Low nibbles hold elements 0 to 15, high ones 16 to 31.
void store_nibbles(const std::array<int, 32>& quants, std::byte* out) {
  for (std::size_t i = 0; i < 16; ++i) out[i] = static_cast<std::byte>(quants[i] | quants[i + 16] << 4);
}

// The value of largest magnitude becomes -8 steps, so that the longer side of the range is used.
void encode_q4_0(std::span<const float> values, std::byte* out) {
  const float extreme = *std::max_element(values.begin(), values.end(),
                                          [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  const float per_step = inverse(store_f16(out, extreme / -8));
  std::array<int, 32> quants;
  for (std::size_t i = 0; i < 32; ++i) quants[i] = round_within(values[i] * per_step, -8, 7) + 8;
  store_nibbles(quants, out + 2);
}

void encode_q4_1(std::span<const float> values, std::byte* out) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const float per_step = inverse(store_f16(out, (*most - *least) / 15));
  const float minimum = store_f16(out + 2, *least);
  std::array<int, 32> quants;
  for (std::size_t i = 0; i < 32; ++i) quants[i] = round_within((values[i] - minimum) * per_step, 0, 15);
  store_nibbles(quants, out + 4);
}

// See decode_q6_k() in tensor.cc for the layout.
void encode_q6_k(std::span<const float> values, std::byte* out) {
  const float super_scale = store_f16(out + 208, largest_magnitude(values) / 31 / 127);
  std::fill_n(out, 208, std::byte{0});
  for (std::size_t group = 0; group < 16; ++group) {
    const std::span<const float> sixteen = values.subspan(group * 16, 16);
    const int scale = round_within(std::ceil(largest_magnitude(sixteen) / 31 * inverse(super_scale)), 0, 127);
    out[192 + group] = static_cast<std::byte>(scale);
    const float per_step = inverse(super_scale * static_cast<float>(scale));
    for (std::size_t i = 0; i < 16; ++i) {
      const int quant = round_within(sixteen[i] * per_step, -32, 31) + 32;
      const std::size_t element = group * 16 + i;
      const std::size_t half = element / 128, run = element % 128 / 32, place = element % 32;
      out[half * 64 + (run & 1) * 32 + place] |= static_cast<std::byte>((quant & 15) << (run < 2 ? 0 : 4));
      out[128 + half * 32 + place] |= static_cast<std::byte>((quant >> 4) << (2 * run));
    }
  }
}

}  // namespace

std::uint16_t f32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

void encode_row(TensorType type, std::span<const float> values, std::span<std::byte> out) {
  const TensorTypeInfo& info = tensor_type_info(type);
  LOCI_CHECK(values.size() % info.block_elements == 0, "a row is a whole number of blocks");
  const std::size_t blocks = values.size() / info.block_elements;
  LOCI_CHECK(out.size() == blocks * info.block_bytes, "room for exactly the encoded row");
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::span<const float> block = values.subspan(i * info.block_elements, info.block_elements);
    std::byte* to = out.data() + i * info.block_bytes;
    switch (type) {
      case TensorType::kF32: std::memcpy(to, block.data(), sizeof(float)); break;
      case TensorType::kF16: store_u16(to, f32_to_f16(block[0])); break;
      case TensorType::kBF16: store_u16(to, f32_to_bf16(block[0])); break;
      case TensorType::kQ8_0: encode_q8_0(block, to); break;
      case TensorType::kQ4_0: encode_q4_0(block, to); break;
      case TensorType::kQ4_1: encode_q4_1(block, to); break;
      case TensorType::kQ6_K: encode_q6_k(block, to); break;
    }
  }
}

}  // namespace loci
