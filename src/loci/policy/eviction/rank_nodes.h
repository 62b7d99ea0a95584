// SPDX-License-Identifier: Apache-2.0
// The nodes of ordered sets of ranks, for eviction orders: each block's place in its set, and nodes that no
// set has just now.
//
// An order with hundreds of thousands of blocks is a tree whose path from the root is in no cache, and blocks
// enter and leave it with every turn. So who leaves is not searched for: its node is known. Who enters goes
// behind all others first, as what was used last does, and is searched for only if that is not its place.
// Nodes that leave are kept for those that come, so that the allocator is not asked.
//
//     insert(a, 3)  insert(b, 5)     set: 3a 5b     b: behind the last one, without a search
//     erase(a)                       set: 5b        spare: a's node
//     insert(a, 7)                   set: 5b 7a     spare: none
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/memory/eviction_order.h"

namespace loci {

// Of any number of sets of one order; a block is in one of them at most. `Rank`: compares, and no two blocks'
// are equal. It has a few bytes for each block id. Thread-compatible. O(1) amortised, but insert() is
// O(log blocks) where the rank is not the set's last.
template <class Rank>
class RankNodes {
 public:
  using Set = std::set<Rank>;

  void insert(Set& into, BlockId block, const Rank& rank) {
    if (block.value >= places_.size())
      places_.resize(std::max<std::size_t>(std::size_t{block.value} + 1, 2 * places_.size()));
    std::optional<Place>& place = places_[block.value];
    LOCI_CHECK(!place, "a block is in the order once");
    if (spare_.empty()) {
      place = into.insert(into.end(), rank);
      return;
    }
    typename Set::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.value() = rank;
    place = into.insert(into.end(), std::move(node));
    LOCI_CHECK(node.empty(), "no two ranks are equal");
  }

  // `rank`: with which the block was inserted into this set.
  void erase(Set& from, BlockId block, const Rank& rank) {
    LOCI_CHECK(block.value < places_.size() && places_[block.value] && **places_[block.value] == rank,
               "only what is in the order leaves it");
    typename Set::node_type node = from.extract(*std::exchange(places_[block.value], std::nullopt));
    if (spare_.size() < kSpareMax) spare_.push_back(std::move(node));
  }

 private:
  using Place = typename Set::iterator;
  static constexpr std::size_t kSpareMax = 4096;
  std::vector<std::optional<Place>> places_;  // by block
  std::vector<typename Set::node_type> spare_;
};

}  // namespace loci
