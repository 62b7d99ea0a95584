// SPDX-License-Identifier: Apache-2.0
// Statistics of a run. Pure; thread-safe.
#pragma once

#include <cstddef>
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
