// SPDX-License-Identifier: Apache-2.0
// Whether a link that fails repeatedly is used: after kFailuresMax failures in a row it is left alone for
// kPause, then tried again.
//
// A move that was given up counts only if the link was silent the whole time. It does not count if a part of
// it had come, or other moves succeeded after it began: then the link was only slow or busy. Nor does it
// count if it was refused at once: then the store itself leaves a directory alone, and others may work.
//
//     8 times ended(kFailed)    paused for 10 s; then the next failures are counted from 0
//
// While a silent link gives moves up, at their limit or at once, nothing should be moved ahead of its turn:
// who waits would ask again with every refusal.
//
// It owns the count, when the link answered last, and until when it is left alone. It requires that time does
// not go back. It calls nobody. Any number below kFailuresMax is right, so it has no invariant to test.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loci/base/clock.h"
#include "loci/engine/core/plan.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(1).
class LinkBreaker {
 public:
  static constexpr std::uint32_t kFailuresMax = 8;
  static constexpr Nanos kPause = 10 * kNanosPerSecond;
  static constexpr Nanos kSilenceMin = kNanosPerSecond;

  void ended(const MoveOutcome& outcome, Nanos now) {
    const MoveResult result = outcome.result;
    const Nanos took = outcome.took;
    if (result == MoveResult::kDone || result == MoveResult::kDamaged || result == MoveResult::kGone) {
      failures_ = 0;
      answered_ = now;
      return;
    }
    if (result == MoveResult::kTooSlow && outcome.came) {
      answered_ = now;
      return;
    }
    if (result == MoveResult::kTooSlow && answered_ <= now - std::max(took, kSilenceMin))
      gives_up_until_ = now + kSilenceMin;
    if (result == MoveResult::kTooSlow && (took < kSilenceMin || answered_ > now - took)) return;
    if (++failures_ < kFailuresMax) return;
    failures_ = 0;
    paused_until_ = now + kPause;
  }
  bool paused(Nanos now) const { return now < paused_until_; }
  // True: it was silent, and has given a move up a moment ago.
  bool gives_up(Nanos now) const { return now < gives_up_until_; }
  Nanos gives_up_until() const { return gives_up_until_; }
  Nanos paused_until() const { return paused_until_; }

 private:
  std::uint32_t failures_ = 0;  // in a row
  Nanos answered_ = -kNever;    // never
  Nanos gives_up_until_ = 0;
  Nanos paused_until_ = 0;
};

}  // namespace loci
