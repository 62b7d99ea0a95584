// SPDX-License-Identifier: Apache-2.0
// lookahead (AttentionStore §3.3.2): first what no waiting request of the window needs, least recently used
// first; then the window from its tail to its head.
//
// The paper's unit is a whole session. Here it is a block, and among those of one session the deepest goes
// first, so that what is left of it is a prefix. What lies behind every window of attention goes before all.
#pragma once

#include <set>
#include <tuple>

#include "loci/base/check.h"
#include "loci/memory/eviction_order.h"

namespace loci {

// As EvictionOrder; O(log blocks).
class LookaheadOrder final : public EvictionOrder {
 public:
  void insert(BlockId block, const EvictionFacts& facts) override { ranks_.insert(rank(block, facts)); }
  void erase(BlockId block, const EvictionFacts& facts) override {
    const std::size_t erased = ranks_.erase(rank(block, facts));
    LOCI_CHECK(erased == 1, "only what is in the order leaves it");
  }
  BlockId choose(Nanos) override { return ranks_.empty() ? kNoBlock : std::get<BlockId>(*ranks_.begin()); }
  std::size_t size() const override { return ranks_.size(); }
  bool spares_wanted() const override { return true; }

 private:
  // Not behind; place in the queue, none or the last first; last use; depth, the deepest first; block.
  using Rank = std::tuple<bool, std::uint32_t, Nanos, std::uint32_t, BlockId>;
  static Rank rank(BlockId block, const EvictionFacts& facts) {
    static_assert(kNotWanted == UINT32_MAX, "what is not wanted comes behind the window's tail");
    return {!facts.behind, UINT32_MAX - facts.wanted, facts.last_used, UINT32_MAX - facts.depth, block};
  }
  std::set<Rank> ranks_;
};

}  // namespace loci
