// SPDX-License-Identifier: Apache-2.0
// The index's parts on the device: who gets a slot and who gives one up, and how far parts are filled. Copies
// in slower tiers are in block_copies.cc.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/memory/block_index.h"

namespace loci {

void BlockIndex::drop_part(BlockId id, std::uint32_t group) {
  Block& b = at(id);
  LOCI_CHECK(b.parts[group]->evictable(), "a part that someone holds stays");
  delist(id, Tier::kDevice, group, b.parts[group]->facts);
  if (b.filled > 0) set_filled(id, 0, {});
  if (b.parts[group]->filled > 0) b.lost = MissReason::kEvicted;
  b.parts[group].reset();
  noted_.note(id);
}

void BlockIndex::drop_parts(BlockId id) {
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    if (at(id).parts.has(group)) drop_part(id, group);
  }
}

// Drops the parts that this pin alone holds.
void BlockIndex::discard_parts(BlockPin& pin) {
  Block& b = at(pin.block_);
  if (b.filled > 0) set_filled(pin.block_, 0, {});
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    if (!pin.held_[group]) continue;
    LOCI_CHECK(b.parts[group]->holds == 1, "a part that someone else holds stays");
    b.parts[group].reset();
    pin.held_[group] = false;
  }
}

void BlockIndex::evict(std::uint32_t group) {
  const BlockId victim = device()[group].eviction->choose(now_);
  const BlockId soon = device()[group].eviction->soon();
  prefetch(soon);
  prefetch_children(soon);  // often the parent of one before it
  const Block& b = block(victim);
  LOCI_CHECK(b.parts[group] && b.parts[group]->evictable(), "a victim that someone needs");
  if (b.kind == BlockKind::kTail) {
    drop_parts(victim);
  } else {
    drop_part(victim, group);
  }
  settle(victim);
  ++evictions_;
}

bool BlockIndex::place(BlockPin& pin, std::uint32_t group) {
  std::optional<SlotReservation> slot = reserve(group);
  if (slot) place(pin, group, std::move(*slot));
  return slot.has_value();
}

std::optional<SlotReservation> BlockIndex::reserve(std::uint32_t group) {
  Pool& pool = device()[group];
  const std::uint32_t unused = pool.slots.count() - pool.slots.used_count();
  const bool only_unused = pool.slots.free_count() == unused;
  if (only_unused && (unused == 0 || pool.slots.used_count() >= pool.limit)) {
    if (pool.eviction->size() > 0) {
      evict(group);
    } else if (unused == 0) {
      return std::nullopt;
    }
  }
  return pool.slots.take();
}

std::optional<SlotId> BlockIndex::give_back(std::uint32_t group) {
  Pool& pool = device()[group];
  if (pool.slots.used_count() <= pool.limit) return std::nullopt;
  if (std::optional<SlotId> slot = pool.slots.rest()) return slot;
  if (pool.eviction->size() == 0) return std::nullopt;
  evict(group);
  return pool.slots.rest();
}

void BlockIndex::place(BlockPin& pin, std::uint32_t group, SlotReservation slot) {
  Block& b = at(pin.block_);
  LOCI_CHECK(!b.parts[group], "a slot is for a block without part");
  b.parts[group].emplace(DevicePart{.slot = std::move(slot),
                                    .filled = 0,
                                    .holds = 1,
                                    .facts = {.last_used = last_use(pin.block_, group),
                                              .born = now_,
                                              .depth = b.depth,
                                              .wanted = b.wanted_in(group)}});
  pin.held_[group] = true;
}

std::optional<AppendToken> BlockIndex::claim(BlockId id) {
  Block& b = at(id);
  LOCI_CHECK(b.pins > 0, "an append token needs a pinned block");
  if (b.appending) return std::nullopt;
  b.appending = true;
  return AppendToken(this, id);
}

std::uint32_t BlockIndex::complete_tokens(const Block& block) const {
  std::uint32_t tokens = kBlockTokens;
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    tokens = std::min(tokens, block.filled_in(group));
  }
  return tokens;
}

// What is complete changes, and with it the block's place among its parent's children.
void BlockIndex::set_filled(BlockId id, std::uint32_t filled, std::span<const TokenId> tail_tokens) {
  Block& b = at(id);
  auto& order = at(b.parent).children_with_state;
  const auto change = [&] {
    std::copy(tail_tokens.begin(), tail_tokens.end(), b.tokens.begin() + b.filled);
    b.filled = filled;
  };
  if (b.filled == 0) {
    change();
    if (filled > 0) order.insert(id);
  } else if (order.size() == 1 && filled > 0) {
    change();  // an only child keeps its place
  } else {
    const bool was_there = order.erase(id);
    LOCI_CHECK(was_there, "a child with state is among its parent's");
    change();
    if (filled > 0) order.insert(id);
  }
}

void BlockIndex::fill(const AppendToken& token, std::uint32_t filled) {
  Block& b = at(token.block());
  LOCI_CHECK(b.kind == BlockKind::kFull && filled <= kBlockTokens, "fill() is for full nodes");
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    LOCI_CHECK(b.parts[group].has_value(), "a pass writes all parts of a block");
    b.parts[group]->filled = std::max(b.parts[group]->filled, filled);
  }
  if (const std::uint32_t tokens = complete_tokens(b); tokens != b.filled) {
    set_filled(token.block(), tokens, {});
  }
  noted_.note(token.block());
}

void BlockIndex::fill_part(const AppendToken& token, std::uint32_t group) {
  Block& b = at(token.block());
  LOCI_CHECK(b.kind == BlockKind::kFull && b.parts[group], "a load fills a full node's part");
  b.parts[group]->filled = kBlockTokens;
  if (const std::uint32_t tokens = complete_tokens(b); tokens != b.filled) {
    set_filled(token.block(), tokens, {});
  }
  noted_.note(token.block());
}

void BlockIndex::append(const AppendToken& token, std::span<const TokenId> tokens) {
  Block& b = at(token.block());
  LOCI_CHECK(b.kind == BlockKind::kTail && b.filled + tokens.size() <= kBlockTokens,
             "append() is for tails, up to a block's end");
  if (tokens.empty()) return;
  const std::uint32_t filled = b.filled + static_cast<std::uint32_t>(tokens.size());
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    LOCI_CHECK(b.parts[group] && !b.parts[group]->evictable(), "a pass writes all parts of a block");
    b.parts[group]->filled = filled;
  }
  b.end_settled = false;
  set_filled(token.block(), filled, tokens);
}

void BlockIndex::truncate(const AppendToken& token, std::uint32_t filled) {
  Block& b = at(token.block());
  LOCI_CHECK(b.kind == BlockKind::kTail && b.pins == 1 && filled <= b.filled,
             "only the one user of a tail may shorten it");
  if (filled == b.filled) return;
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    LOCI_CHECK(b.parts[group] && !b.parts[group]->evictable(), "its user holds all of it");
    b.parts[group]->filled = filled;
  }
  b.end_settled = false;
  set_filled(token.block(), filled, {});
}

}  // namespace loci
