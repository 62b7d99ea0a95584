// SPDX-License-Identifier: Apache-2.0
// Tensors in a model's file: a type, a shape, a view of the bytes. Nothing is copied.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace loci {

// How the elements of a row are encoded. The numbers are GGUF's (ggml_type); tensor_block.h has the
// layouts.
enum class TensorType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kIQ4_XS = 23,
  kBF16 = 30,
  kMXFP4 = 39,
};

struct TensorTypeInfo {
  TensorType type;
  std::string_view name;
  std::uint32_t block_elements;  // elements that are encoded together
  std::uint32_t block_bytes;
};

// nullptr for a type that Loci does not know.
const TensorTypeInfo* find_tensor_type(std::uint32_t number);
const TensorTypeInfo& tensor_type_info(TensorType type);
std::span<const TensorTypeInfo> supported_tensor_types();

// A matrix [rows, columns], row-major, each row a whole number of blocks; a vector is [1, columns]. The bytes
// belong to the mapped file, which must outlive the view.
struct TensorView {
  std::string name;
  TensorType type = TensorType::kF32;
  std::uint64_t rows = 0;
  std::uint64_t columns = 0;
  const std::byte* data = nullptr;

  bool present() const { return data != nullptr; }
  std::uint64_t row_bytes() const;
  std::uint64_t size_bytes() const { return rows * row_bytes(); }
  std::span<const std::byte> row(std::uint64_t index) const;
};

// Decodes row `index` of `tensor` exactly into float32 (every supported type's values are exact in
// float32 or are products that GGUF defines in float32). `out` holds tensor.columns floats.
void decode_row(const TensorView& tensor, std::uint64_t index, std::span<float> out);

float f16_to_f32(std::uint16_t bits);
float bf16_to_f32(std::uint16_t bits);
std::uint16_t f32_to_f16(float value);  // round to nearest even

}  // namespace loci
