// SPDX-License-Identifier: Apache-2.0
// Hopper's asynchronous units: a tile comes by the copy engine, and each form of a warpgroup's product that
// kernels use, with each layout of its operands, gives what plain arithmetic gives. On the simulated device,
// mistakes in their order show.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "loci/compute/cuda/check/device_testing.h"
#include "loci/compute/cuda/simt_warpgroup_testing.h"

namespace loci::cuda {
namespace {

class WarpgroupTest : public DeviceTest {
 protected:
  bool there() const { return device().properties().capability == 90; }

  // Small integers, which both types and float32 sums hold exactly.
  static std::uint16_t bits_of(int value, ElementType type) {
    const auto as_float = static_cast<float>(value);
    std::uint32_t wide;
    std::memcpy(&wide, &as_float, 4);
    if (type == ElementType::kBFloat16) return static_cast<std::uint16_t>(wide >> 16);
    const auto half = static_cast<_Float16>(as_float);
    std::uint16_t bits;
    std::memcpy(&bits, &half, 2);
    return bits;
  }

  // How many of the product's elements are wrong.
  std::uint32_t wrong(WarpgroupForm form, ElementType type, WarpgroupFault fault = WarpgroupFault::kNone) {
    const bool by_rows = form == WarpgroupForm::kByRows64 || form == WarpgroupForm::kByRows128;
    const bool transposed = by_rows || form == WarpgroupForm::kShared;  // b has a row for each column of c
    const std::uint32_t rows = form == WarpgroupForm::kShared || form == WarpgroupForm::kByRows128 ? 128 : 64,
                        columns = form == WarpgroupForm::kRegisters128 ? 128 : 64,
                        width = transposed ? rows : columns;  // of c
    std::mt19937 random(7);
    const auto draw = [&](std::uint32_t count) {
      std::vector<int> values(count);
      for (int& value : values) value = static_cast<int>(random() % 17) - 8;
      return values;
    };
    // The map's alternatives: what is not b is nonsense.
    const std::vector<int> a = draw(64 * 64), b = draw(3 * rows * columns);
    const auto put = [&](const std::vector<int>& values) {
      std::vector<std::uint16_t> bits;
      for (const int value : values) bits.push_back(bits_of(value, type));
      return upload(bits);
    };
    const Memory device_a = put(a), device_b = put(b), device_c = filled(64 * width * 4);
    WarpgroupTestParams params{.map = {},
                               .a = device_a.data(),
                               .b = device_b.as<std::uint16_t>() + rows * columns,
                               .c = device_c.as<float>(),
                               .fault = fault};
    EXPECT_TRUE(make_tile_map({.base = device_b.data(),
                               .size = {columns, rows, 3},
                               .stride_bytes = {columns * 2, std::uint64_t{rows} * columns * 2},
                               .box_rows = rows},
                              params.map));
    launch_warpgroup_product(params, form, type, stream());
    const std::vector<float> c = download<float>(device_c);
    const int* mine = b.data() + rows * columns;
    std::uint32_t count = 0;
    for (std::uint32_t row = 0; row < 64; ++row) {
      for (std::uint32_t column = 0; column < width; ++column) {
        int expected = 0;
        for (std::uint32_t k = 0; k < 64; ++k) {
          expected += a[row * 64 + k] * (transposed ? mine[column * 64 + k] : mine[k * columns + column]);
        }
        const float found = c[row * width + column];
        if (found == static_cast<float>(expected)) continue;
        if (++count == 1 && fault == WarpgroupFault::kNone) {
          ADD_FAILURE() << "form " << static_cast<int>(form) << " row " << row << " column " << column
                        << ": expected " << expected << ", found " << found;
        }
      }
    }
    return count;
  }
};

TEST_F(WarpgroupTest, EveryFormOfProduct) {
  if (!there()) GTEST_SKIP() << "no Hopper";
  for (const ElementType type : {ElementType::kHalf, ElementType::kBFloat16}) {
    for (const WarpgroupForm form :
         {WarpgroupForm::kShared, WarpgroupForm::kRegisters64, WarpgroupForm::kRegisters128,
          WarpgroupForm::kByRows64, WarpgroupForm::kByRows128}) {
      EXPECT_EQ(wrong(form, type), 0u) << "form " << static_cast<int>(form);
    }
  }
}

TEST_F(WarpgroupTest, TheSimulatedDeviceFindsMistakes) {
  if (!simulated()) GTEST_SKIP() << "on hardware a mistake may go unseen";
  const auto found = [&](WarpgroupFault fault) {
    std::uint32_t count = 0;
    for (int i = 0; i < 8; ++i) count += wrong(WarpgroupForm::kShared, ElementType::kHalf, fault);
    return count;
  };
  EXPECT_GT(found(WarpgroupFault::kNoPublish), 0u);
  EXPECT_GT(found(WarpgroupFault::kNoWait), 0u);
  EXPECT_GT(found(WarpgroupFault::kEarlyReuse), 0u);
  EXPECT_GT(found(WarpgroupFault::kEarlyTile), 0u);
  EXPECT_DEATH(found(WarpgroupFault::kNoFence), "begin_products");
  EXPECT_DEATH(wrong(WarpgroupForm::kByRows64, ElementType::kHalf, WarpgroupFault::kNoPublish),
               "operands were published");
}

}  // namespace
}  // namespace loci::cuda
