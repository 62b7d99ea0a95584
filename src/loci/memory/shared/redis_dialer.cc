// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_dialer.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace loci {

RedisDialer::RedisDialer(Dial dial, std::function<void(const Status&)> told, const Clock& clock)
    : dial_(std::move(dial)), told_(std::move(told)), clock_(clock), thread_([this] { run(); }) {}

RedisDialer::~RedisDialer() {
  {
    const MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void RedisDialer::begin() {
  {
    const MutexLock lock(mutex_);
    if (made_ != nullptr) return;
    is_wanted_ = true;
  }
  changed_.notify_all();
}

std::unique_ptr<RedisConnection> RedisDialer::take(Nanos deadline) {
  begin();
  MutexLock lock(mutex_);
  const auto left = std::chrono::nanoseconds(std::max<Nanos>(0, deadline - clock_.now()));
  changed_.wait_for(lock, left,
                    [this]() REQUIRES(mutex_) { return made_ != nullptr || !is_wanted_ || is_stopping_; });
  return std::exchange(made_, nullptr);
}

void RedisDialer::run() {
  pthread_setname_np(pthread_self(), "loci-redis-dial");
  MutexLock lock(mutex_);
  while (true) {
    changed_.wait(lock,
                  [this]() REQUIRES(mutex_) { return is_stopping_ || (is_wanted_ && made_ == nullptr); });
    if (is_stopping_) return;
    lock.unlock();
    Result<std::unique_ptr<RedisConnection>> made = dial_();
    told_(made.status());
    lock.lock();
    is_wanted_ = false;
    if (made.ok()) made_ = std::move(made).value();
    changed_.notify_all();
  }
}

}  // namespace loci
