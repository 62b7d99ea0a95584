// SPDX-License-Identifier: Apache-2.0
// Says once, from a thread of its own, that an end takes longer than it should.
#pragma once

#include <chrono>
#include <functional>
#include <system_error>
#include <thread>
#include <utility>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"

namespace loci {

// Made when the end begins, destroyed when it is over.
class SlowEnd {
 public:
  // Where the system has no thread left, nothing is said: the end goes on.
  SlowEnd(Nanos limit, std::function<void()> say) {
    try {
      thread_ = std::thread([this, limit, say = std::move(say)] {
        if (!is_over_within(limit)) say();
      });
    } catch (const std::system_error&) {
    }
  }
  ~SlowEnd() {
    {
      const MutexLock lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  SlowEnd(const SlowEnd&) = delete;
  SlowEnd& operator=(const SlowEnd&) = delete;

 private:
  bool is_over_within(Nanos limit) {
    MutexLock lock(mutex_);
    return over_.wait_for(lock, std::chrono::nanoseconds(limit),
                          [this]() REQUIRES(mutex_) { return is_over_; });
  }

  Mutex mutex_;
  bool is_over_ GUARDED_BY(mutex_) = false;
  Condition over_;
  std::thread thread_;
};

}  // namespace loci
