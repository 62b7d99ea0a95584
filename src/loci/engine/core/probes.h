// SPDX-License-Identifier: Apache-2.0
// What a waiting request finds of its blocks: plain values that the lookup makes, and that admission and the
// transfers read.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "loci/base/ids.h"
#include "loci/compute/backend.h"
#include "loci/engine/core/arrival_keys.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/eviction_order.h"
#include "loci/memory/slot_pool.h"
#include "loci/memory/tier.h"

namespace loci {

// A number for each group of layers.
using GroupCounts = std::array<std::uint32_t, kLayerGroupsMax>;
// A slot, or none, for each layer group.
using CoreSlots = std::array<std::optional<SlotReservation>, kLayerGroupsMax>;

inline bool begins_lineage(const CoreLineage* lineage, std::size_t block) {
  return lineage != nullptr && block == lineage->front_blocks;
}

// What the index has for one block of a waiting request.
struct CoreProbe {
  enum class Source : std::uint8_t { kNone, kCopy, kTakeOver };
  ChainKey key;                   // not of the tail
  BlockId node = kNoBlock;        // not of the tail
  Source source = Source::kNone;  // a sibling whose first `run` tokens are the block's
  BlockId sibling = kNoBlock;
  std::uint32_t run = 0;
  // The groups whose state of the block the request reads, from where it goes on. (In models without windows
  // all; else those that see the block, and none behind that place.)
  GroupSet groups = kEveryGroup;
  bool load = false;               // missing parts come from a slower tier, or from its original
  BlockId original = kNoBlock;     // a block of an earlier lineage that has all that this one lacks
  std::uint32_t shift_blocks = 0;  // CoreLineage::Earlier
  bool too_slow = false;           // it could be loaded, but computing it is faster
  bool instead = false;            // the plan computes it instead of loading it
};

// A block in a slower tier that begins with the same tokens as a block of a request that lacks state in some
// group: the end of the sequence that the request continues, or another continuation of it.
struct CoreBeginning {
  BlockId block = kNoBlock;
  ChainKey key;
  std::uint32_t number = 0;  // of the request's block that begins so
  std::uint32_t there = 0;   // tokens of that block that the device has
  std::uint32_t run = 0;     // that they have in common, more than `there`
  // The first of the request's tokens that is computed without it.
  std::uint32_t computed_from = 0;
  Tier from = Tier::kDisk;
  bool hidden = false;  // it is there as hidden states
};

struct CoreProbes {
  ChainKey root;                    // of the request's own blocks: a root, or a gate below the public ones
  std::uint32_t public_blocks = 0;  // the first ones, all of them there
  const CoreLineage* lineage = nullptr;
  std::vector<CoreProbe> blocks;  // the last one: the tail
  // Kept state is used before this token; from it on the request computes everything that is not complete.
  std::uint32_t start = 0;
  std::uint32_t parting = 0;  // RequestWindows::parting
  GroupCounts promised{};     // groups with a window
  // Groups without window:
  GroupCounts slots{};      // to be taken
  GroupCounts pins{};       // evictable parts that will no longer be
  GroupCounts copy_pins{};  // the same for one pass
};

}  // namespace loci
