// SPDX-License-Identifier: Apache-2.0
// Jobs that wait for one of a store's threads. The users bound their number.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <utility>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"

namespace loci {

// Thread-safe.
template <class Job>
class JobQueue {
 public:
  void push(Job job) {
    {
      const MutexLock lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }
  std::size_t size() const {
    const MutexLock lock(mutex_);
    return jobs_.size();
  }
  // Waits at most `time` (kNever: without a limit); absent: nothing came, or it is drained.
  std::optional<Job> pop(Nanos time) {
    MutexLock lock(mutex_);
    const auto ready = [this]() REQUIRES(mutex_) { return closed_ || !jobs_.empty(); };
    if (time == kNever) {
      changed_.wait(lock, ready);
    } else {
      changed_.wait_for(lock, std::chrono::nanoseconds(time), ready);
    }
    if (jobs_.empty()) return std::nullopt;
    std::optional<Job> job(std::move(jobs_.front()));
    jobs_.pop_front();
    return job;
  }
  void close() {
    {
      const MutexLock lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  // Closed, and nothing is left.
  bool is_drained() const {
    const MutexLock lock(mutex_);
    return closed_ && jobs_.empty();
  }

 private:
  mutable Mutex mutex_;
  Condition changed_;
  std::deque<Job> jobs_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
};

}  // namespace loci
