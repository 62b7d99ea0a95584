// SPDX-License-Identifier: Apache-2.0
// Products of packed weights: against float64, with a bound from the norms, and bit for bit on every
// instruction set and with any number of rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "loci/compute/cpu/activations.h"
#include "loci/compute/cpu/emulated_tiles_testing.h"
#include "loci/compute/cpu/values_testing.h"
#include "loci/model/tensor_block.h"

namespace loci::cpu {
namespace {

// [rows][groups * 16] of activations times matrix, computed in tiles of at most `tile_rows`.
std::vector<float> multiply(const KernelTable& kernels, const PackedMatrix& matrix,
                            const std::vector<float>& x, std::uint32_t rows) {
  Activations activations(matrix.columns, {matrix.quantized(), !matrix.quantized()});
  activations.resize(rows, kernels);
  for (std::uint32_t row = 0; row < rows; ++row)
    activations.set_row(kernels, row, x.data() + row * matrix.columns);
  const std::uint32_t width = matrix.groups * kLanes;
  std::vector<float> out(std::size_t{rows} * width);
  const TileLayout& layout = activations.layout();
  for (std::uint32_t tile = 0; tile < layout.tiles(); ++tile) {
    const std::uint32_t tile_rows = layout.size(tile);
    const std::uint8_t* data =
        matrix.quantized() ? activations.quantized_tile(tile) : activations.float_tile(tile);
    for (std::uint32_t group = 0; group < matrix.groups; ++group) {
      float product[kMaxTileRows * kLanes];
      kernels.product[static_cast<int>(matrix.type)][tile_rows - 1](matrix.group(group), data, matrix.steps,
                                                                    product);
      for (std::uint32_t row = 0; row < tile_rows; ++row) {
        std::copy_n(product + row * kLanes, kLanes,
                    out.data() + (layout.begin(tile) + row) * width + group * kLanes);
      }
    }
  }
  return out;
}

// What the product must be near to, with the activations as the kernel sees them, and the sum of
// magnitudes that rounding errors are relative to.
void check_row(const TensorView& tensor, const PackedMatrix& matrix, const float* x, const float* found) {
  std::vector<double> seen(x, x + tensor.columns);
  if (matrix.quantized()) {
    for (std::uint64_t block = 0; block < tensor.columns; block += 32) {
      float largest = 0;
      for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[block + i]));
      for (int i = 0; i < 32; ++i)
        seen[block + i] = std::nearbyint(x[block + i] * (127.0f / largest)) * (largest / 127.0f);
    }
  }
  std::vector<float> weights(tensor.columns);
  for (std::uint64_t output = 0; output < tensor.rows; ++output) {
    decode_row(tensor, output, weights);
    double exact = 0, magnitude = 0;
    for (std::uint64_t i = 0; i < tensor.columns; ++i) {
      exact += weights[i] * seen[i];
      magnitude += std::abs(weights[i] * seen[i]);
    }
    // Q4_1's products d * q and minima cancel: their magnitude is up to a few times the weights'.
    ASSERT_NEAR(found[output], exact,
                1e-6 * std::sqrt(static_cast<double>(tensor.columns)) * magnitude + 1e-7)
        << output;
  }
}

// The product as docs/numerics.md defines it, from the file's blocks: no packing, no lanes, no tiles.
float defined_product(const TensorView& tensor, std::uint64_t output, const float* x) {
  const TensorTypeInfo& info = tensor_type_info(tensor.type);
  const std::byte* from = tensor.row(output).data();
  float acc = 0;
  for (std::uint64_t start = 0; start < tensor.columns;
       start += info.block_elements, from += info.block_bytes) {
    QuantBlock parts;
    unpack_block(tensor.type, from, parts);
    for (std::uint32_t block = 0; block < info.block_elements; block += kQuantBlock) {
      float largest = 0;
      for (std::uint32_t i = 0; i < kQuantBlock; ++i)
        largest = std::max(largest, std::abs(x[start + block + i]));
      const float dx = largest / 127.0f;
      std::array<int, kQuantBlock> q;
      for (std::uint32_t i = 0; i < kQuantBlock; ++i) {
        q[i] = static_cast<int>(std::nearbyint(x[start + block + i] * (127.0f / largest)));
      }
      int sum = 0, minima = 0;
      for (std::uint32_t first = 0; first < kQuantBlock; first += parts.group) {
        const std::uint32_t group = (block + first) / parts.group;
        int dot = 0, part = 0;
        for (std::uint32_t i = first; i < first + parts.group; ++i) {
          dot += parts.values[block + i] * q[i];
          part += q[i];
        }
        const float d = parts.scale * static_cast<float>(parts.scales[group]);
        acc = std::fma(d * dx, static_cast<float>(dot), acc);
        sum += part;
        minima += parts.offsets[group] * part;
      }
      if (!parts.has_offset) continue;
      if (parts.group == kQuantBlock) {
        const float m = parts.offset * static_cast<float>(parts.offsets[block / kQuantBlock]);
        acc = std::fma(m, dx * static_cast<float>(sum), acc);
      } else {
        acc = std::fma(parts.offset * dx, static_cast<float>(minima), acc);
      }
    }
  }
  return acc;
}

struct NamedKernels {
  std::string name;
  const KernelTable* kernels;
};
std::vector<NamedKernels> all_kernels() {
  std::vector<NamedKernels> all = {{"emulated tiles", &emulated_tiles_kernels()}};
  for (const InstructionSet set : available_instruction_sets()) {
    all.push_back({std::string(instruction_set_name(set)), &kernels_of(set)});
  }
  return all;
}

struct Shape {
  TensorType type;
  std::uint32_t rows, columns;
};

class ProductTest : public testing::TestWithParam<Shape> {};

TEST_P(ProductTest, IsExactEnoughAndTheSameEverywhere) {
  const Shape shape = GetParam();
  Random random(shape.rows * 1000 + shape.columns);
  const TestMatrix matrix(shape.type, shape.rows, shape.columns, random);
  constexpr std::uint32_t kRows = 65;  // of wide tiles: 22, 22 and 21
  const std::vector<float> x = normal_values(random, std::size_t{kRows} * shape.columns);
  const std::uint32_t width = matrix.packed.groups * kLanes;

  // One row at a time by plain code is the definition.
  std::vector<float> expected;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const std::vector<float> one =
        multiply(plain_kernels(), matrix.packed,
                 {x.begin() + row * shape.columns, x.begin() + (row + 1) * shape.columns}, 1);
    check_row(matrix.view, matrix.packed, x.data() + row * shape.columns, one.data());
    for (std::uint32_t i = 0; matrix.packed.quantized() && i < shape.rows; ++i) {
      ASSERT_EQ(one[i], defined_product(matrix.view, i, x.data() + row * shape.columns)) << i;
    }
    for (std::uint32_t lane = shape.rows; lane < width; ++lane) ASSERT_EQ(one[lane], 0) << "padding";
    expected.insert(expected.end(), one.begin(), one.end());
  }
  for (const auto& [name, kernels] : all_kernels()) {
    for (std::uint32_t rows = 1; rows <= kRows; ++rows) {
      // Every size of a tile, narrow (up to 12) and wide (16 to 32), and a mixture.
      const bool wide = kernels->wide_tile_rows != 0 && (rows >= 31 && rows <= 35);
      if (rows > 13 && rows != 27 && rows != kRows && !wide) continue;
      const std::vector<float> first(x.begin(), x.begin() + rows * shape.columns);
      const std::vector<float> found = multiply(*kernels, matrix.packed, first, rows);
      ASSERT_TRUE(same_bits({expected.begin(), expected.begin() + rows * width}, found))
          << name << ", " << rows << " rows";
    }
  }
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  for (const TensorType type : all_tensor_types()) {
    const std::uint32_t block = tensor_type_info(type).block_elements;
    for (const std::uint32_t rows : {1u, 16u, 40u}) {
      for (const std::uint32_t blocks : {1u, 3u, 18u}) {
        all.push_back({type, rows,
                       block == 1                     ? 7 * blocks
                       : block == 256 && blocks == 18 ? 512
                                                      : block * blocks});
      }
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Shapes, ProductTest, testing::ValuesIn(shapes()), [](const auto& tested) {
  return std::string(tensor_type_info(tested.param.type).name) + "_" + std::to_string(tested.param.rows) +
         "_" + std::to_string(tested.param.columns);
});

// Where a block holds f16 scales, by type: all else may be any bytes.
std::vector<std::uint32_t> f16_offsets(TensorType type) {
  switch (type) {
    case TensorType::kQ2_K: return {80, 82};
    case TensorType::kQ3_K: return {108};
    case TensorType::kQ6_K: return {208};
    case TensorType::kQ4_1:
    case TensorType::kQ5_1:
    case TensorType::kQ4_K:
    case TensorType::kQ5_K: return {0, 2};
    case TensorType::kMXFP4: return {};
    default: return {0};
  }
}

// Blocks of arbitrary bytes, as far as scales stay finite, against what the definition says; among them the
// extremes of every type, with activations of +-127 throughout, which must not saturate.
TEST(ProductExtremesTest, AnyBytesGiveTheDefinedBits) {
  for (const TensorType type : all_tensor_types()) {
    const TensorTypeInfo& info = tensor_type_info(type);
    if (info.block_elements == 1) continue;
    Random random(1);
    for (const int pattern : {0x00, 0x7f, 0x80, 0xff, -1, -2}) {  // negative: random
      TestMatrix matrix(type, 16, 512, random);
      std::vector<float> x = normal_values(random, 512);
      for (std::size_t start = 0; start < matrix.bytes.size(); start += info.block_bytes) {
        std::byte* block = matrix.bytes.data() + start;
        std::vector<std::byte> old(block, block + info.block_bytes);
        for (std::uint32_t i = 0; i < info.block_bytes; ++i) {
          block[i] =
              static_cast<std::byte>(pattern < 0 ? random.next() : static_cast<std::uint64_t>(pattern));
        }
        for (const std::uint32_t at : f16_offsets(type)) std::copy_n(old.begin() + at, 2, block + at);
        if (type == TensorType::kMXFP4) block[0] = old[0];
      }
      pack_group(matrix.view, matrix.packed, 0);
      for (const float sign : {1.0f, -1.0f, 0.0f}) {
        if (sign != 0)
          std::fill(x.begin(), x.end(), sign);
        else
          x = normal_values(random, 512);
        const std::vector<float> expected = multiply(plain_kernels(), matrix.packed, x, 1);
        for (std::uint32_t i = 0; i < 16; ++i) {
          ASSERT_EQ(expected[i], defined_product(matrix.view, i, x.data())) << info.name << " " << pattern;
        }
        for (const InstructionSet set : available_instruction_sets()) {
          EXPECT_TRUE(same_bits(expected, multiply(kernels_of(set), matrix.packed, x, 1)))
              << info.name << " " << pattern << " " << instruction_set_name(set);
        }
      }
    }
  }
}

// Loading a model must not need much more memory than its file.
TEST(PackedSizeTest, IsNearTheFiles) {
  for (const TensorType type : all_tensor_types()) {
    const TensorView tensor{"t", type, 32, 1024, nullptr};
    const double ratio =
        static_cast<double>(describe_packed(tensor)->size_bytes()) / static_cast<double>(tensor.size_bytes());
    EXPECT_GE(ratio, 1.0) << tensor_type_info(type).name;
    EXPECT_LE(ratio, 1.06) << tensor_type_info(type).name;
  }
}

}  // namespace
}  // namespace loci::cpu
