// SPDX-License-Identifier: Apache-2.0
// How fast places in the queue become free, to tell refused clients when to try again.
//
// An example: while others wait, requests end at 0 ms, 100 ms and 200 ms: one in 100 ms.
//
//     refuse() -> 100 ms    the first place that becomes free is for this client
//     refuse() -> 200 ms    the second is for this one
//     ended()               at 300 ms
//     refuse() -> 200 ms    one of the two before it has its place by now
//
// It owns the mean time between ends, and how many were refused and have no place yet. It requires that time
// does not go back. It promises between a millisecond and a minute, and counts a second for each end while it
// has measured none. It calls nobody. Invariants, which check_invariants() tests (core.h has all):
//   7. Nobody is told to wait for ever: what was measured are times that have passed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "loci/base/check.h"
#include "loci/base/clock.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(1).
class QueueRate {
 public:
  // Says that a request has ended. The rate is measured only while others wait.
  void ended(Nanos now, bool others_wait) {
    if (last_end_) {
      const Nanos interval = now - *last_end_;
      end_interval_ = end_interval_ == 0 ? interval : (end_interval_ * (kWeight - 1) + interval) / kWeight;
    }
    last_end_ = others_wait ? std::optional<Nanos>(now) : std::nullopt;
    if (refused_since_end_ > 0) --refused_since_end_;
  }

  // Says that a request is refused. Returns when a place should be free for it: after as many ends from now
  // on as requests were refused before it.
  Nanos refuse() {
    const Nanos ends = refused_since_end_++ + Nanos{1};
    const Nanos interval = end_interval_ == 0 ? kUnknown : end_interval_;
    if (interval >= kMost / ends) return kMost;
    return std::max(interval * ends, kNanosPerMilli);
  }

  // Aborts on a broken invariant.
  void check_invariants(Nanos now) const {
    LOCI_CHECK(end_interval_ >= 0 && end_interval_ <= now && last_end_.value_or(0) <= now,
               "invariant 7: the time between ends has passed");
  }

 private:
  static constexpr Nanos kUnknown = kNanosPerSecond;  // used while no end was seen yet
  static constexpr Nanos kMost = 60 * kNanosPerSecond;
  static constexpr Nanos kWeight = 8;  // weight of the past in the moving mean

  std::optional<Nanos> last_end_;
  Nanos end_interval_ = 0;  // moving mean of the time between ends; 0: none seen
  std::uint32_t refused_since_end_ = 0;
};

}  // namespace loci
