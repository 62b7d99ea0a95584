// SPDX-License-Identifier: Apache-2.0
// Limits how much reads and writes together move in a second (option io_limit). Each operation takes the time
// that its bytes take at the rate. The next one may begin when all but kAhead of the time taken so far has
// passed, so that the disk is busy between two polls. If a poll comes late, because threads that compute had
// the processors, operations that waited for the rate alone make up for at most kLate of it. So in any time t
// no more than rate * (t + kAhead + kLate) bytes and one operation are begun.
#pragma once

#include <algorithm>
#include <cstdint>

#include "loci/base/clock.h"

namespace loci {

// Thread-compatible.
class IoRate {
 public:
  static constexpr Nanos kAhead = 2 * kNanosPerMilli;
  static constexpr Nanos kLate = 20 * kNanosPerMilli;

  // 0: no limit.
  explicit IoRate(std::uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // How long from `now` on the next operation must wait; 0: it may begin.
  Nanos wait(Nanos now) const { return std::max<Nanos>(0, paid_at_ - kAhead - now); }
  // An operation of so many bytes begins.
  void begin(std::uint64_t bytes, Nanos now) {
    if (bytes_per_second_ == 0) return;
    const auto takes = static_cast<unsigned __int128>(bytes) * kNanosPerSecond / bytes_per_second_;
    paid_at_ = std::max(paid_at_, held_ ? now - kLate : now) + static_cast<Nanos>(takes);
  }
  // Whether operations wait for the rate and for nothing else.
  void hold(bool held) { held_ = held; }

 private:
  std::uint64_t bytes_per_second_;
  Nanos paid_at_ = 0;  // for all that has begun
  bool held_ = false;
};

}  // namespace loci
