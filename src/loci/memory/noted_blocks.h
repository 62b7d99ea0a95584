// SPDX-License-Identifier: Apache-2.0
// Which blocks may be somewhere else than when a reader last looked. Each of a few readers takes what was
// noted at its own times, and looks up itself where the blocks are now.
//
// An example: both readers watch. Block 5 fills, block 7 is evicted and its node ends, another takes its id.
//
//     note(5)  note(7)  note_gone(key of 7)  note(7)        5 and 7 are noted once for each reader
//     take(kNearness)      blocks 5 7, gone: the key that 7 had
//     note(5)
//     take(kPlaces)        blocks 5 7, gone: the same: it has seen nothing before
//     take(kNearness)      block 5
//
// It owns what was noted, for each reader. It requires that whoever watches takes again and again, and that a
// name's end is noted before its id is given to another block. It calls nobody. Invariants, which
// check_invariants() tests, numbered as in engine/core/core.h:
//   10. A block is noted for a reader once, and nothing for a reader that does not watch.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/eviction_order.h"

namespace loci {

// Thread-compatible. O(1) where not said otherwise, amortised.
class NotedBlocks {
 public:
  enum class Reader : std::uint8_t {
    kNearness,  // how near the state of waiting requests is
    kPlaces,    // what is told to others
  };

  void watch(Reader reader) { watching_ |= bit(reader); }
  bool watches(Reader reader) const { return (watching_ & bit(reader)) != 0; }
  bool is_noted(Reader reader, BlockId id) const {
    return id.value < marks_.size() && (marks_[id.value] & bit(reader)) != 0;
  }

  // The block's state came, went or is whole now, or it has a name now.
  void note(BlockId id) {
    if (watching_ == 0) return;
    if (id.value >= marks_.size()) marks_.resize(std::max<std::size_t>(id.value + 1, 2 * marks_.size()), 0);
    std::uint8_t& marks = marks_[id.value];
    if (marks == watching_) return;
    for (const Reader reader : kReaders) {
      if ((watching_ & ~marks & bit(reader)) != 0) of(reader).blocks.push_back(id);
    }
    marks = watching_;
  }
  // The name of a block ends.
  void note_gone(Reader reader, const ChainKey& key) {
    if (watches(reader)) of(reader).gone.push_back(key);
  }

  struct Noted {
    std::vector<BlockId> blocks;  // each once; some may be nobody's by now
    std::vector<ChainKey> gone;
  };
  // What was noted since the reader's last call. O(what was noted).
  Noted take(Reader reader) {
    for (const BlockId id : of(reader).blocks) marks_[id.value] &= static_cast<std::uint8_t>(~bit(reader));
    return std::exchange(of(reader), {});
  }

  // Aborts on a broken invariant.
  void check_invariants() const {
    std::array<std::size_t, kReaders.size()> marked{};
    for (const std::uint8_t marks : marks_) {
      LOCI_CHECK((marks & ~watching_) == 0, "invariant 10: who does not watch is told nothing");
      for (const Reader reader : kReaders) marked[place(reader)] += (marks & bit(reader)) != 0;
    }
    for (const Reader reader : kReaders) {
      const Noted& noted = noted_[place(reader)];
      LOCI_CHECK(marked[place(reader)] == noted.blocks.size(), "invariant 10: a block is noted once");
      LOCI_CHECK(watches(reader) || noted.gone.empty(), "invariant 10: who does not watch is told nothing");
    }
  }

 private:
  static constexpr std::array kReaders = {Reader::kNearness, Reader::kPlaces};
  static constexpr std::size_t place(Reader reader) { return static_cast<std::size_t>(reader); }
  static constexpr std::uint8_t bit(Reader reader) { return static_cast<std::uint8_t>(1u << place(reader)); }
  Noted& of(Reader reader) { return noted_[place(reader)]; }

  std::uint8_t watching_ = 0;  // bit(): who does
  std::array<Noted, kReaders.size()> noted_;
  std::vector<std::uint8_t> marks_;  // by block: for whom it is noted
};

}  // namespace loci
