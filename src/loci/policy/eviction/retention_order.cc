// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/eviction/retention_order.h"

#include <algorithm>

#include "loci/compute/backend.h"

namespace loci {

Nanos recompute_cost(const CostModel& costs, const EvictionPlace& place, std::uint32_t depth) {
  const std::uint64_t first =
      depth > 0 ? (depth - 1) / place.chunk_blocks * std::uint64_t{place.chunk_blocks} : 0;
  const std::uint64_t before = place.holes ? first * kBlockTokens : 0;
  return costs.compute(static_cast<std::uint32_t>(std::min<std::uint64_t>(before, UINT32_MAX)), kBlockTokens);
}

void RetentionOrder::insert(BlockId block, const EvictionFacts& facts) {
  if (facts.behind)
    behind_.insert(block, facts);
  else
    kept_.insert(block, recompute_cost(*costs_, place_, facts.depth), facts.last_used, facts.depth);
}

void RetentionOrder::erase(BlockId block, const EvictionFacts& facts) {
  if (facts.behind)
    behind_.erase(block, facts);
  else
    kept_.erase(block, recompute_cost(*costs_, place_, facts.depth), facts.last_used, facts.depth);
}

BlockId RetentionOrder::choose(Nanos now) {
  return behind_.size() > 0 ? behind_.choose(now) : kept_.least(now);
}

}  // namespace loci
