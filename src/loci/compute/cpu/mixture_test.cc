// SPDX-License-Identifier: Apache-2.0
// Which experts are chosen, and how their rows are gathered.
#include "loci/compute/cpu/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "loci/base/random.h"
#include "loci/compute/cpu/instruction_set.h"
#include "loci/compute/cpu/values_testing.h"

namespace loci::cpu {
namespace {

struct Gathered {
  std::vector<std::uint32_t> experts;  // of the one row
  std::vector<float> weights;
};

Gathered choose(const std::vector<float>& scores, std::uint32_t uses, bool normalised) {
  Mixture mixture(static_cast<std::uint32_t>(scores.size()), uses, normalised);
  mixture.resize(1);
  std::copy(scores.begin(), scores.end(), mixture.scores(0));
  mixture.choose(plain_kernels(), 0);
  mixture.gather(plain_kernels(), 1);
  Gathered gathered;
  for (const Mixture::Used& used : mixture.used()) gathered.experts.push_back(used.expert);
  gathered.weights = mixture.weights();
  return gathered;
}

using Experts = std::vector<std::uint32_t>;

TEST(MixtureTest, OfEqualScoresTheLowerIndexWins) {
  EXPECT_EQ(choose({1, 1, 1, 1, 1}, 3, true).experts, (Experts{0, 1, 2}));
  EXPECT_EQ(choose({0, 2, 1, 2, 1}, 3, true).experts, (Experts{1, 2, 3}));
  EXPECT_EQ(choose({3, 2, 2, 3}, 1, true).experts, (Experts{0}));
  EXPECT_EQ(choose({0, -1, 5}, 3, true).experts, (Experts{0, 1, 2}));
}

TEST(MixtureTest, WhatIsNoNumberLoses) {
  const float nan = std::numeric_limits<float>::quiet_NaN(),
              infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(choose({nan, 1, nan, -7}, 2, true).experts, (Experts{1, 3}));
  const Gathered none = choose({nan, -infinite, nan}, 2, true);
  EXPECT_EQ(none.experts, (Experts{0, 1}));  // some are chosen, in any case
}

TEST(MixtureTest, WeightsAreSoftmaxOverTheChosenOrOverAll) {
  Random random(1);
  const std::vector<float> scores = normal_values(random, 21, 2);
  for (const bool normalised : {true, false}) {
    const Gathered found = choose(scores, 4, normalised);
    Experts order(scores.size());
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return scores[a] > scores[b]; });
    double total = 0;
    for (std::size_t i = 0; i < (normalised ? 4 : order.size()); ++i) total += std::exp(scores[order[i]]);
    Experts best(order.begin(), order.begin() + 4);
    std::sort(best.begin(), best.end());
    ASSERT_EQ(found.experts, best);
    for (std::size_t i = 0; i < best.size(); ++i)
      EXPECT_NEAR(found.weights[i], std::exp(scores[best[i]]) / total, 1e-6);
  }
}

// Each row appears once with each of its experts, tiles hold one expert's rows, and what nobody chose is
// not there.
TEST(MixtureTest, RowsAreGatheredByExpert) {
  constexpr std::uint32_t kRows = 200, kExperts = 40, kUses = 3;
  Random random(2);
  for (const InstructionSet set : available_instruction_sets()) {
    Mixture mixture(kExperts, kUses, true);
    mixture.resize(kRows);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      for (std::uint32_t i = 0; i < kExperts; ++i)
        mixture.scores(row)[i] = i % 7 == 3 ? -50.0f : normal_value(random) * static_cast<float>(i);
      mixture.choose(kernels_of(set), row);
    }
    mixture.gather(kernels_of(set), kRows);
    const TileLayout& layout = mixture.layout();
    ASSERT_EQ(layout.rows(), kRows * kUses);
    std::vector<std::uint32_t> seen(kRows, 0);
    std::uint32_t tile = 0, before = 0;
    for (const Mixture::Used& used : mixture.used()) {
      EXPECT_NE(used.expert % 7, 3u);
      EXPECT_TRUE(tile == 0 || used.expert > before);
      before = used.expert;
      EXPECT_EQ(used.first_tile, tile);
      ASSERT_GT(used.end_tile, used.first_tile);
      tile = used.end_tile;
      const std::uint32_t first = layout.begin(used.first_tile),
                          end = layout.begin(used.end_tile - 1) + layout.size(used.end_tile - 1);
      for (std::uint32_t i = first; i < end; ++i) {
        ++seen[mixture.sources()[i]];
        EXPECT_TRUE(i == first || mixture.sources()[i] > mixture.sources()[i - 1]);
      }
    }
    EXPECT_EQ(tile, layout.tiles());
    EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](std::uint32_t n) { return n == kUses; }));
  }
}

}  // namespace
}  // namespace loci::cpu
