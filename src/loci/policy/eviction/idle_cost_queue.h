// SPDX-License-Identifier: Apache-2.0
// Blocks by cost / idle time, the least first: the retention value V = Cost / T (Pensieve §4.3.1). The idle
// time may count from before the last use (`before`).
//
// As time goes by the order changes: a cheap block that was used a moment ago overtakes a dear one that has
// been idle long. So no sorted structure holds it. But of two blocks of the same cost the one that has been
// idle longer always comes first. Blocks are kept in buckets by their cost, four for each power of two, and
// inside each by their last use; whoever asks for the least compares the heads of the buckets by their exact
// values.
//
// The answer's value is less than 2^(1/4) = 1.19 times the least one: the least one's bucket has a head
// that has been idle as long or longer, and costs less than 2^(1/4) times as much. Where all blocks have the
// same last use (a conversation that nobody goes on with) it is the exact least.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "loci/base/clock.h"
#include "loci/memory/eviction_order.h"
#include "loci/policy/eviction/block_rank.h"
#include "loci/policy/eviction/rank_runs.h"

namespace loci {

// floor(4 log2(cost)); -1 for 0. `cost` is not negative.
int cost_bucket(Nanos cost);
// How many values cost_bucket() has: -1 to 4 * 63 - 1.
inline constexpr std::size_t kCostBuckets = 4 * 63 + 1;

// Thread-compatible; deterministic.
class IdleCostQueue {
 public:
  explicit IdleCostQueue(Nanos before = 0) : before_(before) {}
  // `cost`: not negative. Among equal ones the deepest block is the first. As RankRuns.
  void insert(BlockId block, Nanos cost, Nanos last_used, std::uint32_t depth);
  // With what it was inserted with.
  void erase(BlockId block, Nanos cost, Nanos last_used, std::uint32_t depth);
  // The block was used again: its last use was `before` and is `after`; its cost and depth are the same.
  void use(BlockId block, Nanos cost, Nanos before, Nanos after, std::uint32_t depth);
  // kNoBlock where there is none. O(buckets that hold something).
  BlockId least(Nanos now) const;
  // EvictionOrder::soon(), as far as that is known from the last call of least().
  BlockId soon() const { return soon_; }
  std::size_t size() const { return size_; }

 private:
  using Bucket = RankRuns<BlockRank>;  // by the last use; then by the cost
  static std::size_t place_of(Nanos cost) { return static_cast<std::size_t>(cost_bucket(cost) + 1); }
  Bucket& bucket_with(std::size_t place);

  const Nanos before_;
  // A step asks for buckets thousands of times, so each is found without a search. Null: it never had any.
  std::array<std::unique_ptr<Bucket>, kCostBuckets> buckets_;
  std::vector<std::size_t> held_;  // places of those that hold something, in ascending order
  mutable BlockId soon_ = kNoBlock;
  std::size_t size_ = 0;
};

}  // namespace loci
