// SPDX-License-Identifier: Apache-2.0
// Where the compute thread waits while no pass is in flight: for a planned pass, for the end, or for a quiet
// time in which it may do other work.
#pragma once

#include <chrono>
#include <functional>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/engine/run/engine.h"

namespace loci {

// Thread-safe; only one thread calls wait(). Nothing is called under its mutex.
class ComputeDesk {
 public:
  // Call it when a pass was planned: wait() returns, or the idle work is asked to stop.
  void note_planned() EXCLUDES(mutex_);
  // Engine::when_idle().
  void when_idle(Nanos quiet, IdleWork work) EXCLUDES(mutex_);
  void stop() EXCLUDES(mutex_);

  // Waits for note_planned(). If none comes for the quiet time of when_idle(), calls `work_idly` with its
  // work on this thread; and again after each further quiet time, until that returns true because the work is
  // done. Returns false if stop() was called.
  bool wait(const std::function<bool(const IdleWork&)>& work_idly) EXCLUDES(mutex_);
  // True: a pass or the end waits, so idle work should stop.
  bool is_called() const EXCLUDES(mutex_);

 private:
  bool called() const REQUIRES(mutex_) { return stopping_ || planned_; }

  mutable Mutex mutex_;
  Condition changed_;
  bool planned_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
  IdleWork idle_work_ GUARDED_BY(mutex_);  // empty: there is none, or it is done
  std::chrono::nanoseconds idle_quiet_ GUARDED_BY(mutex_){0};
};

}  // namespace loci
