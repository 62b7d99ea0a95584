// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/samples.h"

#include <gtest/gtest.h>

#include <cmath>

#include "loci/base/random.h"

namespace loci {
namespace {

TEST(Quantile, InterpolatesAsNumPyDoes) {
  const std::vector<double> sorted = {1, 2, 4, 8, 16};
  EXPECT_DOUBLE_EQ(quantile(sorted, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.5), 4);
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.9), 12.8);  // numpy.percentile([1, 2, 4, 8, 16], 90)
  EXPECT_DOUBLE_EQ(quantile(sorted, 0.99), 15.68);
  EXPECT_DOUBLE_EQ(quantile(sorted, 1), 16);
  EXPECT_DOUBLE_EQ(quantile({3}, 0.9), 3);
  EXPECT_DOUBLE_EQ(quantile({}, 0.9), 0);
}

TEST(Summarise, TakesSamplesInAnyOrder) {
  const Summary s = summarise({16, 1, 8, 2, 4});
  EXPECT_EQ(s.count, 5u);
  EXPECT_DOUBLE_EQ(s.mean, 6.2);
  EXPECT_DOUBLE_EQ(s.p50, 4);
  EXPECT_DOUBLE_EQ(s.p90, 12.8);
  EXPECT_EQ(summarise({}).count, 0u);
}

TEST(PairedRatio, FindsARatioThatPairsShareBehindLargeDifferences) {
  std::vector<std::pair<double, double>> pairs;
  Random random(7);
  for (int i = 0; i < 40; ++i) {
    const double size = std::exp(6 * random.unit());  // 1 … 400: far more than the ratio
    pairs.emplace_back(size, 1.2 * size * std::exp(0.02 * (random.unit() - 0.5)));
  }
  const auto ratio = paired_ratio(pairs);
  ASSERT_TRUE(ratio);
  EXPECT_EQ(ratio->pairs, 40u);
  EXPECT_NEAR(ratio->ratio, 1.2, 0.01);
  EXPECT_LT(ratio->low, ratio->ratio);
  EXPECT_GT(ratio->high, ratio->ratio);
  EXPECT_LT(ratio->high - ratio->low, 0.01);
}

TEST(PairedRatio, IsStudentsInterval) {
  // Logarithms 0 and 2: mean 1, standard error 1, t(1 degree of freedom) = 12.706.
  const auto ratio = paired_ratio({{1, 1}, {1, std::exp(2.0)}});
  ASSERT_TRUE(ratio);
  EXPECT_NEAR(std::log(ratio->ratio), 1, 1e-9);
  EXPECT_NEAR(std::log(ratio->low), 1 - 12.706, 1e-3);
  EXPECT_NEAR(std::log(ratio->high), 1 + 12.706, 1e-3);
}

TEST(PairedRatio, NeedsTwoPairs) {
  EXPECT_FALSE(paired_ratio({}));
  EXPECT_FALSE(paired_ratio({{1, 2}}));
  EXPECT_FALSE(paired_ratio({{1, 2}, {0, 3}}));
}

// What "95 %" says: of many runs about so many intervals hold the true ratio.
TEST(PairedRatio, IntervalsHoldTheTruthAsOftenAsTheySay) {
  Random random(11);
  int held = 0;
  constexpr int kRuns = 2000;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<std::pair<double, double>> pairs;
    for (int i = 0; i < 12; ++i) {
      double noise = -6;  // nearly normal
      for (int k = 0; k < 12; ++k) noise += random.unit();
      pairs.emplace_back(1, std::exp(0.3 + 0.5 * noise));
    }
    const auto ratio = paired_ratio(pairs);
    held += ratio->low <= std::exp(0.3) && std::exp(0.3) <= ratio->high ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(held) / kRuns, 0.95, 0.015);
}

TEST(Bootstrap, OfASampleADrawIsTheSummary) {
  // Each cluster is the same, so every draw is, too.
  std::vector<ClusteredSample> samples;
  std::vector<double> values;
  for (std::uint32_t cluster = 0; cluster < 7; ++cluster) {
    for (const double value : {3.0, 1.0, 10.0, 4.0}) {
      samples.push_back({value, cluster * 100});
      values.push_back(value);
    }
  }
  const Summary whole = summarise(values);
  const auto intervals = bootstrap(samples);
  ASSERT_TRUE(intervals);
  EXPECT_DOUBLE_EQ(intervals->mean.low, whole.mean);
  EXPECT_DOUBLE_EQ(intervals->p50.low, whole.p50);
  EXPECT_DOUBLE_EQ(intervals->p50.high, whole.p50);
  EXPECT_DOUBLE_EQ(intervals->p90.high, whole.p90);
  EXPECT_DOUBLE_EQ(intervals->p99.low, whole.p99);
}

TEST(Bootstrap, NeedsSomeClusters) {
  EXPECT_FALSE(bootstrap({}));
  EXPECT_FALSE(bootstrap({{1, 0}, {2, 0}, {3, 1}, {4, 2}, {5, 3}}));
  EXPECT_TRUE(bootstrap({{1, 0}, {2, 1}, {3, 2}, {4, 3}, {5, 4}}));
}

// Turns of a conversation are alike: whole conversations are drawn, or intervals would be far too narrow.
TEST(Bootstrap, IntervalsHoldTheTruthAboutAsOftenAsTheySay) {
  Random random(5);
  int mean_held = 0, median_held = 0;
  constexpr int kRuns = 300;
  for (int run = 0; run < kRuns; ++run) {
    std::vector<ClusteredSample> samples;
    for (std::uint32_t cluster = 0; cluster < 40; ++cluster) {
      const double level = random.unit();
      for (int turn = 0; turn < 5; ++turn) samples.push_back({level + 0.1 * random.unit(), cluster});
    }
    const auto intervals = bootstrap(samples);
    mean_held += intervals->mean.low <= 0.55 && 0.55 <= intervals->mean.high ? 1 : 0;
    median_held += intervals->p50.low <= 0.55 && 0.55 <= intervals->p50.high ? 1 : 0;
  }
  EXPECT_NEAR(static_cast<double>(mean_held) / kRuns, 0.94, 0.04);
  EXPECT_NEAR(static_cast<double>(median_held) / kRuns, 0.94, 0.04);
}

}  // namespace
}  // namespace loci
