// SPDX-License-Identifier: Apache-2.0
// How long a server leaves a tenant alone whose row another server has just now.
//
// Each try that finds the row taken doubles the pause, up to a bound. The pause is drawn between its half and
// all of it, so that servers that met at a row do not meet again. Whoever has waited longest asks most often:
// a pause takes at most an eighth of the time after which the first who waits is given up.
//
//     waits since   0     5    14    30 ms ...    940 ms       (given up after 1,000)
//     pause         5     10   20    40           5            of which it takes 2.5 to 5, 5 to 10, ...
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "loci/base/random.h"

namespace loci {

// Of one tenant. Thread-compatible.
class LockedPause {
 public:
  using Duration = std::chrono::nanoseconds;
  static constexpr Duration kFirst = std::chrono::milliseconds(5);
  static constexpr Duration kMost = std::chrono::milliseconds(40);

  // After one more try that found the row taken. `left`: until the first who waits is given up.
  Duration next(Duration left, Random& random) {
    const Duration doubled = std::min(kMost, kFirst * (1u << tries_));
    if (doubled < kMost) ++tries_;
    const Duration pause = std::clamp(left / 8, kFirst, doubled);
    return pause / 2 + Duration(random.below(static_cast<std::uint64_t>(pause.count()) / 2 + 1));
  }
  // The tenant was counted.
  void reset() { tries_ = 0; }

 private:
  std::uint32_t tries_ = 0;  // bounded by the pause
};

}  // namespace loci
