// SPDX-License-Identifier: Apache-2.0
// lookahead (AttentionStore §3.3.2): first what no waiting request of the window needs, least recently used
// first; then the window from its tail to its head.
//
// The paper's unit is a whole session. Here it is a block, and among those of one session the deepest goes
// first, so that what is left of it is a prefix. What lies behind every window of attention goes before all.
#pragma once

#include "loci/memory/eviction_order.h"
#include "loci/policy/eviction/block_rank.h"
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
    for (RankRuns<BlockRank>* ranks : {&behind_window_, &unwanted_, &wanted_}) {
      if (!ranks->empty()) return ranks->first().block;
    }
    return kNoBlock;
  }
  std::size_t size() const override { return behind_window_.size() + unwanted_.size() + wanted_.size(); }

 private:
  // By the place in the queue; then by the last use.
  static BlockRank rank(BlockId block, const EvictionFacts& facts) {
    return {queue_rank(facts), facts.last_used, facts, block};
  }
  RankRuns<BlockRank>& ranks_of(const EvictionFacts& facts) {
    return facts.behind_window ? behind_window_ : facts.wanted == kNotWanted ? unwanted_ : wanted_;
  }
  RankRuns<BlockRank> behind_window_, unwanted_, wanted_;  // which go in this order
};

}  // namespace loci
