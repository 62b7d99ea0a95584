// SPDX-License-Identifier: Apache-2.0
// Corrects predictions by what things really took, because the cost model's curves were measured when the
// machine was quiet, or never. A prediction is multiplied by the median, over the last observations, of the
// time taken divided by the time predicted. So one disturbed observation changes nothing, and a disk that
// became slower is noticed after kObservations / 2 + 1 observations.
//
// An example, with kObservations = 9: passes of prompts now take four times as long as was measured, because
// another program computes too. The first eight of them find ratios of 4 beside ratios of 1 from before; with
// the fifth the median is 4.
//
// Integers throughout: the same observations give the same corrections everywhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "loci/base/clock.h"

namespace loci {

// Thread-compatible. Calls cost O(kObservations).
class Correction {
 public:
  static constexpr std::size_t kObservations = 9;  // that are remembered
  static constexpr std::uint32_t kOne = 1 << 12;   // the unit of ratios
  static constexpr std::uint32_t kRatioMax = 1000 * kOne, kRatioMin = kOne / 1000;

  // Something took `took` that the model, uncorrected, had predicted to take `predicted`. Where nothing was
  // predicted (0) nothing is learnt.
  void observe(Nanos predicted, Nanos took);
  // What the model predicts, corrected; at most kCostMax.
  Nanos apply(Nanos predicted) const { return times(predicted, ratio_); }
  // The same by the upper quartile: one in four takes longer.
  Nanos apply_high(Nanos predicted) const { return times(predicted, high_); }
  // Time taken over time predicted, in units of kOne; kOne before the first observation.
  std::uint32_t ratio() const { return ratio_; }

 private:
  static Nanos times(Nanos predicted, std::uint32_t ratio);

  std::array<std::uint32_t, kObservations> ratios_{};  // a ring
  std::size_t seen_ = 0;                               // observations, ever
  std::uint32_t ratio_ = kOne;                         // the median
  std::uint32_t high_ = kOne;                          // the upper quartile
};

}  // namespace loci
