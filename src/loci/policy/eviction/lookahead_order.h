// SPDX-License-Identifier: Apache-2.0
// lookahead (AttentionStore §3.3.2): first what no waiting request of the window needs, least recently used
// first; then the window from its tail to its head.
//
// The paper's unit is a whole session. Here it is a block, and among those of one session the deepest goes
// first, so that what is left of it is a prefix. What lies behind every window of attention goes before all.
#pragma once

#include <tuple>

#include "loci/memory/eviction_order.h"
#include "loci/policy/eviction/rank_runs.h"

namespace loci {

// As EvictionOrder, and RankRuns.
class LookaheadOrder final : public EvictionOrder {
 public:
  void insert(BlockId block, const EvictionFacts& facts) override {
    ranks_of(facts).insert(rank(block, facts));
  }
  void erase(BlockId block, const EvictionFacts& facts) override {
    ranks_of(facts).erase(rank(block, facts));
  }
  BlockId choose(Nanos) override {
    for (const RankRuns<Rank>* ranks : {&behind_window_, &unwanted_, &wanted_}) {
      if (!ranks->empty()) return std::get<BlockId>(ranks->first());
    }
    return kNoBlock;
  }
  std::size_t size() const override { return behind_window_.size() + unwanted_.size() + wanted_.size(); }

 private:
  // Place in the queue, none or the last first; last use; depth, the deepest first; block.
  using Rank = std::tuple<std::uint32_t, Nanos, std::uint32_t, BlockId>;
  static Rank rank(BlockId block, const EvictionFacts& facts) {
    static_assert(kNotWanted == UINT32_MAX, "what is not wanted comes behind the window's tail");
    return {UINT32_MAX - facts.wanted, facts.last_used, UINT32_MAX - facts.depth, block};
  }
  RankRuns<Rank>& ranks_of(const EvictionFacts& facts) {
    return facts.behind_window ? behind_window_ : facts.wanted == kNotWanted ? unwanted_ : wanted_;
  }
  RankRuns<Rank> behind_window_, unwanted_, wanted_;  // which go in this order
};

}  // namespace loci
