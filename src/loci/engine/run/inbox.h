// SPDX-License-Identifier: Apache-2.0
// The queue of the core's thread: requests, callers' messages about them, ends of moves, and the disk's
// entries from before.
//
//     callers    post(a)        post(b)
//     mover               post(ends)
//     core       take() -> [a, ends]     take() -> [b]     in portions: another thread steps too
//
// Its length is bounded by its users: callers by their connections (the core at once refuses requests beyond
// its own queue), movers by the moves in flight, the disk's recovery by a few batches.
#pragma once

#include <cstddef>
#include <deque>
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
  std::uint32_t said_tokens = 0;  // GenerationRequest's
  bool tells_computed = false;    // too
  bool repeats_prompt = false;    // too
  GenerationListener listener;
  std::shared_ptr<const PromptNames> text;  // for the blocks' listener; null: it is not told
  std::vector<ChainKey> keys;               // too: of the prompt's whole blocks
};

using InboxItem =
    std::variant<Submission, Cancel, Drain, Withdraw, MovesEnded, Recovered, DiskRoom, Forget, CostsMeasured,
                 Pause, SharedAnswer, MemoryRoom, PeerQuestion, PeerRead, PeerLeft>;

// Thread-safe; one thread calls take(), one post_recovered(). Nothing is called under its mutex.
class Inbox {
 public:
  static constexpr std::size_t kTakenAtOnce = 64;

  void post(InboxItem item) EXCLUDES(mutex_);
  // Posts the disk's entries in small batches, of which a few wait to be taken. Waits meanwhile. After stop()
  // it returns early and drops the rest.
  void post_recovered(Recovered found) EXCLUDES(mutex_);
  // Posts ends of moves, a few in an item: some thousand may have ended together.
  void post_ended(MovesEnded ended) EXCLUDES(mutex_);
  // Says that another thread has stepped the core: take() returns, perhaps without items.
  void note_step() EXCLUDES(mutex_);

  // Waits for items or note_step(), for at most `most` (kNever: no limit). `items`, which must be empty, gets
  // the first kTakenAtOnce items at most, in the order in which they were posted; others may step the core
  // before the next. False: stop() was called.
  bool take(std::vector<InboxItem>& items, Nanos most) EXCLUDES(mutex_);
  bool empty() const EXCLUDES(mutex_);
  void stop() EXCLUDES(mutex_);

 private:
  // False: stop() was called.
  bool post_batch(Recovered batch) EXCLUDES(mutex_);

  mutable Mutex mutex_;
  Condition changed_;
  Condition batch_taken_;
  std::deque<InboxItem> items_ GUARDED_BY(mutex_);
  std::size_t batches_ GUARDED_BY(mutex_) = 0;  // of post_recovered(), among the items
  bool stepped_ GUARDED_BY(mutex_) = false;
  bool stopping_ GUARDED_BY(mutex_) = false;
};

}  // namespace loci
