// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/hidden_share.h"

#include <gtest/gtest.h>

#include <utility>

#include <algorithm>

#include "loci/compute/backend.h"

namespace loci {
namespace {

constexpr std::uint64_t kKv = 1'000'000;

constexpr Nanos kMicrosecond = 1000, kBeyondBounds = 3'600 * kNanosPerSecond;

// A link of a MB a millisecond, a block that is projected in so many microseconds, and computed in `block`.
CostModel costs(Nanos microseconds, Nanos block = kBeyondBounds) {
  CostCurves curves;
  curves.disk_read = {200'000, 1'000'000'000};
  curves.disk_charge = 0;
  curves.attention = {0};
  curves.token = block / kBlockTokens;
  curves.projection = microseconds * kMicrosecond / kBlockTokens;
  return CostModel(curves);
}

TEST(HiddenShareTest, TheExample) {
  // 4, 2 and 3 ms, times a quarter.
  EXPECT_EQ(hidden_share_percent(costs(750), kKv, kKv / 2), 80u);
}

TEST(HiddenShareTest, NothingWithoutAPriceOrAGain) {
  EXPECT_EQ(hidden_share_percent(costs(0), kKv, kKv / 4), 0u);
  EXPECT_EQ(hidden_share_percent(costs(10), kKv, kKv), 0u);
  EXPECT_EQ(hidden_share_percent(costs(10), kKv, kKv * 19 / 20), 0u) << "less than a tenth is won";
  EXPECT_EQ(hidden_share_percent(costs(20'000), kKv, kKv / 4), 0u) << "computing is too slow";
  EXPECT_EQ(hidden_share_percent(costs(10), kKv, kKv / 4), 100u);
}

// A block is computed in 5 ms. Keys and values need 0.83 ms a block with so many computed as end together
// with the loads; hidden states 0.73 where projecting takes 0.1, 0.77 where it takes 0.4.
TEST(HiddenShareTest, WhatCouldBeComputedMeanwhileCounts) {
  EXPECT_EQ(hidden_share_percent(costs(100, 5'000 * kMicrosecond), kKv, kKv * 84 / 100), 100u);
  EXPECT_EQ(hidden_share_percent(costs(400, 5'000 * kMicrosecond), kKv, kKv * 84 / 100), 0u)
      << "what computes leading blocks would project";
  EXPECT_EQ(hidden_share_percent(costs(400), kKv, kKv * 84 / 100), 100u)
      << "computing has nothing else to do";
}

// Loading takes of computing, too: here as much as the link does.
TEST(HiddenShareTest, LoadingIsCharged) {
  CostCurves curves = costs(100).curves();
  curves.disk_charge = (kMicrosecond << 20) / 1000;
  EXPECT_EQ(hidden_share_percent(CostModel(curves), kKv, kKv * 95 / 100), 0u);
  EXPECT_EQ(hidden_share_percent(CostModel(curves), kKv, kKv / 4), 100u);
}

// Of all shares none restores sooner (but for rounding to a hundredth).
TEST(HiddenShareTest, NoShareIsBetter) {
  for (const Nanos project : {100, 300, 500, 700, 900, 1100}) {
    for (const std::uint64_t hidden : {kKv / 4, kKv / 2, kKv * 7 / 10}) {
      const CostModel model = costs(project);
      const auto time = [&](std::int64_t percent) {
        const auto link = static_cast<std::int64_t>(percent * hidden + (100 - percent) * kKv);
        return std::max(link, percent * model.project_block());
      };
      std::int64_t best = 0;
      for (std::int64_t percent = 0; percent <= 100; ++percent)
        if (time(percent) < time(best)) best = percent;
      const std::uint32_t found = hidden_share_percent(model, kKv, hidden);
      if (found == 0) {
        EXPECT_GT(time(best) * 100, 89 * time(0)) << project << " " << hidden;
      } else {
        EXPECT_NEAR(found, best, 1) << project << " " << hidden;
      }
    }
  }
}

TEST(HiddenShareTest, WhereItPays) {
  EXPECT_EQ(hidden_pays_below(costs(0), kKv), 0u);
  EXPECT_NEAR(static_cast<double>(hidden_pays_below(costs(1000), kKv)), 1e9, 1e6);
}

TEST(HiddenShareTest, KeysAndValuesAlwaysHaveRoom) {
  const auto shares = [](std::uint32_t percent) {
    const FormShares forms = form_shares(percent);
    return std::pair(forms.keys_and_values, forms.hidden);
  };
  EXPECT_EQ(shares(0), std::pair(100u, 0u));
  EXPECT_EQ(shares(30), std::pair(70u, 30u));
  EXPECT_EQ(shares(100), std::pair(25u, 100u)) << "for what was not captured";
}

}  // namespace
}  // namespace loci
