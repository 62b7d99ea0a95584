// SPDX-License-Identifier: Apache-2.0
// lru and fifo: by one of the facts' times alone, the earliest first. Blocks behind every window go before
// all others. Ties are broken by depth, the deepest first. A block's users use all blocks before it too, so
// lru makes no holes.
#pragma once

#include <tuple>

#include "loci/memory/eviction_order.h"
#include "loci/policy/eviction/rank_runs.h"

namespace loci {

// As EvictionOrder, and RankRuns.
template <Nanos EvictionFacts::* kTime>
class TimeOrder final : public EvictionOrder {
 public:
  void insert(BlockId block, const EvictionFacts& facts) override { ranks_.insert(rank(block, facts)); }
  void erase(BlockId block, const EvictionFacts& facts) override { ranks_.erase(rank(block, facts)); }
  BlockId choose(Nanos) override { return ranks_.empty() ? kNoBlock : std::get<BlockId>(ranks_.first()); }
  BlockId soon() const override { return ranks_.empty() ? kNoBlock : std::get<BlockId>(ranks_.soon()); }
  std::size_t size() const override { return ranks_.size(); }

 private:
  // Not behind the window; time; depth, the deepest first; block.
  using Rank = std::tuple<bool, Nanos, std::uint32_t, BlockId>;
  static Rank rank(BlockId block, const EvictionFacts& facts) {
    return {!facts.behind_window, facts.*kTime, UINT32_MAX - facts.depth, block};
  }
  RankRuns<Rank> ranks_;
};

using LruOrder = TimeOrder<&EvictionFacts::last_used>;
using FifoOrder = TimeOrder<&EvictionFacts::born>;

}  // namespace loci
