// SPDX-License-Identifier: Apache-2.0
// The nodes of the index by their keys: a flat hash table, as a lookup of a prompt asks for one key after the
// other, and each is in no cache. (A table of linked nodes costs three or four misses for a key, this one or
// two.)
//
// A key's bytes look random, so its first ones say where it stands: there, or behind those that stand there
// already, without a gap between. Six places, keys whose first bytes say 1, 1, 2 and 5:
//
//     place     0   1   2   3   4   5
//     key       .   a1  b1  c2  .   d5       b1 and c2 stand one place behind where they belong
//     erase(a1) .   b1  c2  .   .   d5       who stood behind its place moves up, so that no gap arises
//
// At most half of the places are taken; then the table becomes twice as large.
//
// Invariants, which check_invariants() tests, numbered as in engine/core/core.h:
//   4. Each key is found from where its first bytes say.
//   10. Keys are counted.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "loci/base/check.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/eviction_order.h"

namespace loci {

// Thread-compatible. O(1) expected where not said otherwise.
class KeyTable {
 public:
  // Makes room for so many keys.
  void reserve(std::size_t keys) {
    const std::size_t places = std::bit_ceil(std::max<std::size_t>(2 * keys, kPlacesMin));
    if (places > places_.size()) grow(places);
  }
  // kNoBlock: the key is not there.
  BlockId find(const ChainKey& key) const {
    if (places_.empty()) return kNoBlock;
    return places_[place_of(key)].block;
  }
  // False: the key is there already. Amortised.
  bool insert(const ChainKey& key, BlockId block) {
    LOCI_CHECK(block != kNoBlock, "a key leads to a node");
    if (2 * (size_ + 1) > places_.size()) grow(std::max(2 * places_.size(), kPlacesMin));
    Place& place = places_[place_of(key)];
    if (place.block != kNoBlock) return false;
    place = {key, block};
    ++size_;
    return true;
  }
  // False: the key is not there.
  bool erase(const ChainKey& key) {
    if (find(key) == kNoBlock) return false;
    std::size_t gap = place_of(key);
    for (std::size_t at = next(gap); places_[at].block != kNoBlock; at = next(at)) {
      // Who belongs at the gap or before it moves there.
      if (steps(home(places_[at].key), at) < steps(gap, at)) continue;
      places_[gap] = places_[at];
      gap = at;
    }
    places_[gap] = {};
    --size_;
    return true;
  }
  std::size_t size() const { return size_; }

  // Aborts on a broken invariant. O(places).
  void check_invariants() const {
    std::size_t taken = 0;
    for (const Place& place : places_) {
      if (place.block == kNoBlock) continue;
      ++taken;
      LOCI_CHECK(find(place.key) == place.block, "invariant 4: a key is found from where it belongs");
    }
    LOCI_CHECK(taken == size_ && 2 * size_ <= places_.size(), "invariant 10: keys are counted");
  }

 private:
  struct Place {
    ChainKey key;
    BlockId block = kNoBlock;
  };
  static constexpr std::size_t kPlacesMin = 16;

  std::size_t next(std::size_t place) const { return (place + 1) & (places_.size() - 1); }
  std::size_t home(const ChainKey& key) const { return ChainKeyHash{}(key) & (places_.size() - 1); }
  // How far behind `from` a place is.
  std::size_t steps(std::size_t from, std::size_t to) const { return (to - from) & (places_.size() - 1); }
  // Where the key stands, or would.
  std::size_t place_of(const ChainKey& key) const {
    std::size_t place = home(key);
    while (places_[place].block != kNoBlock && places_[place].key != key) place = next(place);
    return place;
  }
  void grow(std::size_t places) {
    std::vector<Place> old(places);
    old.swap(places_);
    for (const Place& place : old) {
      if (place.block != kNoBlock) places_[place_of(place.key)] = place;
    }
  }

  std::vector<Place> places_;  // a power of two, or none
  std::size_t size_ = 0;
};

}  // namespace loci
