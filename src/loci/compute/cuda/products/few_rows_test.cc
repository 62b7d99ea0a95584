// SPDX-License-Identifier: Apache-2.0
// Every kind of GPU has room for the rings of few_rows, whatever the format.
#include "loci/compute/cuda/products/few_rows.h"

#include <gtest/gtest.h>

namespace loci::cuda {
namespace {

constexpr DeviceProperties kAmpere{.capability = 80, .shared_bytes_max = 163u << 10};
constexpr DeviceProperties kAda{.capability = 89, .shared_bytes_max = 99u << 10};
constexpr DeviceProperties kHopper{.capability = 90, .shared_bytes_max = 227u << 10};

template <MatrixFormat F, class T>
void expect_room() {
  using Warp = FewRowsWarp<F, T>;
  for (const DeviceProperties& device : {kAmpere, kAda, kHopper}) {
    SCOPED_TRACE(device.capability);
    EXPECT_GE(Warp::depth_on(device), 2u);
    EXPECT_LE(Warp::shared_bytes(Warp::depth_on(device)), device.shared_bytes_max);
  }
  EXPECT_EQ(Warp::depth_on(kHopper), Warp::Source::kDepthMax);
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
