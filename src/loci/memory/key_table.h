// SPDX-License-Identifier: Apache-2.0
// Ids by chain keys (those of the index: its nodes): a flat hash table, as a lookup of a prompt asks for one
// key after the other, and each is in no cache. (A table of linked nodes costs three or four misses for a
// key, this one or two.)
//
// A key's bytes look random, so its first ones say where it stands: there, or behind those that stand there
// already, without a gap between. Six places, keys whose first bytes say 1, 1, 2 and 5:
//
//     place     0   1   2   3   4   5
//     key       .   a1  b1  c2  .   d5       b1 and c2 stand one place behind where they belong
//     erase(a1) .   b1  c2  .   .   d5       who stood behind its place moves up, so that no gap arises
//
// At most half of the places are taken; then new keys go into a table that is twice as large. The keys of the
// table before move there a few at a time, with each new key, so that no call moves many. In the table before
// a place that a key has left stays taken, so that others are still found behind it:
//
//     before    .   -   b1  c2  .   d5       a1 has moved or was erased
//
// Keys move from the table's end to its begin, and memory that they have left goes back to the system as they
// go. Those at its begin that belong to its end move first, so that nobody looks for a key beyond those that
// are left. A table's memory is zeroed by the system, page by page as it is written; that of a table with
// room from the start at once, in large pages, as each lookup else waits for where a small one is, too.
//
// Invariants, which check_invariants() tests, numbered as in engine/core/core.h:
//   4. Each key is found from where its first bytes say, in one of the two tables.
//   10. Keys are counted, and no key is left in the table before behind those that have moved.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "loci/base/check.h"
#include "loci/base/host_memory.h"
#include "loci/memory/chain_key.h"

namespace loci {

// `Id`: a StrongId of 32 bits. Thread-compatible. O(1) expected where not said otherwise.
template <class Id>
class KeyTable {
 public:
  static constexpr Id kNone{UINT32_MAX};

  // Makes room for so many keys, whose memory is there at once. O(places).
  void reserve(std::size_t keys) {
    const std::size_t places = std::bit_ceil(std::max<std::size_t>(2 * keys, kPlacesMin));
    if (places <= now_.count()) return;
    while (!before_.empty()) move_some();
    // (All of it is written now, so no step waits for the system to clear a large page.)
    Table larger(places, HostMemory::Pages::kLarge);
    larger.provide();
    grow(std::move(larger));
    while (!before_.empty()) move_some();
  }
  // kNone: the key is not there.
  Id find(const ChainKey& key) const {
    const Id found = now_.find(key);
    return found != kNone || before_.empty() ? found : before_.find(key);
  }
  // Says that find() will soon be asked for the key.
  void prefetch(const ChainKey& key) const { now_.prefetch(key); }
  // False: the key is there already.
  bool insert(const ChainKey& key, Id block) {
    LOCI_CHECK(block.value < kNone.value - 1, "a key leads to a node");
    if (!before_.empty()) move_some();
    if (find(key) != kNone) return false;
    if (2 * (size_ + 1) > now_.count()) grow(Table(std::max(2 * now_.count(), kPlacesMin)));
    now_.put(key, block);
    ++size_;
    return true;
  }
  // False: the key is not there.
  bool erase(const ChainKey& key) {
    if (!now_.erase(key) && !before_.leave(key)) return false;
    --size_;
    return true;
  }
  std::size_t size() const { return size_; }
  // Places of the table before whose keys have yet to move. insert() moves those of kPlacesMoved at most.
  std::size_t unmoved() const { return unmoved_; }
  // Moving two places with each insert would do: half as many keys come before the next table is half full as
  // this one has places.
  static constexpr std::size_t kPlacesMoved = 8;

  // Aborts on a broken invariant. O(places).
  void check_invariants() const {
    std::size_t taken = 0;
    for (const Table* table : {&now_, &before_}) {
      for (std::size_t at = 0; at < table->count(); ++at) {
        if (!table->holds(at)) continue;
        ++taken;
        LOCI_CHECK(find(table->key(at)) == table->block(at),
                   "invariant 4: a key is found from where it belongs");
        LOCI_CHECK(table == &now_ || at < unmoved_, "invariant 10: what has moved is there no more");
      }
    }
    LOCI_CHECK(taken == size_ && 2 * size_ <= now_.count(), "invariant 10: keys are counted");
  }

 private:
  // Places, a power of two, or none. O(1) expected.
  class Table {
   public:
    Table() = default;
    explicit Table(std::size_t places, HostMemory::Pages pages = HostMemory::Pages::kSmall)
        : memory_(HostMemory::map(places * sizeof(Place), pages).value()),
          mask_(places - 1),
          count_(places) {}
    Table(Table&& other) noexcept { swap(other); }
    Table& operator=(Table&& other) noexcept {
      swap(other);
      return *this;
    }

    // Of a table without keys: has the system give all of its memory now.
    void provide() { std::memset(memory_.data(), 0, memory_.size()); }
    bool empty() const { return count_ == 0; }
    std::size_t count() const { return count_; }
    bool holds(std::size_t at) const { return places()[at].block != kFree && places()[at].block != kLeft; }
    const ChainKey& key(std::size_t at) const { return places()[at].key; }
    Id block(std::size_t at) const { return Id(~places()[at].block); }

    Id find(const ChainKey& key) const {
      if (empty()) return kNone;
      const std::uint32_t block = places()[place_of(key)].block;
      return block == kFree ? kNone : Id(~block);
    }
    void prefetch(const ChainKey& key) const {
      if (!empty()) __builtin_prefetch(places() + home(key));
    }
    // The key is not there, and no place was left.
    void put(const ChainKey& key, Id block) { places()[place_of(key)] = {key, ~block.value}; }
    // False: the key is not there. No place was left.
    bool erase(const ChainKey& key) {
      if (find(key) == kNone) return false;
      std::size_t gap = place_of(key);
      for (std::size_t at = next(gap); places()[at].block != kFree; at = next(at)) {
        // Who belongs at the gap or before it moves there.
        if (steps(home(places()[at].key), at) < steps(gap, at)) continue;
        places()[gap] = places()[at];
        gap = at;
      }
      places()[gap] = {};
      return true;
    }
    // The same, but its place stays taken.
    bool leave(const ChainKey& key) {
      if (find(key) == kNone) return false;
      places()[place_of(key)].block = kLeft;
      return true;
    }
    void leave(std::size_t at) { places()[at].block = kLeft; }
    bool free(std::size_t at) const { return places()[at].block == kFree; }
    // All places from this one on were left, and are free now.
    void give_back_from(std::size_t at) { memory_.give_back_from(at * sizeof(Place)); }

   private:
    struct Place {
      ChainKey key;
      std::uint32_t block = kFree;  // the complement of its id
    };
    static constexpr std::uint32_t kFree = 0;  // as the system gives memory; kNone's complement
    static constexpr std::uint32_t kLeft = 1;

    Place* places() { return reinterpret_cast<Place*>(memory_.data()); }
    const Place* places() const { return reinterpret_cast<const Place*>(memory_.data()); }
    std::size_t next(std::size_t place) const { return (place + 1) & mask_; }
    std::size_t home(const ChainKey& key) const { return ChainKeyHash{}(key)&mask_; }
    // How far behind `from` a place is.
    std::size_t steps(std::size_t from, std::size_t to) const { return (to - from) & mask_; }
    // Where the key stands, or would.
    std::size_t place_of(const ChainKey& key) const {
      std::size_t place = home(key);
      while (places()[place].block != kFree && (places()[place].key != key || places()[place].block == kLeft))
        place = next(place);
      return place;
    }
    void swap(Table& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(mask_, other.mask_);
      std::swap(count_, other.count_);
    }

    HostMemory memory_;
    std::size_t mask_ = 0;
    std::size_t count_ = 0;
  };
  static constexpr std::size_t kPlacesMin = 16;
  static constexpr std::size_t kPlacesGivenBack = 1024;  // five small pages

  void grow(Table larger) {
    LOCI_CHECK(before_.empty(), "a table has moved before the next one");
    before_ = std::exchange(now_, std::move(larger));
    unmoved_ = before_.count();
    // (At most half of the places are taken.)
    for (std::size_t at = 0; at < before_.count() && !before_.free(at); ++at) move(at);
  }
  void move(std::size_t at) {
    if (!before_.holds(at)) return;
    now_.put(before_.key(at), before_.block(at));
    before_.leave(at);
  }
  void move_some() {
    for (std::size_t i = 0; i < kPlacesMoved && unmoved_ > 0; ++i) {
      move(--unmoved_);
      if (unmoved_ % kPlacesGivenBack == 0) before_.give_back_from(unmoved_);
    }
    if (unmoved_ == 0) before_ = Table();
  }

  Table now_;                // where new keys go
  Table before_;             // the one before, until all of it has moved
  std::size_t unmoved_ = 0;  // places of it, the first ones, that were not looked at
  std::size_t size_ = 0;
};

}  // namespace loci
