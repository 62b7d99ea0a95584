// SPDX-License-Identifier: Apache-2.0
// Which chunks of prompts one instance has, and in which tier: a front's copy of what the instance publishes
// (docs/cluster.md#what-instances-publish).
//
// A chunk is a name whose last two bits are free (named_chunks.h); there the table has the tier and one.
// So an entry is a word, in open addressing that is half full at most: 16 to 32 bytes for each chunk of
// the most that were held since the last clear(), 4 MiB for the 262,144 that an instance publishes
// at most.
//
// A member may publish whichever names it likes. So that it can't choose names that are all in one place of
// the table, their places follow from a random word that the front alone knows.
//
// Unlike a prompt tree (prompt_tree.h) it may have a later chunk of a prompt and lack an earlier one: its
// block was evicted, and the instance will compute it between the others. So match() looks at each chunk, or,
// of a long prompt before many instances, at some that stand for their neighbours.
//
// Thread-compatible. Deterministic.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "loci/base/random.h"
#include "loci/memory/tier.h"
#include "loci/policy/routing/named_chunks.h"

namespace loci {

// Chunks of a prompt, by where an instance has them.
struct HeldChunks {
  std::array<std::uint32_t, 3> in{};  // by tier: device, host, disk
  std::uint32_t sent = 0;             // chunks that it was sent and has not published
  std::uint32_t all() const { return in[0] + in[1] + in[2] + sent; }
};

class HeldPrompts {
 public:
  // At most `entries_max` chunks are taken. `seed`: the random word.
  HeldPrompts(std::size_t entries_max, std::uint64_t seed) : entries_max_(entries_max), seed_(seed) {}

  // Sets the chunk's tier; absent: it is nowhere. False: there is no room for one more. O(1), amortised.
  bool set(std::uint64_t name, std::optional<Tier> tier);
  std::optional<Tier> find(std::uint64_t name) const;
  void clear();
  std::size_t size() const { return size_; }

  // Where the chunks of these names are. The first `sent` of them were sent to the instance; those that it
  // has not published count as `sent`. Looks at no more than `looks_max` of them, evenly spread, and at least
  // one. O(looks_max).
  HeldChunks match(std::span<const std::uint64_t> names, std::uint32_t sent, std::uint32_t looks_max) const;

 private:
  // Of a name or its word.
  std::size_t home_of(std::uint64_t name) const {
    return mix64((name & ~kTierBits) ^ seed_) & (slots_.size() - 1);
  }
  // The slot of the name's word, or the one that it would get. There must be slots.
  std::size_t slot_of(std::uint64_t name) const;
  void grow();
  void empty(std::size_t slot);

  std::size_t entries_max_;
  std::uint64_t seed_;
  std::vector<std::uint64_t> slots_;  // 0: empty
  std::size_t size_ = 0;
};

}  // namespace loci
