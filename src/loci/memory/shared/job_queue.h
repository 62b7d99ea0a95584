// SPDX-License-Identifier: Apache-2.0
// What waits for one of a store's threads. Its users bound it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "loci/base/clock.h"

namespace loci {

// Thread-safe.
template <class Job>
class JobQueue {
 public:
  void push(Job job) {
    {
      std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }
  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return jobs_.size();
  }
  // Waits at most `time` (kForEver: without a limit); absent: nothing came, or it is closed and empty.
  static constexpr Nanos kForEver = -1;
  std::optional<Job> pop(Nanos time) {
    std::unique_lock lock(mutex_);
    const auto ready = [&] { return closed_ || !jobs_.empty(); };
    if (time == kForEver) {
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
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
  }
  bool closed() const {
    std::lock_guard lock(mutex_);
    return closed_ && jobs_.empty();
  }

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool closed_ = false;
};

}  // namespace loci
