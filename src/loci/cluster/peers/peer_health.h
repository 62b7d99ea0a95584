// SPDX-License-Identifier: Apache-2.0
// Whether a peer that failed again and again is left alone: after kFailuresMax failures in a row for
// kPauseMin, and twice as long after each more, up to kPauseMax.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loci/base/clock.h"

namespace loci {

// Of a peer's answers to questions, or of its reads. Thread-compatible.
class PeerHealth {
 public:
  static constexpr std::uint32_t kFailuresMax = 3;
  static constexpr Nanos kPauseMin = 2 * kNanosPerSecond, kPauseMax = 32 * kNanosPerSecond;

  bool is_up(Nanos now) const { return now >= again_at_; }
  void succeed() { *this = {}; }
  // True: it is left alone from now on, and was not before. (What began before a pause and fails in it makes
  // it no longer.)
  bool fail(Nanos now) {
    if (!is_up(now) || ++failures_ < kFailuresMax) return false;
    const std::uint32_t doublings = std::min(4u, failures_ - kFailuresMax);
    again_at_ = now + std::min(kPauseMax, kPauseMin << doublings);
    return failures_ == kFailuresMax;
  }

 private:
  std::uint32_t failures_ = 0;  // in a row
  Nanos again_at_ = 0;
};

}  // namespace loci
