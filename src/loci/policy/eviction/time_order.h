// SPDX-License-Identifier: Apache-2.0
// lru and fifo: by one of the facts' times alone, the earliest first. Blocks behind every window go before
// all others. Ties are broken by depth, the deepest first. A block's users use all blocks before it too, so
// lru makes no holes.
#pragma once

#include "loci/memory/eviction_order.h"
#include "loci/policy/eviction/block_rank.h"
#include "loci/policy/eviction/rank_runs.h"

namespace loci {

// As EvictionOrder, and RankRuns.
template <Nanos EvictionFacts::* kTime>
class TimeOrder final : public EvictionOrder {
 public:
  void insert(BlockId block, const EvictionFacts& facts) override { ranks_.insert(rank(block, facts)); }
  void erase(BlockId block, const EvictionFacts& facts) override { ranks_.erase(rank(block, facts)); }
  BlockId choose(Nanos) override { return ranks_.empty() ? kNoBlock : ranks_.first().block; }
  BlockId soon() const override { return ranks_.empty() ? kNoBlock : ranks_.soon().block; }
  std::size_t size() const override { return ranks_.size(); }

 private:
  // By whether it is not behind the window; then by the time.
  static BlockRank rank(BlockId block, const EvictionFacts& facts) {
    return {facts.behind_window ? 0 : 1, facts.*kTime, facts, block};
  }
  RankRuns<BlockRank> ranks_;
};

using LruOrder = TimeOrder<&EvictionFacts::last_used>;
using FifoOrder = TimeOrder<&EvictionFacts::born>;

}  // namespace loci
