// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of products: random tensors of every type, their values, and activations.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "loci/compute/cuda/check/device_testing.h"
#include "loci/compute/cuda/products/products.h"
#include "loci/model/quantize.h"
#include "loci/model/tensor.h"

namespace loci::cuda {

// A tensor that owns its bytes.
struct TestTensor {
  std::vector<std::byte> bytes;
  TensorView view;

  std::vector<float> row(std::uint64_t index) const {
    std::vector<float> values(view.columns);
    decode_row(view, index, values);
    return values;
  }
};

inline TestTensor random_tensor(const std::string& name, TensorType type, std::uint64_t rows,
                                std::uint64_t columns, std::uint32_t seed) {
  TestTensor tensor;
  tensor.view = {name, type, rows, columns, nullptr};
  tensor.bytes.resize(tensor.view.size_bytes());
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(columns);
  for (std::uint64_t row = 0; row < rows; ++row) {
    for (float& value : values) value = normal(random) * 0.2f;
    encode_row(type, values,
               std::span(tensor.bytes).subspan(row * tensor.view.row_bytes(), tensor.view.row_bytes()));
  }
  tensor.view.data = tensor.bytes.data();
  return tensor;
}

inline std::uint16_t element_bits(ElementType type, float value) {
  return type == ElementType::kHalf ? f32_to_f16(value) : f32_to_bf16(value);
}
inline float element_value(ElementType type, std::uint16_t bits) {
  return type == ElementType::kHalf ? f16_to_f32(bits) : bf16_to_f32(bits);
}
// The relative error of one rounding.
inline double element_step(ElementType type) { return type == ElementType::kHalf ? 0x1p-11 : 0x1p-8; }

inline std::vector<std::uint16_t> random_elements(ElementType type, std::uint64_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<std::uint16_t> bits(count);
  for (std::uint16_t& value : bits) value = element_bits(type, normal(random));
  return bits;
}

class ProductsTest : public DeviceTest {
 protected:
  std::unique_ptr<MatrixLoader> loader(ElementType type, std::uint64_t staging = std::uint64_t{4} << 20) {
    return std::move(MatrixLoader::make(device(), type, 2, staging)).value();
  }
  DeviceMatrix load(ElementType type, std::vector<TensorView> tensors, std::uint32_t experts = 1) {
    auto with = loader(type);
    Result<DeviceMatrix> matrix = with->load(tensors, experts);
    EXPECT_TRUE(matrix.ok()) << matrix.status().message();
    EXPECT_TRUE(with->finish().ok());
    return std::move(matrix).value();
  }
  std::unique_ptr<Products> products(ElementType type, bool deterministic, std::uint32_t rows_max = 256) {
    return std::move(Products::make(device(), type, deterministic, rows_max)).value();
  }
};

}  // namespace loci::cuda
