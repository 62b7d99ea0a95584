// SPDX-License-Identifier: Apache-2.0
// Whether a peer that fails repeatedly is left alone: after kFailuresMax failures in a row for kPauseMin, and
// after each further failure for twice as long, up to kPauseMax.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loci/base/clock.h"

namespace loci {

// One object is for a peer's answers to questions, another for its reads. Thread-compatible.
class PeerHealth {
 public:
  static constexpr std::uint32_t kFailuresMax = 3;
  static constexpr Nanos kPauseMin = 2 * kNanosPerSecond, kPauseMax = 32 * kNanosPerSecond;

  bool is_up(Nanos now) const { return now >= again_at_; }
  void succeed() { *this = {}; }
  // True: the peer is left alone from now on, and was not before. (A call that began before a pause and fails
  // during it does not lengthen the pause.)
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
