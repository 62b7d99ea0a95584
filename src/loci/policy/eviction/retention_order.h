// SPDX-License-Identifier: Apache-2.0
// retention (Pensieve §4.3.1): in ascending order of V = Cost(l) / T, with Cost(l) what the block costs to
// compute again behind the l tokens before it, and T the time since anybody last used it. So of one
// conversation the leading blocks go first, and of many the one that has been idle longest.
//
// Where a hole cannot be filled by itself (EvictionPlace::holes) all blocks count alike, and of one
// conversation the deepest goes first. What lies behind every window goes before all else.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "loci/policy/eviction.h"
#include "loci/policy/eviction/idle_cost_queue.h"
#include "loci/policy/eviction/time_order.h"

namespace loci {

// What computing the block of a depth again costs, for an order of `place`. Blocks enter and leave an order
// with every turn, so what was asked for once is remembered, for contexts of up to 2 million tokens.
// Thread-compatible.
class RecomputeCosts {
 public:
  RecomputeCosts(const EvictionPlace& place, std::shared_ptr<const CostModel> costs)
      : place_(place), costs_(std::move(costs)) {}

  // O(1), amortised.
  Nanos of(std::uint32_t depth) const {
    return depth < known_.size() && known_[depth] != kUnknown ? known_[depth] : learn(depth);
  }

 private:
  static constexpr std::uint32_t kKnownMax = 1u << 16;
  static constexpr Nanos kUnknown = -1;
  Nanos compute(std::uint32_t depth) const;
  Nanos learn(std::uint32_t depth) const;

  EvictionPlace place_;
  std::shared_ptr<const CostModel> costs_;
  mutable std::vector<Nanos> known_;  // by depth
};

// As EvictionOrder; choose() as IdleCostQueue::least().
class RetentionOrder final : public EvictionOrder {
 public:
  RetentionOrder(const EvictionPlace& place, std::shared_ptr<const CostModel> costs)
      : costs_(place, std::move(costs)) {}

  void insert(BlockId block, const EvictionFacts& facts) override;
  void erase(BlockId block, const EvictionFacts& facts) override;
  BlockId choose(Nanos now) override;
  std::size_t size() const override { return behind_window_.size() + kept_.size(); }

 private:
  RecomputeCosts costs_;
  LruOrder behind_window_;
  IdleCostQueue kept_;
};

}  // namespace loci
