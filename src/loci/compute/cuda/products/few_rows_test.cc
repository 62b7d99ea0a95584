// SPDX-License-Identifier: Apache-2.0
// Every kind of GPU has room for the rings of few_rows, whatever the format and the number of rows.
#include "loci/compute/cuda/products/few_rows.h"

#include <gtest/gtest.h>

namespace loci::cuda {
namespace {

constexpr DeviceProperties kAmpere{
    .capability = 80, .shared_bytes = 164u << 10, .shared_bytes_max = 163u << 10};
constexpr DeviceProperties kAda{.capability = 89, .shared_bytes = 100u << 10, .shared_bytes_max = 99u << 10};
constexpr DeviceProperties kHopper{
    .capability = 90, .shared_bytes = 228u << 10, .shared_bytes_max = 227u << 10};

template <MatrixFormat F, class T>
void expect_room() {
  using Warp = FewRowsWarp<F, T>;
  for (const DeviceProperties& device : {kAmpere, kAda, kHopper}) {
    for (const std::uint32_t rows : {1u, 2u, 3u, 5u, 8u, 64u}) {
      SCOPED_TRACE(testing::Message() << device.capability << ", " << rows << " rows");
      const FewRowsShape shape = Warp::shape_of(rows, device);
      EXPECT_LE(shape.shared_bytes, device.shared_bytes_max);
      EXPECT_GE(shape.depth, 2u);
      EXPECT_GE(shape.tile_rows, 1u);
      EXPECT_LE(shape.tile_rows, std::min(rows, kFewRows));
      EXPECT_EQ(shape.stage_bytes, Warp::Source::kUnitBytes + shape.tile_rows * Warp::kRowPitch);
      EXPECT_EQ(shape.shared_bytes, Warp::kSumBytes + kFewRowsWarps * shape.depth * shape.stage_bytes);
    }
  }
  // One request's step has all its stages, and its blocks side by side.
  const FewRowsShape one = Warp::shape_of(1, kHopper);
  EXPECT_EQ(one.depth, Warp::Source::kDepthMax);
  EXPECT_LE(kFewRowsBlocks * (one.shared_bytes + 1024), kHopper.shared_bytes);
}

TEST(FewRowsTest, RingsFitEveryDevice) {
  expect_room<MatrixFormat::kHalf, Half>();
  expect_room<MatrixFormat::kBFloat16, BFloat16>();
  expect_room<MatrixFormat::kQ8_0, Half>();
  expect_room<MatrixFormat::kQ4_0, Half>();
  expect_room<MatrixFormat::kQ4_1, Half>();
  expect_room<MatrixFormat::kQ4_K, BFloat16>();
  expect_room<MatrixFormat::kQ6_K, Half>();
  // Where eight rows of activations leave no room for two stages, they are two tiles.
  EXPECT_EQ((FewRowsWarp<MatrixFormat::kHalf, Half>::shape_of(8, kAda).tile_rows), 4u);
}

}  // namespace
}  // namespace loci::cuda
