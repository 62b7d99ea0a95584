// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/eviction/idle_cost_queue.h"

#include <algorithm>
#include <bit>

#include "loci/base/check.h"

namespace loci {

int cost_bucket(Nanos cost) {
  LOCI_CHECK(cost >= 0, "a cost is not negative");
  if (cost == 0) return -1;
  const auto value = static_cast<std::uint64_t>(cost);
  const int power = std::bit_width(value) - 1;
  // The value over its power of two, in [2^63, 2^64), against 2^63 · 2^(1/4), 2^(2/4), 2^(3/4).
  const std::uint64_t mantissa = value << (63 - power);
  constexpr std::uint64_t kSteps[] = {0x9837f0518db8a970, 0xb504f333f9de6485, 0xd744fccad69d6af5};
  int step = 0;
  while (step < 3 && mantissa >= kSteps[step]) ++step;
  return 4 * power + step;
}

void IdleCostQueue::insert(BlockId block, Nanos cost, Nanos last_used, std::uint32_t depth) {
  buckets_[cost_bucket(cost)].insert({last_used, cost, UINT32_MAX - depth, block});
  ++size_;
}

void IdleCostQueue::erase(BlockId block, Nanos cost, Nanos last_used, std::uint32_t depth) {
  const auto bucket = buckets_.find(cost_bucket(cost));
  LOCI_CHECK(bucket != buckets_.end(), "only what is in the order leaves it");
  bucket->second.erase({last_used, cost, UINT32_MAX - depth, block});
  if (bucket->second.empty()) buckets_.erase(bucket);
  --size_;
}

void IdleCostQueue::use(BlockId block, Nanos cost, Nanos before, Nanos after, std::uint32_t depth) {
  const auto bucket = buckets_.find(cost_bucket(cost));
  LOCI_CHECK(bucket != buckets_.end(), "only what is in the order is used");
  bucket->second.erase({before, cost, UINT32_MAX - depth, block});
  bucket->second.insert({after, cost, UINT32_MAX - depth, block});
}

BlockId IdleCostQueue::least(Nanos now) const {
  const Rank* best = nullptr;
  const RankRuns<Rank>* of = nullptr;
  const auto idle = [this, now](const Rank& rank) {
    return static_cast<unsigned __int128>(std::max<Nanos>(now - std::get<0>(rank) + before_, 1));
  };
  const auto cost = [](const Rank& rank) { return static_cast<unsigned __int128>(std::get<1>(rank)); };
  for (const auto& [bucket, ranks] : buckets_) {
    const Rank& head = ranks.first();
    // cost / idle, by cross-multiplication; the cheapest where they are equal
    if (best != nullptr && cost(head) * idle(*best) >= cost(*best) * idle(head)) continue;
    best = &head;
    of = &ranks;
  }
  soon_ = of == nullptr ? kNoBlock : std::get<BlockId>(of->soon());
  return best == nullptr ? kNoBlock : std::get<BlockId>(*best);
}

}  // namespace loci
