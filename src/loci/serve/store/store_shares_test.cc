// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_shares.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

std::vector<StoreUsage> of(std::vector<std::uint64_t> sizes) {
  std::vector<StoreUsage> usages;
  for (const std::uint64_t size : sizes) usages.push_back({.tenant = "t", .threads = 1, .bytes = size});
  return usages;
}

TEST(StoreShares, TheLevelTakesFromTheLargestAlone) {
  EXPECT_EQ(share_level(of({}), 100), UINT64_MAX);
  EXPECT_EQ(share_level(of({70, 20, 10}), 100), UINT64_MAX);
  EXPECT_EQ(share_level(of({70, 40, 10}), 100), 50u);  // as in the header: the second keeps its 40
  EXPECT_EQ(share_level(of({70, 50, 10}), 100), 45u);
  EXPECT_EQ(share_level(of({1'000, 10, 10}), 100), 80u);
  EXPECT_EQ(share_level(of({50, 60, 70}), 90), 30u);
  EXPECT_EQ(share_level(of({50}), 0), 0u);
}

// Of any sizes: all together fit, nobody below the level gives, and no higher level would fit.
TEST(StoreShares, TheLevelIsTheHighestThatFits) {
  for (std::uint64_t a = 0; a < 12; ++a) {
    for (std::uint64_t b = 0; b < 12; ++b) {
      for (std::uint64_t c = 0; c < 12; ++c) {
        for (std::uint64_t most = 0; most < 36; ++most) {
          const std::uint64_t level = share_level(of({a, b, c}), most);
          const auto kept = [&](std::uint64_t at) {
            return std::min(a, at) + std::min(b, at) + std::min(c, at);
          };
          ASSERT_LE(kept(level), most) << a << " " << b << " " << c << " of " << most;
          if (level == UINT64_MAX) continue;
          ASSERT_GT(kept(level + 1), most) << a << " " << b << " " << c << " of " << most;
        }
      }
    }
  }
}

TEST(StoreShares, ASurplusIsWhatIsBeyondTheQuota) {
  const StoreUsage usage{.tenant = "t", .threads = 10, .bytes = 100};
  EXPECT_EQ(surplus_over(usage, {}), StoreSurplus{});
  EXPECT_EQ(surplus_over(usage, {.bytes_max = 100, .threads_max = 10}), StoreSurplus{});
  EXPECT_EQ(surplus_over(usage, {.bytes_max = 60, .threads_max = 7}),
            (StoreSurplus{.threads = 3, .bytes = 40}));
}

}  // namespace
}  // namespace loci
