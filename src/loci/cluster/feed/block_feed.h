// SPDX-License-Identifier: Apache-2.0
// What an instance publishes about its state: for each chunk of a prompt's text the tier of the block that
// ends about there, as numbered changes and as pages of everything (feed_wire.h).
//
// Text has names that fronts can make of a request too (cluster/routed_request.h); blocks have chain keys,
// which nobody without the model can make. The two meet when a request has come and its tokens are known: of
// n chunks and m tokens the chunk i is taken to end at the token m * (i + 1) / n. An example, a prompt of
// five chunks and three whole blocks:
//
//     text    |  t1  |  t2  |  t3  |  t4  |  t5  |       t1 and t2 are published as being where b1 is,
//     tokens  |    b1    |    b2    |    b3   |..        t3 and t4 where b2 is, t5 where b3 is.
//
// Of a long prompt only some chunks have names, and are published (policy/routing/named_chunks.h).
//
// Of one prompt a block gets as many chunks as it may have; the chunks before them get none.
//
// The end by which a conversation or response is continued has a name too; it is where the prompt's last
// whole block is. Such a name is needed because later requests do not contain the earlier text.
//
// The core tells, and must not wait: what it tells goes to a queue, under a mutex that is held for some
// copies only. Who asks takes the queue in first, in steps of a bounded size. If nobody asks, and the queue
// is full, the core takes in one step.
//
// At most kFeedChunksMax chunks are published (published_chunks.h has the rules).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "loci/base/mutex.h"
#include "loci/cluster/feed/feed_wire.h"
#include "loci/cluster/feed/published_chunks.h"
#include "loci/engine/run/block_listener.h"
#include "loci/memory/chain_key.h"
#include "loci/policy/cost_model.h"

namespace loci {

struct BlockFeedOptions {
  std::uint64_t epoch = 1;  // not 0, and another one at each start
  // Of a block, in all groups of layers.
  std::uint64_t block_bytes = 0;
  // What reads from peers cost beside a shared store, whose reads the costs know; absent: theirs they know.
  std::optional<LinkCost> peer_read = std::nullopt;
  PublishedChunksOptions chunks = {};
};

// Thread-safe.
class BlockFeed final : public BlockListener {
 public:
  explicit BlockFeed(const BlockFeedOptions& options);

  void prompt(const PromptNames& text, std::span<const ChainKey> keys, std::size_t tokens) override
      EXCLUDES(queue_mutex_, mutex_);
  void moved(std::span<const BlockPlace> places) override EXCLUDES(queue_mutex_, mutex_);
  void costs(const CostCurves& curves) override EXCLUDES(queue_mutex_);

  // All three tell of all that was told before the call.
  FeedChanges changes(const FeedQuestion& question) EXCLUDES(queue_mutex_, mutex_);
  FeedPage page(const FeedPageQuestion& question) EXCLUDES(queue_mutex_, mutex_);
  FeedStats stats() EXCLUDES(queue_mutex_, mutex_);
  // Aborts on a broken invariant. O(all).
  void check_invariants() const EXCLUDES(mutex_);

 private:
  // That the chunk of that name has the block; without a name: that the block is in that tier now.
  struct Change {
    ChainKey block;
    std::uint64_t name = 0;
    std::uint64_t tenant = 0;
    std::optional<Tier> tier;
    PublishedChunks::Keep keep = PublishedChunks::Keep::kNothing;
  };

  void tell(std::span<const Change> told) EXCLUDES(queue_mutex_, mutex_);
  void catch_up() EXCLUDES(queue_mutex_, mutex_);
  // Takes some of the queue in. False: there was nothing. What is taken in no more, because memory is short,
  // stays in the queue.
  bool take_step() EXCLUDES(queue_mutex_, mutex_);
  void end_step(std::size_t taken) EXCLUDES(queue_mutex_);
  FeedCosts costs_now() const EXCLUDES(queue_mutex_);

  const BlockFeedOptions options_;

  mutable Mutex queue_mutex_;
  Condition step_ended_;
  // One thread at a time takes a step, so that what is told is taken in in its order.
  bool takes_step_ GUARDED_BY(queue_mutex_) = false;
  std::vector<Change> queue_ GUARDED_BY(queue_mutex_);  // a ring
  std::size_t queue_begin_ GUARDED_BY(queue_mutex_) = 0, queue_count_ GUARDED_BY(queue_mutex_) = 0;
  CostCurves curves_ GUARDED_BY(queue_mutex_);

  mutable Mutex mutex_;
  PublishedChunks chunks_ GUARDED_BY(mutex_);
  std::uint64_t gaps_ GUARDED_BY(mutex_) = 0;
};

}  // namespace loci
