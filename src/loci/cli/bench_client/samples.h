// SPDX-License-Identifier: Apache-2.0
// Statistics of a run. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace loci {

// Of no samples everything is 0.
struct Summary {
  std::size_t count = 0;
  double mean = 0;
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
};

// The q-quantile (0 … 1) of sorted samples, interpolated between neighbours (NumPy's default, type 7).
double quantile(const std::vector<double>& sorted, double q);
Summary summarise(std::vector<double> samples);

// A sample, and what it has in common with others: a conversation's turns are alike.
struct ClusteredSample {
  double value = 0;
  std::uint32_t cluster = 0;
};
struct Interval {
  double low = 0;
  double high = 0;
};
struct SummaryIntervals {
  Interval mean, p50, p90, p99;
};
inline constexpr std::size_t kClustersMin = 5;
// 95 % intervals of summarise(), by the bootstrap's percentiles: whole clusters are drawn with replacement,
// as many as there are, 200 to 1,000 times; always the same draws. nullopt: fewer than kClustersMin clusters.
// O(draws · samples): 1,000 draws of up to 2 · 10^5 samples, 200 of 10^6 and more.
std::optional<SummaryIntervals> bootstrap(std::vector<ClusteredSample> samples);

// second / first, where both come in pairs: the geometric mean of the pairs' ratios with its 95 % confidence
// interval, by Student's t on their logarithms.
struct PairedRatio {
  std::size_t pairs = 0;
  double ratio = 1;
  double low = 1;
  double high = 1;
};
// Pairs whose one side is not positive are left out. nullopt: fewer than two are left.
std::optional<PairedRatio> paired_ratio(const std::vector<std::pair<double, double>>& pairs);

}  // namespace loci
