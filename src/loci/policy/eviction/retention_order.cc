// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/eviction/retention_order.h"

#include <algorithm>

#include "loci/compute/backend.h"

namespace loci {

Nanos RecomputeCosts::compute(std::uint32_t depth) const {
  const std::uint64_t first =
      depth > 0 ? (depth - 1) / place_.chunk_blocks * std::uint64_t{place_.chunk_blocks} : 0;
  const std::uint64_t before = place_.holes ? first * kBlockTokens : 0;
  return costs_->compute(static_cast<std::uint32_t>(std::min<std::uint64_t>(before, UINT32_MAX)),
                         kBlockTokens);
}

Nanos RecomputeCosts::learn(std::uint32_t depth) const {
  if (depth >= kKnownMax) return compute(depth);
  if (depth >= known_.size()) known_.resize(std::max<std::size_t>(2 * known_.size(), depth + 1), kUnknown);
  return known_[depth] = compute(depth);
}

void RetentionOrder::insert(BlockId block, const EvictionFacts& facts) {
  if (facts.behind_window)
    behind_window_.insert(block, facts);
  else
    kept_.insert(block, costs_.of(facts.depth), facts.last_used, facts.depth);
}

void RetentionOrder::erase(BlockId block, const EvictionFacts& facts) {
  if (facts.behind_window)
    behind_window_.erase(block, facts);
  else
    kept_.erase(block, costs_.of(facts.depth), facts.last_used, facts.depth);
}

BlockId RetentionOrder::choose(Nanos now) {
  return behind_window_.size() > 0 ? behind_window_.choose(now) : kept_.least(now);
}

}  // namespace loci
