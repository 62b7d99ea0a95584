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
#include <tuple>
#include <utility>

#include "loci/memory/eviction_order.h"
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
    return spared_.empty() ? kNoBlock : std::get<BlockId>(spared_.first());
  }
  BlockId soon() const override {
    if (own_->size() > 0) return own_->soon();
    return spared_.empty() ? kNoBlock : std::get<BlockId>(spared_.soon());
  }
  std::size_t size() const override { return own_->size() + spared_.size(); }

 private:
  static bool is_spared(const EvictionFacts& facts) {
    return facts.wanted != kNotWanted && facts.elsewhere == 0;
  }
  // Place in the queue, the last first; last use; depth, the deepest first; block.
  using Rank = std::tuple<std::uint32_t, Nanos, std::uint32_t, BlockId>;
  static Rank rank(BlockId block, const EvictionFacts& facts) {
    return {UINT32_MAX - facts.wanted, facts.last_used, UINT32_MAX - facts.depth, block};
  }

  std::unique_ptr<EvictionOrder> own_;
  RankRuns<Rank> spared_;
};

}  // namespace loci
