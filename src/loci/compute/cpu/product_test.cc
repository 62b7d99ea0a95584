// Products of packed weights: against float64, with a bound from the norms, and bit for bit on every
// instruction set and with any number of rows.
#include <gtest/gtest.h>

#include <cmath>

#include "loci/compute/cpu/activations.h"
#include "loci/compute/cpu/test_values.h"

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

struct Shape {
  TensorType type;
  std::uint32_t rows, columns;
};

class ProductTest : public testing::TestWithParam<Shape> {};

TEST_P(ProductTest, IsExactEnoughAndTheSameEverywhere) {
  const Shape shape = GetParam();
  Random random(shape.rows * 1000 + shape.columns);
  const TestMatrix matrix(shape.type, shape.rows, shape.columns, random);
  constexpr std::uint32_t kRows = 27;
  const std::vector<float> x = normal_values(random, std::size_t{kRows} * shape.columns);
  const std::uint32_t width = matrix.packed.groups * kLanes;

  // One row at a time by plain code is the definition.
  std::vector<float> expected;
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const std::vector<float> one =
        multiply(plain_kernels(), matrix.packed,
                 {x.begin() + row * shape.columns, x.begin() + (row + 1) * shape.columns}, 1);
    check_row(matrix.view, matrix.packed, x.data() + row * shape.columns, one.data());
    for (std::uint32_t lane = shape.rows; lane < width; ++lane) ASSERT_EQ(one[lane], 0) << "padding";
    expected.insert(expected.end(), one.begin(), one.end());
  }
  for (const InstructionSet set : available_instruction_sets()) {
    for (std::uint32_t rows = 1; rows <= kRows; ++rows) {
      const std::vector<float> first(x.begin(), x.begin() + rows * shape.columns);
      const std::vector<float> found = multiply(kernels_of(set), matrix.packed, first, rows);
      ASSERT_TRUE(same_bits({expected.begin(), expected.begin() + rows * width}, found))
          << instruction_set_name(set) << ", " << rows << " rows";
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

// The extremes of every type: the largest bytes and nibbles against activations of +-127 throughout.
TEST(ProductExtremesTest, NoSumSaturates) {
  for (const TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0, TensorType::kQ6_K}) {
    for (const int pattern : {0x00, 0x7f, 0x80, 0xff}) {
      const TensorTypeInfo& info = tensor_type_info(type);
      Random random(1);
      TestMatrix matrix(type, 16, 256, random);
      const std::size_t row_bytes = matrix.view.row_bytes();
      for (std::size_t i = 0; i < matrix.bytes.size(); ++i) {
        const std::size_t at = i % row_bytes % info.block_bytes;
        const bool scale = type == TensorType::kQ6_K ? at >= 208 : at < (type == TensorType::kQ4_1 ? 4u : 2u);
        if (!scale) matrix.bytes[i] = static_cast<std::byte>(pattern);
      }
      pack_group(matrix.view, matrix.packed, 0);
      for (const float sign : {1.0f, -1.0f}) {
        const std::vector<float> x(256, sign);
        const std::vector<float> expected = multiply(plain_kernels(), matrix.packed, x, 1);
        check_row(matrix.view, matrix.packed, x.data(), expected.data());
        for (const InstructionSet set : available_instruction_sets()) {
          EXPECT_TRUE(same_bits(expected, multiply(kernels_of(set), matrix.packed, x, 1)))
              << info.name << " " << pattern << " " << instruction_set_name(set);
        }
      }
    }
  }
}

}  // namespace
}  // namespace loci::cpu
