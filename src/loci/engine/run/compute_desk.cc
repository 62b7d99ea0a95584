// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/run/compute_desk.h"

#include <utility>

namespace loci {

void ComputeDesk::note_planned() {
  {
    const MutexLock lock(mutex_);
    planned_ = true;
  }
  changed_.notify_one();
}

void ComputeDesk::when_idle(Nanos quiet, IdleWork work) {
  {
    const MutexLock lock(mutex_);
    idle_quiet_ = std::chrono::nanoseconds(quiet);
    idle_work_ = std::move(work);
  }
  changed_.notify_one();
}

void ComputeDesk::stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
}

bool ComputeDesk::wait(const std::function<bool(const IdleWork&)>& work_idly) {
  MutexLock lock(mutex_);
  while (!called()) {
    if (!idle_work_) {
      changed_.wait(lock, [this]() REQUIRES(mutex_) { return called() || idle_work_; });
    } else if (!changed_.wait_for(lock, idle_quiet_, [this]() REQUIRES(mutex_) { return called(); })) {
      const IdleWork work = idle_work_;
      lock.unlock();
      const bool is_over = work_idly(work);
      lock.lock();
      if (is_over) idle_work_ = nullptr;
    }
  }
  planned_ = false;
  return !stopping_;
}

bool ComputeDesk::is_called() const {
  const MutexLock lock(mutex_);
  return called();
}

}  // namespace loci
