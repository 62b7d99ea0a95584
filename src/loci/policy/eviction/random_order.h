// SPDX-License-Identifier: Apache-2.0
// random: any block, from a seed. A baseline; it leaves holes anywhere.
#pragma once

#include <vector>

#include "loci/base/check.h"
#include "loci/base/random.h"
#include "loci/memory/eviction_order.h"

namespace loci {

// As EvictionOrder; O(1).
class RandomOrder final : public EvictionOrder {
 public:
  explicit RandomOrder(std::uint64_t seed) : random_(seed) {}

  void insert(BlockId block, const EvictionFacts&) override {
    if (block.value >= places_.size()) places_.resize(block.value + 1, kNowhere);
    LOCI_CHECK(places_[block.value] == kNowhere, "a block is in the order once");
    places_[block.value] = blocks_.size();
    blocks_.push_back(block);
  }
  void erase(BlockId block, const EvictionFacts&) override {
    const std::size_t place = block.value < places_.size() ? places_[block.value] : kNowhere;
    LOCI_CHECK(place != kNowhere, "only what is in the order leaves it");
    blocks_[place] = blocks_.back();
    places_[blocks_[place].value] = place;
    blocks_.pop_back();
    places_[block.value] = kNowhere;
  }
  BlockId choose(Nanos) override {
    return blocks_.empty() ? kNoBlock : blocks_[random_.below(blocks_.size())];
  }
  std::size_t size() const override { return blocks_.size(); }

 private:
  static constexpr std::size_t kNowhere = SIZE_MAX;
  Random random_;
  std::vector<BlockId> blocks_;
  std::vector<std::size_t> places_;  // by block, in blocks_
};

}  // namespace loci
