// SPDX-License-Identifier: Apache-2.0
// What a source of blocks (block_source.h) is told of each: the entry that names the state in a slot, and
// changes of its record. A disk keeps the entry in the slot's header, and so has all that is needed to put
// the state back into the index after a restart. Plain values; docs/disk-store.md has the bytes.
#pragma once

#include <array>
#include <cstdint>

#include "loci/base/ids.h"
#include "loci/compute/backend.h"
#include "loci/memory/chain_key.h"

namespace loci {

// What a block hangs from: another block, a root, or a gate (block_index.h).
enum class ParentKind : std::uint8_t { kBlock, kRoot, kGate };

// A block, whole or partial (partial_block.h); its state in one group of layers is a slot's content.
struct BlockEntry {
  ChainKey key;
  ChainKey parent;
  ParentKind parent_kind = ParentKind::kBlock;
  ChainKey above;           // kGate: the public block that the gate hangs from; else zero
  std::uint32_t depth = 0;  // as in the index: the block holds positions [depth - 1, depth) * kBlockTokens
  std::array<TokenId, kBlockTokens> tokens{};
  std::int64_t used_at =
      0;  // milliseconds since 1970, when it was saved or dated again: ages survive a restart

  friend bool operator==(const BlockEntry&, const BlockEntry&) = default;
};

// An entry that was found on the disk. A *hole* has tokens and no state: it leads to entries below it.
struct RecoveredEntry {
  BlockEntry entry;
  std::uint32_t group = 0;  // of the store (DiskGroup); not of holes
  bool hole = false;
  SlotId slot;  // of the group's slots, or of the holes' records
  // The entry's key is that of its parent and its tokens. (Hashing takes as long as all else that a step does
  // for an entry, so whoever found it does that; event logs do not say so.)
  bool key_is_checked = false;
};

// A change of a record that the core wants. Its end is not told, because a lost record costs no more than
// time.
//
// A disk's changes name a slot. Stores that servers share have no slots (shared/shared_store.h): to them
// kForget has the entry's key alone, is of all groups, and the other kinds mean nothing.
struct RecordChange {
  enum class Kind : std::uint8_t {
    kHole,        // write a hole's record into `slot`
    kForgetHole,  // drop the hole's record in `slot`
    kForget,      // what is in the group's `slot`, or has the entry's key, must not be found again
    kUsed,        // what is in the group's `slot` under the entry's key was used: its record gets a new date
  };
  Kind kind = Kind::kHole;
  std::uint32_t group = 0;
  SlotId slot;
  BlockEntry entry;  // kHole; of kUsed the key and the record's new date; of a shared store's kForget the key

  friend bool operator==(const RecordChange&, const RecordChange&) = default;
};

}  // namespace loci
