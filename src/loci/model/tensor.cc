// SPDX-License-Identifier: Apache-2.0
#include "loci/model/tensor.h"

#include <bit>
#include <cstring>

#include "loci/base/check.h"
#include "loci/model/tensor_block.h"

namespace loci {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF tensors are read in place");

constexpr TensorTypeInfo kTypes[] = {
    {TensorType::kF32, "F32", 1, 4},           {TensorType::kF16, "F16", 1, 2},
    {TensorType::kBF16, "BF16", 1, 2},         {TensorType::kQ8_0, "Q8_0", 32, 34},
    {TensorType::kQ4_0, "Q4_0", 32, 18},       {TensorType::kQ4_1, "Q4_1", 32, 20},
    {TensorType::kQ5_0, "Q5_0", 32, 22},       {TensorType::kQ5_1, "Q5_1", 32, 24},
    {TensorType::kQ2_K, "Q2_K", 256, 84},      {TensorType::kQ3_K, "Q3_K", 256, 110},
    {TensorType::kQ4_K, "Q4_K", 256, 144},     {TensorType::kQ5_K, "Q5_K", 256, 176},
    {TensorType::kQ6_K, "Q6_K", 256, 210},     {TensorType::kIQ4_NL, "IQ4_NL", 32, 18},
    {TensorType::kIQ4_XS, "IQ4_XS", 256, 136}, {TensorType::kMXFP4, "MXFP4", 32, 17},
};

void decode_block(TensorType type, const std::byte* from, std::uint32_t elements, float* out) {
  QuantBlock block;
  unpack_block(type, from, block);
  for (std::uint32_t start = 0, g = 0; start < elements; start += block.group, ++g) {
    const float scale = block.scale * static_cast<float>(block.scales[g]);
    for (std::uint32_t i = start; i < start + block.group; ++i) {
      out[i] = scale * static_cast<float>(block.values[i]);
    }
    if (!block.has_offset) continue;
    const float offset = block.offset * static_cast<float>(block.offsets[g]);
    for (std::uint32_t i = start; i < start + block.group; ++i) out[i] += offset;
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
    default: break;
  }
  const TensorTypeInfo& info = tensor_type_info(tensor.type);
  const std::byte* from = row.data();
  for (std::uint64_t done = 0; done < tensor.columns; done += info.block_elements) {
    decode_block(tensor.type, from, info.block_elements, out.data() + done);
    from += info.block_bytes;
  }
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
