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
  const std::size_t place = place_of(cost);
  std::unique_ptr<Bucket>& bucket = buckets_[place];
  if (bucket == nullptr) bucket = std::make_unique<Bucket>();
  if (bucket->empty()) held_.insert(std::ranges::lower_bound(held_, place), place);
  bucket->insert({last_used, cost, depth, block});
  ++size_;
}

// That of a block that is in the order.
IdleCostQueue::Bucket& IdleCostQueue::bucket_with(std::size_t place) {
  LOCI_CHECK(buckets_[place] != nullptr, "only what is in the order leaves it or is used");
  return *buckets_[place];
}

void IdleCostQueue::erase(BlockId block, Nanos cost, Nanos last_used, std::uint32_t depth) {
  const std::size_t place = place_of(cost);
  Bucket& bucket = bucket_with(place);
  bucket.erase({last_used, cost, depth, block});
  if (bucket.empty()) held_.erase(std::ranges::lower_bound(held_, place));
  --size_;
}

void IdleCostQueue::use(BlockId block, Nanos cost, Nanos before, Nanos after, std::uint32_t depth) {
  Bucket& bucket = bucket_with(place_of(cost));
  bucket.erase({before, cost, depth, block});
  bucket.insert({after, cost, depth, block});
}

BlockId IdleCostQueue::least(Nanos now) const {
  const BlockRank* best = nullptr;
  Bucket* of = nullptr;
  const auto idle = [this, now](const BlockRank& rank) {
    return static_cast<unsigned __int128>(std::max<Nanos>(now - rank.first + before_, 1));
  };
  const auto cost = [](const BlockRank& rank) { return static_cast<unsigned __int128>(rank.second); };
  for (const std::size_t place : held_) {
    Bucket& ranks = *buckets_[place];
    const BlockRank& head = ranks.first();
    // cost / idle, by cross-multiplication; the cheapest where they are equal
    if (best != nullptr && cost(head) * idle(*best) >= cost(*best) * idle(head)) continue;
    best = &head;
    of = &ranks;
  }
  soon_ = of == nullptr ? kNoBlock : of->soon().block;
  return best == nullptr ? kNoBlock : best->block;
}

}  // namespace loci
