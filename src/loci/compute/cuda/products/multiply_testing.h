// SPDX-License-Identifier: Apache-2.0
// Shared by the tests that multiply: the types of weights, a product with the margin around it, and the
// comparison with float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loci/compute/cuda/products/product_kernels.h"
#include "loci/compute/cuda/products/products_testing.h"

namespace loci::cuda {

struct Case {
  TensorType stored;
  ElementType type;
};
inline constexpr Case kCases[] = {
    {TensorType::kF16, ElementType::kHalf},      {TensorType::kBF16, ElementType::kBFloat16},
    {TensorType::kQ8_0, ElementType::kHalf},     {TensorType::kQ4_0, ElementType::kHalf},
    {TensorType::kQ4_1, ElementType::kHalf},     {TensorType::kQ4_K, ElementType::kHalf},
    {TensorType::kQ6_K, ElementType::kHalf},     {TensorType::kQ8_0, ElementType::kBFloat16},
    {TensorType::kQ4_1, ElementType::kBFloat16}, {TensorType::kQ6_K, ElementType::kBFloat16},
};
inline std::string name_of(const Case& c) {
  return std::string(tensor_type_info(c.stored).name) + (c.type == ElementType::kHalf ? " f16" : " bf16");
}

// One product and where it went, with a margin around it that must stay as it was.
struct Outcome {
  ProductOutput mode = ProductOutput::kElements;
  std::uint32_t rows = 0, outputs = 0, stride = 0;
  std::vector<std::uint16_t> elements;
  std::vector<float> floats;

  std::uint32_t bits(std::uint32_t row, std::uint32_t o) const {
    const std::uint64_t at = std::uint64_t{row} * stride + o;
    return mode == ProductOutput::kElements ? elements[at] : std::bit_cast<std::uint32_t>(floats[at]);
  }
  double value(ElementType type, std::uint32_t row, std::uint32_t o) const {
    const std::uint64_t at = std::uint64_t{row} * stride + o;
    return mode == ProductOutput::kElements ? element_value(type, elements[at]) : floats[at];
  }
  void expect_margin() const {
    for (std::uint32_t row = 0; row <= rows; ++row) {
      for (std::uint32_t o = row < rows ? outputs : 0; o < stride; ++o) {
        ASSERT_EQ(bits(row, o), mode == ProductOutput::kElements ? 0xffffu : 0xffffffffu) << row << " " << o;
      }
    }
  }
};

class MultiplyTest : public ProductsTest {
 protected:
  // `input`: [rows][input_stride]; what is added to is 1000 + o. One row of margin follows the last.
  Outcome run(Products& products, const DeviceMatrix& matrix, const std::vector<std::uint16_t>& input,
              std::uint32_t input_stride, std::uint32_t rows, ProductOutput mode, const float* bias,
              const std::uint32_t* offsets = nullptr) {
    Outcome result;
    result.mode = mode;
    result.rows = rows;
    result.outputs = matrix.outputs();
    result.stride = result.outputs + 5;
    const std::uint64_t count = std::uint64_t{rows + 1} * result.stride;
    const Memory from = upload(input);
    Memory to = filled(count * (mode == ProductOutput::kElements ? 2 : 4));
    if (mode == ProductOutput::kAdded) {
      std::vector<float> before = download<float>(to);
      for (std::uint32_t row = 0; row < rows; ++row) {
        for (std::uint32_t o = 0; o < result.outputs; ++o) before[row * result.stride + o] = 1000.0f + o;
      }
      to = upload(before);
    }
    const ProductArguments arguments{&matrix,   from.data(),   input_stride, rows,
                                     to.data(), result.stride, mode,         bias};
    if (offsets == nullptr) {
      products.multiply(arguments, stream());
    } else {
      products.multiply_experts(arguments, offsets, matrix.experts, stream());
    }
    if (mode == ProductOutput::kElements) {
      result.elements = download<std::uint16_t>(to);
    } else {
      result.floats = download<float>(to);
    }
    return result;
  }

  // Compares with sums in float64 of decoded weights. An error of each weight and of the result is one
  // rounding or two, independent of each other: their sum grows as norms do.
  static void expect_near(const Outcome& run, const TestTensor& tensor, std::uint64_t first_row,
                          ElementType type, const std::vector<std::uint16_t>& input,
                          std::uint32_t input_stride, const std::vector<float>& bias, std::uint32_t row_begin,
                          std::uint32_t row_end) {
    for (std::uint32_t o = 0; o < run.outputs; ++o) {
      const std::vector<float> weights = tensor.row(first_row + o);
      double largest = 0;
      for (const float weight : weights) largest = std::max(largest, std::abs(double{weight}));
      for (std::uint32_t row = row_begin; row < row_end; ++row) {
        double sum = 0, norm = 0;
        for (std::size_t i = 0; i < weights.size(); ++i) {
          const double x = element_value(type, input[std::uint64_t{row} * input_stride + i]);
          sum += x * weights[i];
          norm += x * x;
        }
        if (!bias.empty()) sum += bias[first_row + o];
        if (run.mode == ProductOutput::kAdded) sum += 1000.0 + o;
        const double step = element_step(type);
        double tolerance = 4 * step * largest * std::sqrt(norm) + 1e-6;
        if (run.mode == ProductOutput::kElements) tolerance += step * std::abs(sum);
        if (run.mode == ProductOutput::kAdded) tolerance += 3e-4;
        ASSERT_NEAR(run.value(type, row, o), sum, tolerance) << "row " << row << " output " << o;
      }
    }
  }
};

// Of a mixture whose experts have so many rows: where each one's begin, and where the last one's end.
inline std::vector<std::uint32_t> offsets_of(const std::vector<std::uint32_t>& counts) {
  std::vector<std::uint32_t> offsets = {0};
  for (const std::uint32_t count : counts) offsets.push_back(offsets.back() + count);
  return offsets;
}

// One for each output, unlike its neighbours'.
inline std::vector<float> bias_of(const DeviceMatrix& matrix) {
  std::vector<float> bias;
  for (std::uint32_t o = 0; o < matrix.rows; ++o) bias.push_back(static_cast<float>(o % 71));
  return bias;
}

// For a launcher that is called as it is: rows that lie one after the other, times a matrix of one part.
inline ProductParams floats_of(const DeviceMatrix& matrix, std::uint32_t columns, std::uint32_t outputs,
                               std::uint32_t rows) {
  ProductParams p;
  p.weights = matrix.data.data();
  p.tile_bytes = matrix.parts[0].data_bytes / ((outputs + 15) / 16);
  p.outputs = p.output_stride = outputs;
  p.columns = p.input_stride = columns;
  p.rows = rows;
  p.mode = ProductOutput::kFloats;
  return p;
}

}  // namespace loci::cuda
