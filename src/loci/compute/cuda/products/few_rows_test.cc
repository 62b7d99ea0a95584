// SPDX-License-Identifier: Apache-2.0
// Every kind of GPU has room for the rings of few_rows, whatever the format.
#include "loci/compute/cuda/products/few_rows.h"

#include <gtest/gtest.h>

namespace loci::cuda {
namespace {

// What a block may have.
constexpr std::uint32_t kAmpere = 163u << 10, kAda = 99u << 10, kHopper = 227u << 10;

template <MatrixFormat F, class T>
void expect_room() {
  using Warp = FewRowsWarp<F, T>;
  for (const std::uint32_t most : {kAmpere, kAda, kHopper}) {
    EXPECT_GE(Warp::depth_within(most), 2u);
    EXPECT_LE(Warp::shared_bytes(Warp::depth_within(most)), most);
  }
  EXPECT_EQ(Warp::depth_within(kHopper), Warp::Source::kDepthMax);
}

TEST(FewRowsTest, RingsFitEveryDevice) {
  expect_room<MatrixFormat::kHalf, Half>();
  expect_room<MatrixFormat::kBFloat16, BFloat16>();
  expect_room<MatrixFormat::kQ8_0, Half>();
  expect_room<MatrixFormat::kQ4_0, Half>();
  expect_room<MatrixFormat::kQ4_1, Half>();
  expect_room<MatrixFormat::kQ4_K, BFloat16>();
  expect_room<MatrixFormat::kQ6_K, Half>();
}

}  // namespace
}  // namespace loci::cuda
