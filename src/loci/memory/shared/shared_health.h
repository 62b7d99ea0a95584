// SPDX-License-Identifier: Apache-2.0
// Whether a shared store is asked at all. After kFailuresMax failures in a row, of any operations, it is left
// alone until a probe succeeds; there is one every kPause. So a dead or silent store makes a few operations
// wait for their deadlines, and no others.
#pragma once

#include <cstdint>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"

namespace loci {

// Thread-safe.
class SharedHealth {
 public:
  static constexpr std::uint32_t kFailuresMax = 3;
  static constexpr Nanos kPause = 2 * kNanosPerSecond;

  bool up() const {
    const MutexLock lock(mutex_);
    return up_;
  }
  // When the store that is down is to be probed.
  Nanos probe_at() const {
    const MutexLock lock(mutex_);
    return probe_at_;
  }
  // True: it was down until now.
  bool succeeded() {
    const MutexLock lock(mutex_);
    failures_ = 0;
    return !std::exchange(up_, true);
  }
  // True: it is down from now on.
  bool failed(Nanos now) {
    const MutexLock lock(mutex_);
    probe_at_ = now + kPause;
    return ++failures_ >= kFailuresMax && std::exchange(up_, false);
  }
  // The same at once: nobody is there to begin with.
  void begin_down(Nanos now) {
    const MutexLock lock(mutex_);
    up_ = false;
    probe_at_ = now + kPause;
  }

 private:
  mutable Mutex mutex_;
  std::uint32_t failures_ GUARDED_BY(mutex_) = 0;  // in a row
  bool up_ GUARDED_BY(mutex_) = true;
  Nanos probe_at_ GUARDED_BY(mutex_) = 0;
};

}  // namespace loci
