// SPDX-License-Identifier: Apache-2.0
// Loading of matrices to the device: bits are kept, errors name the tensor, layouts have no bank conflicts.
#include "loci/compute/cuda/products/matrix.h"

#include <gtest/gtest.h>

#include <set>

#include "loci/compute/cuda/products/many_rows.h"
#include "loci/compute/cuda/products/packed_layout.h"
#include "loci/compute/cuda/products/packing.h"
#include "loci/compute/cuda/products/products_testing.h"

namespace loci::cuda {
namespace {

constexpr TensorType kPackedTypes[] = {TensorType::kQ8_0, TensorType::kQ4_0,   TensorType::kQ4_1,
                                       TensorType::kQ5_0, TensorType::kIQ4_NL, TensorType::kQ4_K,
                                       TensorType::kQ6_K};

// Blocks of random bits, with scales that are finite.
TestTensor random_bits(TensorType type, std::uint64_t rows, std::uint64_t columns, std::uint32_t seed) {
  TestTensor tensor;
  tensor.view = {"random bits", type, rows, columns, nullptr};
  tensor.bytes.resize(tensor.view.size_bytes());
  std::mt19937 random(seed);
  for (std::byte& byte : tensor.bytes) byte = static_cast<std::byte>(random());
  const TensorTypeInfo& info = tensor_type_info(type);
  const std::uint32_t scale_at = type == TensorType::kQ6_K ? 208 : 0;
  const bool two = type == TensorType::kQ4_1 || type == TensorType::kQ4_K;
  for (std::size_t at = 0; at < tensor.bytes.size(); at += info.block_bytes) {
    for (std::uint32_t i = 0; i <= (two ? 1u : 0u); ++i) {
      const std::uint16_t scale =
          f32_to_f16(static_cast<float>(static_cast<int>(random() % 4001) - 2000) / 777.0f);
      std::memcpy(&tensor.bytes[at + scale_at + 2 * i], &scale, 2);
    }
  }
  tensor.view.data = tensor.bytes.data();
  return tensor;
}

class MatrixTest : public ProductsTest {};

TEST_F(MatrixTest, PackingKeepsEveryBit) {
  for (const TensorType type : kPackedTypes) {
    const std::uint32_t block = tensor_type_info(type).block_elements;
    for (const std::uint32_t columns : {block, 3 * block, 8 * block}) {
      const TestTensor tensor = random_bits(type, 37, columns, columns);
      // A staging of few tiles: several halves.
      auto with = loader(ElementType::kHalf, 2 * tile_bytes(format_of(type, ElementType::kHalf), columns));
      Result<DeviceMatrix> loaded = with->load(tensor.view);
      ASSERT_TRUE(loaded.ok() && with->finish().ok());
      const DeviceMatrix& matrix = loaded.value();
      ASSERT_EQ(matrix.parts.size(), 1u);
      const MatrixFormat format = matrix.parts[0].format;
      ASSERT_TRUE(is_packed(format));
      const std::vector<std::byte> bytes = download<std::byte>(matrix.data);
      const std::uint32_t width = unit_columns(format);
      const std::uint64_t tile = tile_bytes(format, columns);
      for (std::uint32_t row = 0; row < 48; ++row) {  // filled up with zeros
        const std::vector<float> wanted = row < 37 ? tensor.row(row) : std::vector<float>(columns, 0.0f);
        for (std::uint32_t c = 0; c < padded_columns(columns); ++c) {
          const std::byte* unit =
              bytes.data() + row / 16 * tile + std::uint64_t{c / width} * unit_bytes(format);
          const float value = packed_value(format, unit, row % 16, c % width);
          ASSERT_EQ(value, c < columns ? wanted[c] : 0.0f)
              << tensor_type_info(type).name << " row " << row << " column " << c;
        }
      }
    }
  }
}

// Each value, scale and minimum of a unit has a place of its own inside it.
TEST_F(MatrixTest, UnitsHoldEachValueOnce) {
  for (const MatrixFormat format :
       {MatrixFormat::kQ8_0, MatrixFormat::kQ4_0, MatrixFormat::kQ4_K, MatrixFormat::kQ6_K}) {
    std::set<std::uint32_t> bits;
    for (std::uint32_t row = 0; row < 16; ++row) {
      for (std::uint32_t c = 0; c < unit_columns(format); ++c) {
        const UnitPlace at(row, c);
        const std::uint32_t place = format == MatrixFormat::kQ8_0 ? (at.bytes_at() + at.i) * 8
                                                                  : at.nibbles_at() * 8 + at.nibble_shift();
        EXPECT_LT(place, kQuantBytes * 8);
        EXPECT_TRUE(bits.insert(place).second);
        if (format != MatrixFormat::kQ6_K) continue;
        const std::uint32_t pair = at.pairs_at() * 8 + at.pair_shift();
        EXPECT_GE(pair, kHighPairsAt * 8);
        EXPECT_LT(pair, kGroupScalesAt * 8);
        EXPECT_TRUE(bits.insert(pair).second);
      }
    }
  }
}

TEST_F(MatrixTest, OtherTypesAreElements) {
  for (const ElementType type : {ElementType::kHalf, ElementType::kBFloat16}) {
    for (const TensorType stored : {TensorType::kF32, TensorType::kF16, TensorType::kBF16, TensorType::kQ5_1,
                                    TensorType::kQ2_K, TensorType::kMXFP4}) {
      const TestTensor tensor = random_tensor("w", stored, 5, 512, 3);
      const DeviceMatrix matrix = load(type, {tensor.view});
      const std::vector<std::uint16_t> bits = download<std::uint16_t>(matrix.data);
      for (std::uint32_t row = 0; row < 5; ++row) {
        const std::vector<float> wanted = tensor.row(row);
        for (std::uint32_t c = 0; c < 512; ++c) ASSERT_EQ(bits[row * 512 + c], element_bits(type, wanted[c]));
      }
    }
  }
}

TEST_F(MatrixTest, ErrorsNameTheTensor) {
  const auto message = [&](std::vector<TestTensor> tensors, std::uint32_t experts) {
    std::vector<TensorView> views;
    for (const TestTensor& tensor : tensors) views.push_back(tensor.view);
    return loader(ElementType::kHalf)->load(views, experts).status();
  };
  const Status narrow = message({random_tensor("layer 3 key", TensorType::kF16, 4, 12, 1)}, 1);
  EXPECT_EQ(narrow.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(narrow.message().find("layer 3 key"), std::string::npos);
  const Status unlike = message({random_tensor("query", TensorType::kF16, 4, 16, 1),
                                 random_tensor("value", TensorType::kF16, 4, 32, 1)},
                                1);
  EXPECT_NE(unlike.message().find("value"), std::string::npos);
  const Status experts = message({random_tensor("experts' gate", TensorType::kQ4_0, 24, 32, 1)}, 2);
  EXPECT_NE(experts.message().find("experts' gate"), std::string::npos);
  EXPECT_TRUE(message({random_tensor("gate", TensorType::kF16, 24, 32, 1)}, 2).ok());
  Result<DeviceMatrix> wide =
      loader(ElementType::kHalf, 1024)->load(random_tensor("wide", TensorType::kF16, 1, 1024, 1).view);
  EXPECT_EQ(wide.status().code(), StatusCode::kResourceExhausted);
}

TEST_F(MatrixTest, ElementTypeFollowsTheWeights) {
  ModelSpec spec;
  spec.layers.resize(2);
  const TestTensor quantised = random_tensor("q", TensorType::kQ4_K, 1, 256, 1);
  const TestTensor half = random_tensor("h", TensorType::kF16, 1, 256, 1);
  const TestTensor wide = random_tensor("b", TensorType::kBF16, 1, 256, 1);
  spec.layers[0].query = quantised.view;
  spec.layers[1].ffn.down = half.view;
  EXPECT_EQ(best_element_type(spec), ElementType::kHalf);
  spec.layers[1].ffn.up = wide.view;
  EXPECT_EQ(best_element_type(spec), ElementType::kBFloat16);
}

// Groups of 8 lanes share a transfer of 128 bytes: of 16 bytes each they must touch all 32 banks.
TEST_F(MatrixTest, PanelsHaveNoBankConflicts) {
  const auto banks_of = [](const std::vector<std::uint32_t>& places) {
    std::set<std::uint32_t> banks;
    for (const std::uint32_t place : places) banks.insert(place / 16 % 8);
    return banks.size();
  };
  for (const std::uint32_t rows : {16u, 64u, 128u}) {
    for (std::uint32_t lane = 0; lane < 32; lane += 8) {
      for (std::uint32_t block = 0; block < 4; ++block) {  // as fragments are read
        std::vector<std::uint32_t> places;
        for (std::uint32_t l = lane; l < lane + 8; ++l)
          places.push_back(panel_place(rows, l / 4, block * 4 + l % 4));
        EXPECT_EQ(banks_of(places), 8u);
      }
      for (const std::uint32_t chunks : {8u, 16u}) {  // as copies write: of units of 64 and 128 columns
        std::vector<std::uint32_t> places;
        for (std::uint32_t l = lane; l < lane + 8; ++l)
          places.push_back(panel_place(rows, l / chunks, l % chunks));
        EXPECT_EQ(banks_of(places), 8u);
      }
    }
  }
  // Sums on their way out: 32 lanes of 4 bytes.
  std::set<std::uint32_t> banks;
  for (std::uint32_t lane = 0; lane < 32; ++lane) {
    banks.insert((2 * (lane % 4) * ManyRowsShape<MatrixFormat::kHalf, 64>::kSumStride + lane / 4) % 32);
  }
  EXPECT_EQ(banks.size(), 32u);
}

}  // namespace
}  // namespace loci::cuda
