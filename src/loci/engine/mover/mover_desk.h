// SPDX-License-Identifier: Apache-2.0
// Collects the ends of moves, and lets a mover's thread wait for them.
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

  void taken(const std::vector<Move>& moves);
  // Reports the end of a move; called once for each move.
  // `came`: as in MoveOutcome.
  void end(const Move& move, MoveResult result, Nanos begun, bool came = false);
  // The moves that have ended since the last call.
  std::vector<MoveOutcome> take_ended();

  // Waits until a move has ended, wake() was called, or the time `until` has come (kNever: no limit).
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

// A transfer's status in the core's terms.
MoveResult result_of(const Status& status);

}  // namespace loci
