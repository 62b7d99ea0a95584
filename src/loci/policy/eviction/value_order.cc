// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/eviction/value_order.h"

#include <algorithm>

namespace loci {
namespace {

constexpr Nanos kLostMost = Nanos{1} << 62;

}  // namespace

ValueOrder::ValueOrder(const EvictionPlace& place, std::shared_ptr<const CostModel> costs)
    : tier_(place.tier),
      recompute_(place, costs),
      block_bytes_(place.block_bytes),
      hidden_bytes_(std::max<std::uint64_t>(place.hidden_bytes, 1)) {
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    load_[tier] = costs->load(static_cast<Tier>(tier), place.block_bytes);
  load_hidden_ = costs->load(tier_, place.hidden_bytes) + costs->project_block();
}

Nanos ValueOrder::lost(const EvictionFacts& facts) const {
  const auto here = static_cast<std::size_t>(tier_);
  Nanos without = recompute_.of(facts.depth);
  for (std::size_t tier = 0; tier < kTiers; ++tier) {
    if (tier != here && (facts.elsewhere >> tier & 1) != 0) without = std::min(without, load_[tier]);
  }
  if (facts.form == StateForm::kKeysAndValues) return std::max<Nanos>(without - load_[here], 0);
  const auto saved = static_cast<unsigned __int128>(std::max<Nanos>(without - load_hidden_, 0));
  return static_cast<Nanos>(std::min<unsigned __int128>(saved * block_bytes_ / hidden_bytes_, kLostMost));
}

BlockRank ValueOrder::wanted(BlockId block, const EvictionFacts& facts) const {
  return {queue_rank(facts), lost(facts), facts, block};
}

void ValueOrder::insert(BlockId block, const EvictionFacts& facts) {
  if (facts.behind_window)
    behind_window_.insert(block, facts);
  else if (facts.wanted == kNotWanted)
    unwanted_.insert(block, lost(facts), facts.last_used, facts.depth);
  else
    wanted_.insert(wanted(block, facts));
}

void ValueOrder::erase(BlockId block, const EvictionFacts& facts) {
  if (facts.behind_window) {
    behind_window_.erase(block, facts);
  } else if (facts.wanted == kNotWanted) {
    unwanted_.erase(block, lost(facts), facts.last_used, facts.depth);
  } else {
    wanted_.erase(wanted(block, facts));
  }
}

// (What the queue needs is in its order.)
void ValueOrder::use(BlockId block, const EvictionFacts& before, const EvictionFacts& after) {
  if (before.behind_window)
    behind_window_.use(block, before, after);
  else if (before.wanted == kNotWanted)
    unwanted_.use(block, lost(before), before.last_used, after.last_used, before.depth);
}

BlockId ValueOrder::choose(Nanos now) {
  if (behind_window_.size() > 0) return behind_window_.choose(now);
  if (unwanted_.size() > 0) return unwanted_.least(now);
  return wanted_.empty() ? kNoBlock : wanted_.first().block;
}

}  // namespace loci
