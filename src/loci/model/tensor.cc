#include "loci/model/tensor.h"

#include <bit>
#include <cstring>

#include "loci/base/check.h"

namespace loci {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF tensors are read in place");

constexpr TensorTypeInfo kTypes[] = {
    {TensorType::kF32, "F32", 1, 4},       {TensorType::kF16, "F16", 1, 2},
    {TensorType::kBF16, "BF16", 1, 2},     {TensorType::kQ8_0, "Q8_0", 32, 34},
    {TensorType::kQ4_0, "Q4_0", 32, 18},   {TensorType::kQ4_1, "Q4_1", 32, 20},
    {TensorType::kQ6_K, "Q6_K", 256, 210},
};

std::uint16_t load_u16(const std::byte* from) {
  std::uint16_t value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

int u8_at(const std::byte* from, int index) { return std::to_integer<int>(from[index]); }
int i8_at(const std::byte* from, int index) {
  return static_cast<std::int8_t>(std::to_integer<std::uint8_t>(from[index]));
}

// f16 d, then 32 int8: x = q d.
void decode_q8_0(const std::byte* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(i8_at(block + 2, i)) * scale;
}

// f16 d, then 16 bytes: low nibbles are elements 0-15, high ones 16-31; x = (q - 8) d.
void decode_q4_0(const std::byte* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  for (int i = 0; i < 16; ++i) {
    const int pair = u8_at(block + 2, i);
    out[i] = static_cast<float>((pair & 15) - 8) * scale;
    out[i + 16] = static_cast<float>((pair >> 4) - 8) * scale;
  }
}

// f16 d, f16 m, then nibbles as in Q4_0: x = q d + m. The product is exact in float32 (4 + 11 bits), so
// fusing the addition would give the same bits.
void decode_q4_1(const std::byte* block, float* out) {
  const float scale = f16_to_f32(load_u16(block));
  const float minimum = f16_to_f32(load_u16(block + 2));
  for (int i = 0; i < 16; ++i) {
    const int pair = u8_at(block + 4, i);
    out[i] = static_cast<float>(pair & 15) * scale + minimum;
    out[i + 16] = static_cast<float>(pair >> 4) * scale + minimum;
  }
}

// 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 int8 scales (one for 16 elements), f16 d:
// x = (d * scale) * (q - 32), in this order. Each half of 128 elements is four runs of 32 that share
// the bytes: runs 0 and 1 in the low nibbles of 32 bytes each, runs 2 and 3 in their high nibbles, the
// bit pairs of all four in one byte, run 0 lowest.
void decode_q6_k(const std::byte* block, float* out) {
  const float super_scale = f16_to_f32(load_u16(block + 208));
  for (int half = 0; half < 2; ++half) {
    const std::byte* low = block + half * 64;
    const std::byte* high = block + 128 + half * 32;
    const std::byte* scales = block + 192 + half * 8;
    for (int run = 0; run < 4; ++run) {
      for (int i = 0; i < 32; ++i) {
        const int nibble = (u8_at(low, (run & 1) * 32 + i) >> (run < 2 ? 0 : 4)) & 15;
        const int q = (nibble | ((u8_at(high, i) >> (2 * run)) & 3) << 4) - 32;
        const float scale = super_scale * static_cast<float>(i8_at(scales, run * 2 + i / 16));
        out[half * 128 + run * 32 + i] = scale * static_cast<float>(q);
      }
    }
  }
}

using DecodeBlock = void (*)(const std::byte*, float*);

void decode_blocks(const TensorView& tensor, const std::byte* from, float* out, DecodeBlock decode) {
  const TensorTypeInfo& info = tensor_type_info(tensor.type);
  for (std::uint64_t done = 0; done < tensor.columns; done += info.block_elements) {
    decode(from, out + done);
    from += info.block_bytes;
  }
}

}  // namespace

const TensorTypeInfo* find_tensor_type(std::uint32_t number) {
  for (const TensorTypeInfo& info : kTypes) {
    if (static_cast<std::uint32_t>(info.type) == number) return &info;
  }
  return nullptr;
}

const TensorTypeInfo& tensor_type_info(TensorType type) {
  const TensorTypeInfo* info = find_tensor_type(static_cast<std::uint32_t>(type));
  LOCI_CHECK(info != nullptr, "a TensorType outside its enumeration");
  return *info;
}

std::span<const TensorTypeInfo> supported_tensor_types() { return kTypes; }

std::uint64_t TensorView::row_bytes() const {
  const TensorTypeInfo& info = tensor_type_info(type);
  return columns / info.block_elements * info.block_bytes;
}

std::span<const std::byte> TensorView::row(std::uint64_t index) const {
  LOCI_CHECK(present() && index < rows, "row outside the tensor");
  return {data + index * row_bytes(), row_bytes()};
}

void decode_row(const TensorView& tensor, std::uint64_t index, std::span<float> out) {
  LOCI_CHECK(out.size() == tensor.columns, "decode_row needs one float for each column");
  const std::span<const std::byte> row = tensor.row(index);
  switch (tensor.type) {
    case TensorType::kF32: std::memcpy(out.data(), row.data(), row.size()); return;
    case TensorType::kF16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = f16_to_f32(load_u16(&row[2 * i]));
      return;
    case TensorType::kBF16:
      for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_f32(load_u16(&row[2 * i]));
      return;
    case TensorType::kQ8_0: decode_blocks(tensor, row.data(), out.data(), decode_q8_0); return;
    case TensorType::kQ4_0: decode_blocks(tensor, row.data(), out.data(), decode_q4_0); return;
    case TensorType::kQ4_1: decode_blocks(tensor, row.data(), out.data(), decode_q4_1); return;
    case TensorType::kQ6_K: decode_blocks(tensor, row.data(), out.data(), decode_q6_k); return;
  }
  LOCI_CHECK(false, "a TensorType outside its enumeration");
}

float f16_to_f32(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in float32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
  const std::uint32_t wide = exponent == 31 ? 0xffu : exponent + (127 - 15);
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

float bf16_to_f32(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

std::uint16_t f32_to_f16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {  // NaN: keep the payload's upper bits, stay a NaN
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  }
  if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    return static_cast<std::uint16_t>(sign | 0x7c00u);
  }
  if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24
    // Adding 0.5 makes float32's last place 2^-24, so that the addition itself rounds to even.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  const std::uint32_t rounded = magnitude - ((127u - 15u) << 23) + 0xfffu + odd;
  return static_cast<std::uint16_t>(sign | rounded >> 13);
}

}  // namespace loci
