// SPDX-License-Identifier: Apache-2.0
// value: weighs everything that is known. A copy is worth the time that it saves the next request that needs
// it: the restore time from where the block would remain (the fastest other tier that holds it, or computing
// it again at its depth, whichever is faster) less the restore time from here; divided by the time since
// anybody last used it and kAway, and by its bytes. (Those of one order's copies are equal, but for hidden
// states, which are smaller: what they save counts as many times as they are smaller.)
//
// kAway: people think for minutes, so what was used a moment ago is not needed sooner than what was used a
// few minutes ago, and conversations that take turns would push one another out by turns. Whatever would cost
// much stays for that long; then the idle time decides more and more.
//
// First goes what lies behind every window; then what no waiting request of the look-ahead window needs, the
// least worth first; then what they need, from the window's tail to its head, the least lost first.
//
// So of a conversation that nobody goes on with the leading blocks go first, as they are cheap to compute
// again (Pensieve §4.3.1); what a lower tier holds goes before what nobody else has; a copy that saves
// nothing, as computing is faster than loading it, goes first of all. Among equals the deepest goes first,
// so that no holes arise without need. Where a hole cannot be filled by itself (EvictionPlace::holes) all
// blocks cost the same to compute again, so none arise at all but where a lower tier fills them.
#pragma once

#include <array>
#include <memory>

#include "loci/base/clock.h"
#include "loci/policy/eviction.h"
#include "loci/policy/eviction/block_rank.h"
#include "loci/policy/eviction/idle_cost_queue.h"
#include "loci/policy/eviction/rank_runs.h"
#include "loci/policy/eviction/retention_order.h"
#include "loci/policy/eviction/time_order.h"

namespace loci {

// Idle times count from so long before the last use.
inline constexpr Nanos kAway = 180 * kNanosPerSecond;

// As EvictionOrder; choose() as IdleCostQueue::least().
class ValueOrder final : public EvictionOrder {
 public:
  ValueOrder(const EvictionPlace& place, std::shared_ptr<const CostModel> costs);

  void insert(BlockId block, const EvictionFacts& facts) override;
  void erase(BlockId block, const EvictionFacts& facts) override;
  void use(BlockId block, const EvictionFacts& before, const EvictionFacts& after) override;
  BlockId choose(Nanos now) override;
  BlockId soon() const override {
    if (behind_window_.size() > 0) return behind_window_.soon();
    if (unwanted_.size() > 0) return unwanted_.soon();
    return wanted_.empty() ? kNoBlock : wanted_.soon().block;
  }
  std::size_t size() const override { return behind_window_.size() + unwanted_.size() + wanted_.size(); }

  // What its loss adds to the time to restore the block, for as many bytes as keys and values have.
  Nanos lost(const EvictionFacts& facts) const;

 private:
  // By the place in the queue; then by what is lost.
  BlockRank wanted(BlockId block, const EvictionFacts& facts) const;

  Tier tier_;
  RecomputeCosts recompute_;
  std::array<Nanos, kTiers> load_{};  // of a block, by tier
  Nanos load_hidden_ = 0;             // from here, and projecting it
  std::uint64_t block_bytes_, hidden_bytes_;
  LruOrder behind_window_;
  IdleCostQueue unwanted_{kAway};
  RankRuns<BlockRank> wanted_;
};

}  // namespace loci
