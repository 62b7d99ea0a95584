// SPDX-License-Identifier: Apache-2.0
// When a front asks an instance again whose feed failed (cluster/feed_reader.h).
#pragma once

#include <algorithm>
#include <optional>
#include <utility>

#include "loci/base/clock.h"

namespace loci {

// How long one instance is left alone after each failure and each gap: longer each time, whatever it answers
// between them, until nothing has happened for kCalm. A value.
class FeedPauses {
 public:
  static constexpr Nanos kPauseMin = kNanosPerSecond, kPauseMax = 8 * kNanosPerSecond;
  static constexpr Nanos kCalm = 30 * kNanosPerSecond;  // after the pause

  Nanos next(Nanos now) {
    if (ended_at_ && now - *ended_at_ > kCalm) pause_ = kPauseMin;
    const Nanos pause = std::exchange(pause_, std::min(2 * pause_, kPauseMax));
    ended_at_ = now + pause;
    return pause;
  }

 private:
  Nanos pause_ = kPauseMin;
  std::optional<Nanos> ended_at_;  // the latest one
};

}  // namespace loci
