// SPDX-License-Identifier: Apache-2.0
// A node of the index (block_index.h has the terms): its parts, its copies, and the pins and tokens by which
// callers hold it.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <boost/container/small_vector.hpp>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/compute/backend.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/child_set.h"
#include "loci/memory/eviction_order.h"
#include "loci/memory/miss_reason.h"
#include "loci/memory/slot_pool.h"
#include "loci/memory/state_form.h"
#include "loci/memory/tier.h"

namespace loci {

class BlockIndex;

// Keeps a node where it is, and those of its parts that it holds. Move-only; dropping it lets go.
class BlockPin {
 public:
  BlockPin(BlockPin&& other) noexcept;
  BlockPin& operator=(BlockPin&& other) noexcept;
  BlockPin(const BlockPin&) = delete;
  BlockPin& operator=(const BlockPin&) = delete;
  ~BlockPin();
  BlockId block() const { return block_; }
  bool holds(std::uint32_t group) const { return held_[group]; }

 private:
  friend class BlockIndex;
  BlockPin(BlockIndex* index, BlockId block) : index_(index), block_(block) {}
  void release();
  BlockIndex* index_;  // null: moved from
  BlockId block_;
  std::bitset<kLayerGroupsMax> held_;
};

// The right to write past the fill of a block's parts. Move-only; dropping it gives the right back. Its
// holder also holds a pin.
class AppendToken {
 public:
  AppendToken(AppendToken&& other) noexcept;
  AppendToken& operator=(AppendToken&& other) noexcept;
  AppendToken(const AppendToken&) = delete;
  AppendToken& operator=(const AppendToken&) = delete;
  ~AppendToken();
  BlockId block() const { return block_; }

 private:
  friend class BlockIndex;
  AppendToken(BlockIndex* index, BlockId block) : index_(index), block_(block) {}
  void release();
  BlockIndex* index_;  // null: moved from
  BlockId block_;
};

// A part in device memory.
struct DevicePart {
  SlotReservation slot;
  std::uint32_t filled = 0;  // tokens from the block's begin whose state is there
  std::uint32_t holds = 0;   // pins that hold it
  EvictionFacts facts;

  bool evictable() const { return holds == 0; }
};

// A block's parts by group, each there or not. Most models have one group, so a node holds the first group's
// part itself. Memory for the others is made when a mutable node is first asked for one, and stays as long as
// the node.
class DeviceParts {
 public:
  std::optional<DevicePart>& operator[](std::uint32_t group) {
    if (group == 0) return first_;
    if (others_ == nullptr) others_ = std::make_unique<Others>();
    return (*others_)[group - 1];
  }
  const std::optional<DevicePart>& operator[](std::uint32_t group) const {
    if (group == 0) return first_;
    return others_ == nullptr ? kNone : (*others_)[group - 1];
  }
  // The part is there. (Makes no memory, whoever asks.)
  bool has(std::uint32_t group) const { return (*this)[group].has_value(); }
  // One is there.
  bool any() const {
    return first_ ||
           (others_ != nullptr && std::ranges::any_of(*others_, &std::optional<DevicePart>::has_value));
  }

 private:
  using Others = std::array<std::optional<DevicePart>, kLayerGroupsMax - 1>;
  static inline const std::optional<DevicePart> kNone;
  std::optional<DevicePart> first_;
  std::unique_ptr<Others> others_;
};

// A whole part in a slower tier.
struct LowerCopy {
  SlotReservation slot;
  Tier tier = Tier::kHost;
  std::uint8_t group = 0;
  StateForm form = StateForm::kKeysAndValues;
  bool whole : 1 = false;     // else it is being written, and nobody may read it
  bool at_peer : 1 = false;   // of the shared tier, beside a store: a peer gives it
  std::uint32_t readers = 0;  // transfers
  Nanos dated = 0;            // time of its last use in the disk's record
  EvictionFacts facts;

  bool evictable() const { return whole && readers == 0; }
};
static_assert(sizeof(LowerCopy) == 64, "a step that touches a copy reads one line of the cache");
// Few enough to lie in the node: one in host memory, one on the disk.
using LowerCopies = boost::container::small_vector<LowerCopy, 2>;

// Orders children by the tokens whose complete state they hold, equal ones by id.
class ChildOrder {
 public:
  using is_transparent = void;
  explicit ChildOrder(const BlockIndex* index) : index_(index) {}
  bool operator()(BlockId a, BlockId b) const;
  bool operator()(BlockId a, std::span<const TokenId> b) const;
  bool operator()(std::span<const TokenId> a, BlockId b) const;

 private:
  const BlockIndex* index_;
};

// Orders full nodes by their tokens; siblings' are never equal.
class NameOrder {
 public:
  using is_transparent = void;
  explicit NameOrder(const BlockIndex* index) : index_(index) {}
  bool operator()(BlockId a, BlockId b) const;
  bool operator()(BlockId a, std::span<const TokenId> b) const;
  bool operator()(std::span<const TokenId> a, BlockId b) const;

 private:
  const BlockIndex* index_;
};

enum class BlockKind : std::uint8_t { kUnused, kRoot, kFull, kTail };

// What steps read of many nodes lies together, in the order in which they read it: the first line of the
// cache, then the part of the first group, then the copies.
struct alignas(64) Block {
  explicit Block(const BlockIndex* index) : children_with_state(index), full_children(index) {}

  BlockKind kind = BlockKind::kUnused;
  bool appending = false;                    // someone holds the append token
  bool on_disk = false;                      // it, or a block below it, has a copy on the disk
  MissReason lost = MissReason::kNeverSeen;  // why the parts that it lacks are gone
  BlockId parent = kNoBlock;
  ChainKey key;              // roots and full nodes
  std::uint32_t filled = 0;  // tokens from the begin whose state is complete
  std::uint32_t pins = 0;
  std::uint32_t children = 0;          // number of children of any kind
  std::uint32_t depth = 0;             // 1: the first block of a sequence; of a gate: its parent's
  std::uint32_t published = 0;         // how many public prefixes hold it
  std::uint32_t wanted = kNotWanted;   // as in the facts of its parts and copies in `wanted_groups`
  std::uint32_t partial_children = 0;  // how many of the children are partial
  std::uint32_t disk_children = 0;     // children that are on_disk
  std::optional<Tier> told;            // BlockPlace::tier, as told last
  bool end_settled = false;            // of a tail: its tokens need no save (BlockIndex::settle_end())
  GroupSet wanted_groups = 0;          // whose state is wanted
  DeviceParts parts;
  LowerCopies copies;                   // at most one a tier and group
  std::optional<SlotReservation> hole;  // its record among the disk's holes
  ChildSet<ChildOrder, BlockIndex> children_with_state;
  ChildSet<NameOrder, BlockIndex> full_children;
  std::array<TokenId, kBlockTokens> tokens{};  // full: all; tail: the first `filled`

  std::uint32_t filled_in(std::uint32_t group) const { return parts[group] ? parts[group]->filled : 0; }
  // EvictionFacts::wanted of the group's part and copies.
  std::uint32_t wanted_in(std::uint32_t group) const {
    return has_group(wanted_groups, group) ? wanted : kNotWanted;
  }
  bool has_part() const { return parts.any(); }
  const LowerCopy* copy(Tier tier, std::uint32_t group) const;
  // The fastest slower tier that has the whole part of the group.
  const LowerCopy* whole_copy(std::uint32_t group) const;
  // A copy in the tier or a slower one of this server's own, whole or being written.
  bool copied_below(Tier tier, std::uint32_t group) const;
};

}  // namespace loci
