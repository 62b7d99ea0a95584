// SPDX-License-Identifier: Apache-2.0
// Around an order that does not look at the queue: what a waiting request needs and no slower tier of this
// server has goes last, from the look-ahead window's tail to its head (AttentionStore §3.3.2: what is in the
// window is exempted from being evicted out of the system). All else goes in the order of its own.
//
//     lru, on the disk    a (used first)   b   c        a waiting request wants a
//     given up            b c a                         lru alone would begin with a
//
// It is for tiers below the device, where saves take the room of others.
#pragma once

#include <memory>
#include <utility>

#include "loci/memory/eviction_order.h"
#include "loci/policy/eviction/block_rank.h"
#include "loci/policy/eviction/rank_runs.h"

namespace loci {

// As EvictionOrder; what is spared costs what RankRuns does, all else what `own` does.
class SparingOrder final : public EvictionOrder {
 public:
  explicit SparingOrder(std::unique_ptr<EvictionOrder> own) : own_(std::move(own)) {}

  void insert(BlockId block, const EvictionFacts& facts) override {
    is_spared(facts) ? spared_.insert(rank(block, facts)) : own_->insert(block, facts);
  }
  void erase(BlockId block, const EvictionFacts& facts) override {
    is_spared(facts) ? spared_.erase(rank(block, facts)) : own_->erase(block, facts);
  }
  BlockId choose(Nanos now) override {
    if (own_->size() > 0) return own_->choose(now);
    return spared_.empty() ? kNoBlock : spared_.first().block;
  }
  BlockId soon() const override {
    if (own_->size() > 0) return own_->soon();
    return spared_.empty() ? kNoBlock : spared_.soon().block;
  }
  std::size_t size() const override { return own_->size() + spared_.size(); }

 private:
  static bool is_spared(const EvictionFacts& facts) {
    return facts.wanted != kNotWanted && facts.elsewhere == 0;
  }
  // By the place in the queue; then by the last use.
  static BlockRank rank(BlockId block, const EvictionFacts& facts) {
    return {queue_rank(facts), facts.last_used, facts, block};
  }

  std::unique_ptr<EvictionOrder> own_;
  RankRuns<BlockRank> spared_;
};

}  // namespace loci
