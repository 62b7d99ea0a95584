// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_url/samples.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>

namespace loci {

double quantile(const std::vector<double>& sorted, double q) {
  if (sorted.empty()) return 0;
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(at);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return std::lerp(sorted[below], sorted[above], at - static_cast<double>(below));
}

Summary summarise(std::vector<double> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const double sum = std::accumulate(samples.begin(), samples.end(), 0.0);
  return {.count = samples.size(),
          .mean = sum / static_cast<double>(samples.size()),
          .p50 = quantile(samples, 0.5),
          .p90 = quantile(samples, 0.9),
          .p99 = quantile(samples, 0.99)};
}

std::optional<PairedRatio> paired_ratio(const std::vector<std::pair<double, double>>& pairs) {
  std::vector<double> logs;
  for (const auto& [first, second] : pairs) {
    if (first > 0 && second > 0) logs.push_back(std::log(second / first));
  }
  if (logs.size() < 2) return std::nullopt;
  const auto count = static_cast<double>(logs.size());
  const double mean = std::accumulate(logs.begin(), logs.end(), 0.0) / count;
  double squares = 0;
  for (const double value : logs) squares += (value - mean) * (value - mean);
  const double error = std::sqrt(squares / (count - 1) / count);
  const double t = boost::math::quantile(boost::math::students_t(count - 1), 0.975);
  return PairedRatio{.pairs = logs.size(),
                     .ratio = std::exp(mean),
                     .low = std::exp(mean - t * error),
                     .high = std::exp(mean + t * error)};
}

}  // namespace loci
