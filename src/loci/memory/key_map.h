// SPDX-License-Identifier: Apache-2.0
// Values by keys, of thousands of blocks that a step asks about, none of which is in a cache: a KeyTable says
// where a key's value lies, and values lie one after the other in pieces of memory.
//
//     insert a, b, c     values  [a b c]
//     erase b            values  [a . c]     its place is free
//     insert d           values  [a d c]     what was used last is used again: its memory is near
//
// (A table of linked nodes allocates one for each key, and compares the keys of others on the way to it.)
//
// Invariants, which check_invariants() tests, numbered as in engine/core/core.h:
//   4. Each key is found from where its first bytes say.
//   10. Each value is a key's or free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/base/ids.h"
#include "loci/memory/block_list.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/key_table.h"

namespace loci {

// Values stay where they are until their keys are erased. Thread-compatible. O(1) expected where not said
// otherwise.
template <class T>
class KeyMap {
 public:
  // Makes room for so many keys. O(keys).
  void reserve(std::size_t keys) { places_.reserve(keys); }
  std::size_t size() const { return places_.size(); }
  // Says that the key will soon be asked for.
  void prefetch(const ChainKey& key) const { places_.prefetch(key); }
  // Null: the key is not there.
  T* find(const ChainKey& key) {
    const Place place = places_.find(key);
    return place == Places::kNone ? nullptr : &values_[place.value];
  }
  const T* find(const ChainKey& key) const { return const_cast<KeyMap*>(this)->find(key); }
  // The key's value, and whether it is new.
  std::pair<T&, bool> insert(const ChainKey& key) {
    if (T* found = find(key)) return {*found, false};
    const bool reuses = !free_.empty();
    const Place place(reuses ? free_.back() : static_cast<std::uint32_t>(values_.size()));
    if (reuses)
      free_.pop_back();
    else
      values_.emplace_back();
    places_.insert(key, place);
    return {values_[place.value], true};
  }
  // It is there.
  void erase(const ChainKey& key) {
    const Place place = places_.find(key);
    LOCI_CHECK(place != Places::kNone, "only a key that is there is erased");
    values_[place.value] = T();
    free_.push_back(place.value);
    places_.erase(key);
  }

  // Aborts on a broken invariant. O(places).
  void check_invariants() const {
    places_.check_invariants();
    LOCI_CHECK(places_.size() + free_.size() == values_.size(),
               "invariant 10: each value is a key's or free");
  }

 private:
  using Place = StrongId<struct KeyMapTag, std::uint32_t>;
  using Places = KeyTable<Place>;

  Places places_;
  BlockList<T> values_;
  std::vector<std::uint32_t> free_;  // places; the last is used next
};

}  // namespace loci
