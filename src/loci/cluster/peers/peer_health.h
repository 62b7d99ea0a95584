// SPDX-License-Identifier: Apache-2.0
// Whether somebody who fails repeatedly is left alone: after so many failures in a row for a pause, and after
// each further failure for twice as long, up to kPauseMax.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loci/base/clock.h"

namespace loci {

// One object is for one kind of failure: a peer has one for its answers to questions, another for its reads.
// Thread-compatible.
class PeerHealth {
 public:
  static constexpr std::uint32_t kFailuresMax = 3;
  static constexpr Nanos kPauseMin = 2 * kNanosPerSecond, kPauseMax = 32 * kNanosPerSecond;

  struct Rule {
    std::uint32_t failures_max = kFailuresMax;  // the last of so many begins the first pause; at least 1
    Nanos pause_min = kPauseMin;                // the first pause
  };

  PeerHealth() = default;
  explicit PeerHealth(const Rule& rule) : rule_(rule) {}

  bool is_up(Nanos now) const { return now >= again_at_; }
  void succeed() {
    failures_ = 0;
    again_at_ = 0;
  }
  // True: the peer is left alone from now on, and was not before. (A call that began before a pause and fails
  // during it does not lengthen the pause.)
  bool fail(Nanos now) {
    if (!is_up(now) || ++failures_ < rule_.failures_max) return false;
    constexpr std::uint32_t kDoublingsMax = 16;
    const std::uint32_t doublings = std::min(kDoublingsMax, failures_ - rule_.failures_max);
    again_at_ = now + std::min(kPauseMax, rule_.pause_min << doublings);
    return failures_ == rule_.failures_max;
  }

 private:
  Rule rule_;
  std::uint32_t failures_ = 0;  // in a row
  Nanos again_at_ = 0;
};

}  // namespace loci
