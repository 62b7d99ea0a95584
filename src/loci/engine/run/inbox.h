// SPDX-License-Identifier: Apache-2.0
// What waits for the core's thread: requests, what callers say of them, the ends of moves, what the disk held
// before.
//
//     callers    post(a)        post(b)
//     mover               post(ends)
//     core       take() -> [a, ends]     take() -> [b]
//
// Its length is bounded by those who post: callers by their connections (the core refuses beyond its own
// queue at once), movers by the moves in flight, the disk's recovery by one batch.
#pragma once

#include <memory>
#include <variant>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/mutex.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/run/engine.h"
#include "loci/engine/run/sampler.h"

namespace loci {

struct Submission {
  Arrival arrival;
  std::shared_ptr<Sampler> sampler;
  GenerationListener listener;
};

using InboxItem =
    std::variant<Submission, Cancel, Drain, Withdraw, MovesEnded, Recovered, DiskRoom, Forget, CostsMeasured,
                 Pause, SharedAnswer, MemoryRoom, PeerQuestion, PeerRead, PeerLeft>;

// Thread-safe; take() is one thread's, and so is post_recovered(). Nothing is called under its mutex.
class Inbox {
 public:
  void post(InboxItem item) EXCLUDES(mutex_);
  // In batches of about a millisecond's work for the core, each once the one before was taken. Waits; returns
  // early, with the rest dropped, at stop().
  void post_recovered(Recovered found) EXCLUDES(mutex_);
  // The core was stepped by another thread: take() returns, although there may be no item.
  void note_step() EXCLUDES(mutex_);

  // Waits for items, for note_step(), or at most `most` (kNever: without end). `items`, which is empty, gets
  // them in the order in which they were posted. False: stop() was called.
  bool take(std::vector<InboxItem>& items, Nanos most) EXCLUDES(mutex_);
  bool empty() const EXCLUDES(mutex_);
  void stop() EXCLUDES(mutex_);

 private:
  // False: it is stopped.
  bool post_batch(Recovered batch) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  Condition changed_;
  Condition batch_taken_;
  std::vector<InboxItem> items_ GUARDED_BY(mutex_);
  bool batch_waits_ GUARDED_BY(mutex_) = false;  // of post_recovered(), among the items
  bool stepped_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace loci
