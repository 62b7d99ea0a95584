// SPDX-License-Identifier: Apache-2.0
// What the compute thread waits at while no pass is in flight: for a pass that was planned, for a time
// without any, in which it may do other work, and for the end.
#pragma once

#include <chrono>
#include <functional>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/engine/run/engine.h"

namespace loci {

// Thread-safe; wait() is one thread's. Nothing is called under its mutex.
class ComputeDesk {
 public:
  // A pass was planned: wait() returns, or the idle work is asked to stop.
  void note_planned() EXCLUDES(mutex_);
  // Engine::when_idle().
  void when_idle(Nanos quiet, IdleWork work) EXCLUDES(mutex_);
  void stop() EXCLUDES(mutex_);

  // Waits for note_planned(). Once nothing came for the time of when_idle(), its work is given to
  // `work_idly`, on this thread; again after as long, until that returns true: it is done. False: stop() was
  // called.
  bool wait(const std::function<bool(const IdleWork&)>& work_idly) EXCLUDES(mutex_);
  // A pass waits, or the end does: idle work should stop.
  bool is_called() const EXCLUDES(mutex_);

 private:
  bool called() const REQUIRES(mutex_) { return stopping_ || planned_; }

  mutable Mutex mutex_;
  Condition changed_;
  bool planned_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  IdleWork idle_work_ GUARDED_BY(mutex_);  // empty: none, or it is done
  std::chrono::nanoseconds idle_quiet_ GUARDED_BY(mutex_){0};
};

}  // namespace loci
