// SPDX-License-Identifier: Apache-2.0
// retention (Pensieve §4.3.1): in ascending order of V = Cost(l) / T, with Cost(l) what the block costs to
// compute again behind the l tokens before it, and T the time since anybody last used it. So of one
// conversation the leading blocks go first, and of many the one that has been idle longest.
//
// Where a hole cannot be filled by itself (EvictionPlace::holes) all blocks count alike, and of one
// conversation the deepest goes first. What lies behind every window goes before all else.
#pragma once

#include <memory>

#include "loci/policy/eviction.h"
#include "loci/policy/eviction/idle_cost_queue.h"
#include "loci/policy/eviction/time_order.h"

namespace loci {

// Computing the block of that depth again, for an order of `place`.
Nanos recompute_cost(const CostModel& costs, const EvictionPlace& place, std::uint32_t depth);

// As EvictionOrder; choose() as IdleCostQueue::least().
class RetentionOrder final : public EvictionOrder {
 public:
  RetentionOrder(const EvictionPlace& place, std::shared_ptr<const CostModel> costs)
      : place_(place), costs_(std::move(costs)) {}

  void insert(BlockId block, const EvictionFacts& facts) override;
  void erase(BlockId block, const EvictionFacts& facts) override;
  BlockId choose(Nanos now) override;
  std::size_t size() const override { return behind_.size() + kept_.size(); }
  bool spares_wanted() const override { return false; }

 private:
  EvictionPlace place_;
  std::shared_ptr<const CostModel> costs_;
  LruOrder behind_;
  IdleCostQueue kept_;
};

}  // namespace loci
