// SPDX-License-Identifier: Apache-2.0
// Which instance has seen the beginning of a prompt: a front's memory of where it sent what (MemServe,
// section 6: a tree of prompts for each instance, filled when a prompt is routed, forgotten after a time to
// live).
//
// A prompt is a row of keys, one for each whole chunk of its text, and each key stands for all text up to the
// chunk's end. So a path from the root is a key, and the tree needs no links: one table of pairs of a key and
// an instance is all. An instance that was sent a chunk was sent all chunks before it, at least as recently,
// so binary search finds how much of a prompt it has. An example with chunks of a word, routed to instances
// 1, 1 and 2:
//
//   "a b c"   a:{1}  ab:{1}    abc:{1}
//   "a b d"   a:{1}  ab:{1}    abd:{1}
//   "a b c"   a:{1,2} ab:{1,2} abc:{1,2}        to 2, as 1 was busy
//
// "a b c e" then matches 3 chunks at 1 and at 2, "a b d" 3 at 1 and 2 at 2.
//
// It is an approximation: an instance may have evicted what it was sent, and may hold what another front sent
// or a disk kept. What instances publish (held_prompts.h) is better known; the tree then says what is coming,
// and what they do not tell of.
//
// Bounded: beyond `entries_max` the entry longest unused goes (of one prompt the end first). Deterministic.
// Thread-compatible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "loci/base/clock.h"

namespace loci {

class PromptTree {
 public:
  // `entries_max`: of pairs of a key and an instance, 40 to 48 bytes each; at least 1.
  PromptTree(std::size_t entries_max, Nanos time_to_live);

  // How many chunks from the first on each of `instances` was sent. O(instances * log(chunks)).
  std::vector<std::uint32_t> match(std::span<const std::uint64_t> keys,
                                   std::span<const std::uint32_t> instances, Nanos now) const;
  // The prompt was sent to the instance. O(chunks).
  void insert(std::span<const std::uint64_t> keys, std::uint32_t instance, Nanos now);

  // The instance does not have the chunk any more. O(1).
  void forget(std::uint64_t key, std::uint32_t instance);

  std::size_t entries() const { return entries_; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Entry {
    std::uint64_t key = 0;
    Nanos used_at = 0;
    std::uint32_t instance = 0;
    std::uint32_t older = kNone, younger = kNone;  // by use
  };

  // Where the pair's slot is, or would be.
  std::size_t slot_of(std::uint64_t key, std::uint32_t instance) const;
  std::size_t home_of(std::uint64_t key, std::uint32_t instance) const;
  bool has(std::uint64_t key, std::uint32_t instance, Nanos now) const;
  std::uint32_t make_entry();
  void empty_slot(std::size_t slot);
  void unlink(std::uint32_t entry);
  void make_youngest(std::uint32_t entry);
  void drop(std::uint32_t entry);

  const std::size_t entries_max_;
  const Nanos time_to_live_;
  std::vector<Entry> pool_;
  std::vector<std::uint32_t> free_;
  // Open addressing, half full at most: an entry's place in the pool and one, or 0.
  std::vector<std::uint32_t> slots_;
  std::size_t entries_ = 0;
  std::uint32_t oldest_ = kNone, youngest_ = kNone;
};

}  // namespace loci
