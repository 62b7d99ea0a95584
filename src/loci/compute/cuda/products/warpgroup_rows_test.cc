// SPDX-License-Identifier: Apache-2.0
// Hopper's own kernel of packed weights (warpgroup_rows.h), where the order of sums is free.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "loci/compute/cuda/products/multiply_testing.h"

namespace loci::cuda {
namespace {

class WarpgroupRowsTest : public MultiplyTest {
 protected:
  void SetUp() override {
    MultiplyTest::SetUp();
    if (device().properties().capability != 90) GTEST_SKIP() << "it has no warpgroups";
  }
};

// A block has many more units of columns than its ring has stages, so each stage is filled several times.
TEST_F(WarpgroupRowsTest, GoRoundTheirRing) {
  const std::uint32_t columns = 18 * 128, outputs = 20, rows = 32;
  for (const Case& c : kCases) {
    if (tensor_type_info(c.stored).block_elements == 1) continue;
    SCOPED_TRACE(name_of(c));
    const TestTensor tensor = random_tensor("w", c.stored, outputs, columns, 5);
    const DeviceMatrix matrix = load(c.type, {tensor.view});
    const std::vector<std::uint16_t> values = random_elements(c.type, std::uint64_t{rows} * columns, 9);
    const Memory input = upload(values), arranged = filled(arranged_bytes(columns, 128));
    const MatrixPart& part = matrix.parts[0];
    ProductParams p = floats_of(matrix, columns, outputs, rows);
    p.segments = 1;
    p.input = input.data();
    p.arranged = arranged.data();
    p.tiles = 1;
    const ProductLaunchers& launchers = product_launchers(part.format, c.type);
    const auto with = products(c.type, true);
    const Outcome right = run(*with, matrix, values, columns, rows, ProductOutput::kFloats, nullptr);
    expect_near(right, tensor, 0, c.type, values, columns, {}, 0, rows);
    for (const auto launcher : {launchers.warpgroup64, launchers.warpgroup128}) {
      if (launcher == nullptr) continue;
      const Memory output = filled(std::uint64_t{rows} * outputs * 4);
      p.output = output.data();
      launcher(p, stream());
      const std::vector<float> result = download<float>(output);
      for (std::uint32_t i = 0; i < rows * outputs; ++i)
        ASSERT_NEAR(result[i], right.value(c.type, i / outputs, i % outputs), 5e-3) << i;
    }
  }
}

// Ragged tiles, one segment and
// several, spread over blocks and not, and the same bits each time.
TEST_F(WarpgroupRowsTest, AgreeWithFloat64) {
  std::mt19937 random(3);
  for (const Case& c : kCases) {
    if (tensor_type_info(c.stored).block_elements == 1) continue;
    SCOPED_TRACE(name_of(c));
    const auto with = products(c.type, false, 255);
    for (const std::uint32_t rows : {33u, 64u, 100u, 130u}) {
      // 17,000 outputs are as many tiles as no device has multiprocessors.
      const std::uint32_t columns = 256 * (1 + random() % (simulated() || rows == 64 ? 3 : 8));
      const std::uint32_t outputs = simulated()  ? 1 + random() % 150
                                    : rows == 64 ? 17000 + random() % 1000
                                                 : 1 + random() % 3000;
      SCOPED_TRACE(std::to_string(rows) + " rows, " + std::to_string(columns) + " columns, " +
                   std::to_string(outputs) + " outputs");
      const TestTensor tensor = random_tensor("w", c.stored, outputs, columns, rows);
      const DeviceMatrix matrix = load(c.type, {tensor.view});
      const std::vector<std::uint16_t> input =
          random_elements(c.type, std::uint64_t{rows} * columns, rows + 1);
      const Outcome result = run(*with, matrix, input, columns, rows, ProductOutput::kFloats, nullptr);
      for (const std::uint32_t row : {0u, 7u, 30u, rows - 2}) {
        expect_near(result, tensor, 0, c.type, input, columns, {}, row, row + 2);
      }
      result.expect_margin();
      const Outcome again = run(*with, matrix, input, columns, rows, ProductOutput::kFloats, nullptr);
      ASSERT_EQ(std::memcmp(result.floats.data(), again.floats.data(), result.floats.size() * 4), 0);
    }
  }
}

// An expert's tiles begin where its rows do, and most are ragged. Its rows are compared at both ends and at
// the seams of tiles.
TEST_F(WarpgroupRowsTest, ExpertsAgreeWithFloat64) {
  const std::uint32_t columns = simulated() ? 512 : 1024, outputs = simulated() ? 48 : 1008;
  for (const Case& c : kCases) {
    if (tensor_type_info(c.stored).block_elements == 1) continue;
    SCOPED_TRACE(name_of(c));
    // 60 rows on average, and 71: tiles of 64 and of 128.
    for (const std::vector<std::uint32_t>& counts :
         {std::vector<std::uint32_t>{200, 0, 33, 0, 70}, {1, 130, 0, 200, 24}}) {
      const auto experts = static_cast<std::uint32_t>(counts.size());
      const TestTensor tensor = random_tensor("w", c.stored, std::uint64_t{experts} * outputs, columns, 1);
      const DeviceMatrix matrix = load(c.type, {tensor.view}, experts);
      const std::vector<std::uint32_t> offsets = offsets_of(counts);
      const std::uint32_t rows = offsets.back();
      const std::vector<float> bias = bias_of(matrix);
      const Memory device_bias = upload(bias), device_offsets = upload(offsets);
      const std::vector<std::uint16_t> input = random_elements(c.type, std::uint64_t{rows} * columns, 3);
      const Outcome result =
          run(*products(c.type, false, rows), matrix, input, columns, rows, ProductOutput::kFloats,
              device_bias.as<float>(), device_offsets.as<std::uint32_t>());
      result.expect_margin();
      for (std::uint32_t e = 0; e < experts; ++e) {
        for (const std::uint32_t at : {0u, 63u, 64u, 127u, 128u, counts[e] - 1}) {
          if (at >= counts[e]) continue;
          const std::uint32_t row = offsets[e] + at;
          expect_near(result, tensor, std::uint64_t{e} * outputs, c.type, input, columns, bias, row, row + 1);
        }
      }
    }
  }
}

}  // namespace
}  // namespace loci::cuda
