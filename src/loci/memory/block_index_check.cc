// SPDX-License-Identifier: Apache-2.0
// The index's invariants, as block_index.h lists them.
#include <algorithm>
#include <vector>

#include "loci/base/check.h"
#include "loci/memory/block_index.h"

namespace loci {

void BlockIndex::check_block(BlockId id) const {
  const Block& b = block(id);
  if (b.kind == BlockKind::kUnused) {
    LOCI_CHECK(!b.has_part() && b.copies.empty() && b.pins == 0 && b.children == 0 && b.filled == 0,
               "invariant 6: an unused node holds nothing");
    return;
  }
  if (b.kind == BlockKind::kRoot) {
    LOCI_CHECK(!b.has_part() && b.filled == 0, "invariant 5: a root has no state");
    if (b.parent != kNoBlock) {
      LOCI_CHECK(block(b.parent).kind == BlockKind::kFull && b.depth == block(b.parent).depth,
                 "invariant 5: a gate is below a full node");
    }
  } else {
    LOCI_CHECK(b.parent != kNoBlock, "invariant 5: what is no root has a parent");
    const Block& parent = block(b.parent);
    LOCI_CHECK(parent.kind == BlockKind::kRoot || parent.kind == BlockKind::kFull,
               "invariant 5: tails are leaves");
    LOCI_CHECK(b.depth == parent.depth + 1, "invariant 5: depth counts from the root");
    LOCI_CHECK(parent.children_with_state.contains(id) == (b.filled > 0),
               "invariant 10: a parent orders its children with complete state");
    LOCI_CHECK(b.filled == complete_tokens(b), "invariant 10: complete is what all parts hold");
  }
  check_parts(id);
  if (b.appending) LOCI_CHECK(b.pins > 0, "invariant 2: who appends has a pin");
  if (b.published > 0) {
    LOCI_CHECK(b.filled > 0 && b.pins > 0, "invariant 2: what is public is there and stays");
    for (std::uint32_t group = 0; group < group_count(); ++group) {
      LOCI_CHECK(b.parts[group] && b.parts[group]->holds > 0, "invariant 2: all of what is public is held");
    }
  }
  if (b.kind != BlockKind::kTail) {
    LOCI_CHECK(find(b.key) == id, "invariant 4: a key leads to its node");
    if (b.kind == BlockKind::kFull) {
      const auto& named = block(b.parent).full_children;
      const auto found = named.find(std::span<const TokenId>(b.tokens));
      LOCI_CHECK(found != named.end() && *found == id, "invariant 4: its tokens lead to it, too");
      LOCI_CHECK(tokens_held(b.tokens) > 0, "invariant 6: a full node holds something");
    }
    LOCI_CHECK(!b.end_settled, "invariant 4: only tails are ends");
  } else {
    LOCI_CHECK(b.children == 0, "invariant 5: tails are leaves");
  }
  constexpr NotedBlocks::Reader kPlaces = NotedBlocks::Reader::kPlaces;
  LOCI_CHECK(!noted_.watches(kPlaces) || noted_.is_noted(kPlaces, id) || b.told == tier_of(id),
             "invariant 10: who watches was told");
  LOCI_CHECK(b.kind == BlockKind::kFull || !b.told, "invariant 10: only full nodes have names to be told");
  LOCI_CHECK(b.has_part() || !b.copies.empty() || b.pins > 0 || b.children > 0,
             "invariant 6: a node without use ends");
  if (b.pins == 0 && b.children == 0) {
    LOCI_CHECK(b.kind == BlockKind::kFull ? b.filled == kBlockTokens || reachable(id) : b.filled > 0,
               "invariant 6: an unused leaf has complete state");
  }
  check_copies(id);
}

void BlockIndex::check_copies(BlockId id) const {
  const Block& b = block(id);
  bool on_disk = b.disk_children > 0, copied = false;
  for (const LowerCopy& copy : b.copies) {
    LOCI_CHECK(b.kind == BlockKind::kFull && copy.group < group_count() && has_tier(copy.tier),
               "invariant 4: a copy is of a whole block");
    LOCI_CHECK(b.copy(copy.tier, copy.group) == &copy, "invariant 1: a tier has one copy");
    LOCI_CHECK(copy.form == StateForm::kKeysAndValues || copy.tier == Tier::kDisk,
               "invariant 4: hidden states are on the disk alone");
    LOCI_CHECK(copy.facts.depth == b.depth && copy.facts.wanted == b.wanted_in(copy.group),
               "invariant 10: a copy is as deep as its block, and as wanted");
    LOCI_CHECK((copy.whole && copy.readers == 0) || b.pins > 0, "invariant 3: a transfer has a pin");
    LOCI_CHECK(copy.whole || copy.readers == 0, "invariant 3: what is being written is not read");
    copied = copied || (copy.whole && copy.tier == Tier::kDisk);
  }
  on_disk = on_disk || copied;
  LOCI_CHECK(b.on_disk == on_disk, "invariant 10: what is on the disk is known above");
  const bool hole = b.kind == BlockKind::kFull && b.disk_children > 0 && !copied;
  LOCI_CHECK(hole || !b.hole || b.pins > 0,
             "invariant 6: a hole leads to what is on the disk, or is being recovered");
}

void BlockIndex::check_parts(BlockId id) const {
  const Block& b = block(id);
  for (std::uint32_t group = 0; group < kLayerGroupsMax; ++group) {
    if (!b.parts[group]) continue;
    const DevicePart& part = *b.parts[group];
    LOCI_CHECK(group < group_count(), "invariant 4: a part is of a group");
    LOCI_CHECK(part.holds <= b.pins, "invariant 2: who holds a part has a pin");
    LOCI_CHECK(part.filled <= kBlockTokens, "invariant 4: a part holds at most a block");
    LOCI_CHECK(part.facts.depth == b.depth && part.facts.wanted == b.wanted_in(group),
               "invariant 10: a part is as deep as its block, and as wanted");
    if (b.kind == BlockKind::kTail) {
      LOCI_CHECK(part.filled == b.filled, "invariant 4: a tail's parts are filled alike");
    }
    if (b.pins == 0) LOCI_CHECK(part.filled > 0, "invariant 6: an unused part has state");
  }
}

void BlockIndex::check_tier(Tier tier, std::span<const std::uint32_t> detached) const {
  const Pools& pools = tiers_[static_cast<std::size_t>(tier)];
  std::vector<std::vector<bool>> seen;
  for (const Pool& pool : pools) seen.emplace_back(pool.slots.count(), false);
  std::vector<std::size_t> taken(pools.size(), 0), evictable(pools.size(), 0), unsaved(pools.size(), 0);
  const auto count = [&](const Block& b, std::uint32_t group, SlotId slot, bool may_go, bool whole,
                         std::uint8_t elsewhere) {
    LOCI_CHECK(slot.value < seen[group].size() && !seen[group][slot.value],
               "invariant 1: a slot has one owner");
    LOCI_CHECK(pools[group].slots.taken(slot), "invariant 1: a part's slot is taken");
    seen[group][slot.value] = true;
    ++taken[group];
    evictable[group] += may_go;
    if (!may_go) return;
    std::uint8_t below = 0;
    for (const LowerCopy& copy : b.copies) {
      if (copy.group == group % group_count() && copy.whole && copy.tier > tier && copy.tier != Tier::kShared)
        below |= 1u << static_cast<unsigned>(copy.tier);
    }
    LOCI_CHECK(elsewhere == below, "invariant 10: what remains elsewhere is known");
    unsaved[group] += b.kind == BlockKind::kTail ? saves_tails_ && !b.end_settled : below == 0 && whole;
  };
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    for (std::uint32_t group = 0; tier == Tier::kDevice && group < group_count(); ++group) {
      if (!b.parts[group]) continue;
      const DevicePart& part = *b.parts[group];
      count(b, group, part.slot.slot(), part.evictable(), part.filled == kBlockTokens, part.facts.elsewhere);
    }
    for (const LowerCopy& copy : b.copies) {
      if (copy.tier == tier)
        count(b, pool_number(copy.group, copy.form), copy.slot.slot(), copy.evictable(), copy.whole,
              copy.facts.elsewhere);
    }
  }
  for (std::uint32_t group = 0; group < pools.size(); ++group) {
    const Pool& pool = pools[group];
    const std::size_t others = detached.empty() ? 0 : detached[group];
    LOCI_CHECK(taken[group] + others + pool.slots.free_count() == pool.slots.count(),
               "invariant 1: free or one part's");
    LOCI_CHECK(evictable[group] == pool.evictable, "invariant 10: what may be evicted is counted");
    const std::size_t ordered = evictable[group] + (pool.other == nullptr ? 0 : pool.other->evictable);
    LOCI_CHECK(pool.eviction == nullptr || ordered == pool.eviction->size(),
               "invariant 2: what nobody holds may be evicted, nothing else");
    LOCI_CHECK(pool.unsaved == nullptr || unsaved[group] == pool.unsaved->size(),
               "invariant 10: what no slower tier has is to be saved");
  }
}

void BlockIndex::check_invariants(std::span<const std::uint32_t> detached) const {
  check_tier(Tier::kDevice, detached);
  check_tier(Tier::kHost, {});
  check_tier(Tier::kDisk, {});
  check_tier(Tier::kShared, {});
  noted_.check_invariants();
  std::vector<std::uint32_t> children(blocks_.size(), 0), disk_children(blocks_.size(), 0);
  std::size_t keyed = 0, live = 0, holes = 0;
  std::vector<std::uint32_t> full(blocks_.size(), 0), partial(blocks_.size(), 0);
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    check_block(BlockId(i));
    if (b.kind == BlockKind::kUnused) continue;
    ++live;
    holes += b.hole.has_value();
    if (b.kind != BlockKind::kTail) ++keyed;
    if (b.parent == kNoBlock) continue;
    ++children[b.parent.value];
    disk_children[b.parent.value] += b.on_disk;
    full[b.parent.value] += b.kind == BlockKind::kFull;
    partial[b.parent.value] += b.kind == BlockKind::kFull && is_partial(b.tokens);
  }
  LOCI_CHECK(holes + holes_.free_count() == holes_.count(), "invariant 1: a hole's record has one owner");
  by_key_.check_invariants();
  LOCI_CHECK(keyed == by_key_.size(), "invariant 4: one node a key");
  LOCI_CHECK(live == live_, "invariant 10: nodes are counted");
  std::size_t full_nodes = 0, ends = 0;
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].kind != BlockKind::kFull) continue;
    ++full_nodes;
    ends += full[i] == 0;
  }
  LOCI_CHECK(full_nodes == full_count_ && ends == end_count_,
             "invariant 10: sequences are counted by their ends");
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    const Block& b = blocks_[i];
    LOCI_CHECK(children[i] == b.children && disk_children[i] == b.disk_children,
               "invariant 10: children are counted");
    LOCI_CHECK(full[i] == b.full_children.size() && partial[i] == b.partial_children,
               "invariant 10: full children are in order, once");
    LOCI_CHECK(std::is_sorted(b.children_with_state.begin(), b.children_with_state.end(), ChildOrder(this)),
               "invariant 10: children are in order");
  }
}

}  // namespace loci
