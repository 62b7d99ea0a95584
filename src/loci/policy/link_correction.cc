// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/link_correction.h"

#include <algorithm>
#include <span>

#include "loci/policy/correction.h"
#include "loci/policy/cost_model.h"

namespace loci {
namespace {

using Exact = __int128;

constexpr Nanos kTimeMax = Nanos{1} << 50;  // of an observation: thirteen days
constexpr std::int64_t kLeastRatio = Correction::kRatioMin, kMostRatio = Correction::kRatioMax;

std::int64_t ratio_of(Nanos took, Nanos predicted) {
  const Exact ratio = static_cast<Exact>(took) * Correction::kOne / std::max<Nanos>(predicted, 1);
  return static_cast<std::int64_t>(std::clamp<Exact>(ratio, kLeastRatio, kMostRatio));
}

Exact times(Nanos time, std::int64_t ratio) { return static_cast<Exact>(time) * ratio / Correction::kOne; }

template <class Of>
Nanos median(std::span<const Of> of, Nanos Of::* field) {
  std::array<Nanos, LinkCorrection::kObservations> values{};
  for (std::size_t i = 0; i < of.size(); ++i) values[i] = of[i].*field;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((of.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.begin() + static_cast<std::ptrdiff_t>(of.size()));
  return *middle;
}

}  // namespace

void LinkCorrection::observe(LoadTime predicted, Nanos took) {
  if (predicted.latency <= 0 && predicted.moving <= 0) return;
  latency_ = std::clamp<Nanos>(predicted.latency, 0, kTimeMax);
  ring_[seen_++ % kObservations] = {std::clamp<Nanos>(predicted.moving, 0, kTimeMax),
                                    std::clamp<Nanos>(took, 0, kTimeMax)};
  fit();
}

void LinkCorrection::relax() {
  if (seen_ == 0) return;
  for (Observation& one : ring_) {
    const Nanos predicted = latency_ + one.moving;
    if (one.took > predicted) one.took = std::max(one.took / 2, predicted);
  }
  fit();
}

void LinkCorrection::fit() {
  std::array<Observation, kObservations> sorted = ring_;
  const std::size_t count = std::min(seen_, kObservations);
  std::stable_sort(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(count),
                   [](const Observation& a, const Observation& b) { return a.moving < b.moving; });
  const std::span<const Observation> all(sorted.data(), count);
  const std::size_t third = (count + 2) / 3;
  const auto middle_of = [](std::span<const Observation> some) {
    return Observation{median(some, &Observation::moving), median(some, &Observation::took)};
  };
  const Observation low = middle_of(all.first(third)), high = middle_of(all.last(third));
  if (high.moving == 0 || high.moving < 2 * low.moving) return explain(middle_of(all));
  const std::int64_t most = ratio_of(high.took, high.moving);  // were there no overhead
  ratio_ = std::clamp(ratio_of(std::max<Nanos>(high.took - low.took, 0), high.moving - low.moving),
                      std::max(most / 4, kLeastRatio), most);
  const Exact overhead = low.took - times(low.moving, ratio_);
  const Exact overhead_max = std::max<Exact>(high.took - times(high.moving, ratio_), 0);
  overhead_ = static_cast<Nanos>(std::clamp<Exact>(overhead, 0, overhead_max));
}

// From observations of one size.
void LinkCorrection::explain(Observation one) {
  const Nanos predicted = latency_ + one.moving;
  if (one.took <= predicted) {
    ratio_ = ratio_of(one.took, predicted);
    overhead_ = static_cast<Nanos>(times(latency_, ratio_));
    return;
  }
  const Exact short_squared = static_cast<Exact>(kShort) * kShort;
  const Exact squares = short_squared + static_cast<Exact>(one.moving) * one.moving;
  overhead_ = latency_ + static_cast<Nanos>((one.took - predicted) * short_squared / squares);
  ratio_ = one.moving == 0 ? Correction::kOne : ratio_of(one.took - overhead_, one.moving);
}

Nanos LinkCorrection::apply(LoadTime predicted) const {
  const Nanos latency = std::max<Nanos>(predicted.latency, 0), moving = std::max<Nanos>(predicted.moving, 0);
  const Exact time = seen_ == 0 ? static_cast<Exact>(latency) + moving : overhead_ + times(moving, ratio_);
  return static_cast<Nanos>(std::min<Exact>(time, kCostMax));
}

}  // namespace loci
