// SPDX-License-Identifier: Apache-2.0
// Where those who carry out moves report how each ended, and what a mover's thread waits at.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/engine/mover/mover.h"

namespace loci {

// Thread-safe.
class MoverDesk {
 public:
  // `info` and `clock` must outlive it.
  MoverDesk(const BackendInfo& info, const Clock& clock) : info_(info), clock_(clock) {}

  Nanos now() const { return clock_.now(); }
  std::uint64_t bytes_of(const Move& move) const;

  void taken(std::size_t moves);
  // Once for each move that was taken.
  void end(const Move& move, MoveResult result, Nanos begun);
  // What has ended since the last call.
  std::vector<MoveOutcome> take_ended();

  // Until something ended, wake() was called or the time has come (kNever: it does not).
  void wait(Nanos until);
  void wake();

  MoverStats stats() const;

 private:
  const BackendInfo& info_;
  const Clock& clock_;
  mutable Mutex mutex_;
  Condition woken_;
  bool awake_ GUARDED_BY(mutex_) = false;
  std::vector<MoveOutcome> ended_ GUARDED_BY(mutex_);
  MoverStats stats_ GUARDED_BY(mutex_);
};

// How a status of a transfer is told to the core.
MoveResult result_of(const Status& status);

}  // namespace loci
