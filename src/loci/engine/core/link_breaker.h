// SPDX-License-Identifier: Apache-2.0
// Whether a link that failed again and again is asked for anything: after kFailuresMax failures in a row it
// is left alone for kPause, then tried again.
//
// A move that was given up counts only where the link was silent all the while: not where others succeeded
// since it began (it was slow, or much was asked of it), and not where it was refused at once (a directory
// that the store itself leaves alone; others may be well).
#pragma once

#include <cstdint>

#include "loci/base/clock.h"
#include "loci/engine/core/plan.h"

namespace loci {

class LinkBreaker {
 public:
  static constexpr std::uint32_t kFailuresMax = 8;
  static constexpr Nanos kPause = 10 * kNanosPerSecond;
  static constexpr Nanos kSilenceMin = kNanosPerSecond;

  // `took`: from the move's begin.
  void ended(MoveResult result, Nanos now, Nanos took) {
    if (result == MoveResult::kDone || result == MoveResult::kDamaged || result == MoveResult::kGone) {
      failures_ = 0;
      answered_ = now;
      return;
    }
    if (result == MoveResult::kTooSlow && (took < kSilenceMin || answered_ > now - took)) return;
    if (++failures_ < kFailuresMax) return;
    failures_ = 0;
    paused_until_ = now + kPause;
  }
  bool paused(Nanos now) const { return now < paused_until_; }
  Nanos paused_until() const { return paused_until_; }

 private:
  std::uint32_t failures_ = 0;  // in a row
  Nanos answered_ = 0;
  Nanos paused_until_ = 0;
};

}  // namespace loci
