// SPDX-License-Identifier: Apache-2.0
// Whether a link that failed again and again is asked for anything: after kFailures in a row it is left alone
// for kPause, then tried again.
#pragma once

#include <cstdint>

#include "loci/base/clock.h"

namespace loci {

class LinkBreaker {
 public:
  static constexpr std::uint32_t kFailures = 8;
  static constexpr Nanos kPause = 10 * kNanosPerSecond;

  void succeeded() { failures_ = 0; }
  void failed(Nanos now) {
    if (++failures_ < kFailures) return;
    failures_ = 0;
    paused_until_ = now + kPause;
  }
  bool closed(Nanos now) const { return now < paused_until_; }

 private:
  std::uint32_t failures_ = 0;  // in a row
  Nanos paused_until_ = 0;
};

}  // namespace loci
