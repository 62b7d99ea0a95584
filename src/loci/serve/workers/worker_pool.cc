// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/workers/worker_pool.h"

#include <chrono>

namespace loci {

bool WorkerPool::stands_still(std::string_view tenant) {
  if (!waits_) return false;
  const MutexLock lock(mutex_);
  return jobs_.waiting_of(tenant) >= waits_->waiting_max &&
         std::chrono::steady_clock::now() - got_on_at_ > std::chrono::nanoseconds(waits_->still_after);
}

void WorkerPool::add(std::string_view tenant, FairJobs::Job job) {
  {
    const MutexLock lock(mutex_);
    if (running_ == 0 && jobs_.waiting() == 0) got_on_at_ = std::chrono::steady_clock::now();
    jobs_.add(tenant, std::move(job));
  }
  boost::asio::post(pool_, [this] { work(); });
}

void WorkerPool::work() {
  std::optional<FairJobs::Next> next;
  {
    const MutexLock lock(mutex_);
    next = jobs_.take();
    if (next) ++running_;
  }
  // What waits is of tenants that run as many as they may; the end of one of those looks again.
  if (!next) return;
  const auto begin = std::chrono::steady_clock::now();
  next->job();
  next->job = nullptr;  // what it held goes before its turn has ended
  const auto took =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - begin);
  bool more = false;
  {
    const MutexLock lock(mutex_);
    jobs_.ended(next->tenant, std::max<Nanos>(took.count(), 1));
    --running_;
    got_on_at_ = begin + took;
    more = jobs_.waiting() > 0;
  }
  if (more) boost::asio::post(pool_, [this] { work(); });
}

}  // namespace loci
