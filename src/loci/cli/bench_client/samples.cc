// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/samples.h"

#include <algorithm>
#include <array>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>
#include <unordered_map>

#include "loci/base/random.h"

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

namespace {

constexpr std::size_t kDrawsMin = 200, kDrawsMax = 1'000;
constexpr std::size_t kWorkMax = 200'000'000;  // samples that are looked at
constexpr std::uint64_t kBootstrapSeed = 0xb007;

// What is drawn again and again: samples in order, and sums by cluster.
struct Clusters {
  std::vector<ClusteredSample> sorted;  // clusters counted from 0
  std::vector<double> sums;
  std::vector<std::uint64_t> sizes;
};

Clusters clusters_of(std::vector<ClusteredSample> samples) {
  Clusters out;
  std::unordered_map<std::uint32_t, std::uint32_t> numbers;  // never iterated
  for (ClusteredSample& sample : samples) {
    const auto [at, fresh] = numbers.try_emplace(sample.cluster, static_cast<std::uint32_t>(out.sums.size()));
    if (fresh) {
      out.sums.push_back(0);
      out.sizes.push_back(0);
    }
    sample.cluster = at->second;
    out.sums[sample.cluster] += sample.value;
    ++out.sizes[sample.cluster];
  }
  std::ranges::sort(samples, {}, &ClusteredSample::value);
  out.sorted = std::move(samples);
  return out;
}

// Mean, p50, p90 and p99 where each cluster is there as often as `times` says; quantiles as quantile() has
// them.
std::array<double, 4> drawn_summary(const Clusters& clusters, const std::vector<std::uint32_t>& times) {
  std::uint64_t count = 0;
  double sum = 0;
  for (std::size_t c = 0; c < times.size(); ++c) {
    count += times[c] * clusters.sizes[c];
    sum += times[c] * clusters.sums[c];
  }
  std::array<double, 4> out{sum / static_cast<double>(count)};
  constexpr std::array<double, 3> kQuantiles = {0.5, 0.9, 0.99};
  std::size_t next = 0;
  std::uint64_t seen = 0;
  double before = 0;  // the value in front of the one that is looked at
  for (const ClusteredSample& sample : clusters.sorted) {
    if (times[sample.cluster] == 0) continue;
    const std::uint64_t upto = seen + times[sample.cluster];
    for (; next < kQuantiles.size(); ++next) {
      const double at = kQuantiles[next] * static_cast<double>(count - 1);
      const double below = std::floor(at);
      if (std::ceil(at) >= static_cast<double>(upto)) break;
      const bool inside = below >= static_cast<double>(seen);  // both neighbours have this value
      out[next + 1] = inside ? sample.value : std::lerp(before, sample.value, at - below);
    }
    if (next == kQuantiles.size()) break;
    seen = upto;
    before = sample.value;
  }
  return out;
}

}  // namespace

std::optional<SummaryIntervals> bootstrap(std::vector<ClusteredSample> samples) {
  const Clusters clusters = clusters_of(std::move(samples));
  const std::size_t count = clusters.sums.size();
  if (count < kClustersMin) return std::nullopt;
  const std::size_t draws = std::clamp(kWorkMax / clusters.sorted.size(), kDrawsMin, kDrawsMax);
  std::array<std::vector<double>, 4> drawn;
  Random random(kBootstrapSeed);
  std::vector<std::uint32_t> times(count);
  for (std::size_t draw = 0; draw < draws; ++draw) {
    std::ranges::fill(times, 0);
    for (std::size_t c = 0; c < count; ++c) ++times[random.below(count)];
    const std::array<double, 4> one = drawn_summary(clusters, times);
    for (std::size_t i = 0; i < one.size(); ++i) drawn[i].push_back(one[i]);
  }
  const auto interval = [](std::vector<double>& values) {
    std::ranges::sort(values);
    return Interval{quantile(values, 0.025), quantile(values, 0.975)};
  };
  return SummaryIntervals{interval(drawn[0]), interval(drawn[1]), interval(drawn[2]), interval(drawn[3])};
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
