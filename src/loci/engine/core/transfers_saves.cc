// SPDX-License-Identifier: Apache-2.0
// Transfers to slower tiers, and from the disk into host memory.
#include <algorithm>
#include <deque>
#include <optional>
#include <utility>

#include "loci/engine/core/transfers.h"

namespace loci {
void Transfers::wish_save(BlockId id, Tier from, SaveScope scope) {
  if (!saves_) return;
  if (!has(Tier::kDisk) && (from == Tier::kHost || !has(Tier::kHost))) return;
  const bool fills = from == Tier::kDevice && scope == SaveScope::kWithoutWindows;
  const auto line = from == Tier::kHost              ? SaveWishes::Line::kFromHost
                    : scope == SaveScope::kAllGroups ? SaveWishes::Line::kWindows
                                                     : SaveWishes::Line::kFromDevice;
  wishes_.add(line, id, scope, fills ? form_to_save(id) : StateForm::kKeysAndValues);
}

void Transfers::wish_share(BlockId id, SaveScope scope) {
  if (saves_ && has(Tier::kShared) && config_.writes_shared)
    wishes_.add(SaveWishes::Line::kToShared, id, scope, StateForm::kKeysAndValues);
}

StateForm Transfers::form_to_save(BlockId id) const {
  if (config_.hidden.disk_blocks == 0) return StateForm::kKeysAndValues;
  return hidden_share_.holds(index_.block(id).depth - 1) ? StateForm::kHidden : StateForm::kKeysAndValues;
}

bool Transfers::may_write(Tier tier) const {
  return tier == Tier::kHost ? has(Tier::kHost)
                             : has(Tier::kDisk) && disk_open_ && !disk_write_link_.paused(now_);
}

// One more of the group's device parts may be held. (In groups with a window slots are promised.)
bool Transfers::has_room_to_hold(std::uint32_t group, const SaveRules& rules) const {
  return !windowed(group) ||
         std::uint64_t{rules.taken[group]} + moving_[group] < config_.groups[group].block_count;
}

// What `move` is to take along of the group, if the next tier lacks it and has room.
bool Transfers::add_save_part(InFlight& move, std::uint32_t group, SaveReason reason,
                              const SaveRules& rules) {
  const BlockId id = move.pin.block();
  const bool on_device = move.from == Tier::kDevice;
  const Block& block = index_.block(id);
  const LowerCopy* source = on_device ? nullptr : block.copy(move.from, group);
  const bool there = on_device ? block.filled_in(group) == kBlockTokens : source != nullptr && source->whole;
  if (!there || block.copied_below(move.to, group)) return false;
  if (on_device && !has_room_to_hold(group, rules)) return false;
  const SlotId from = on_device ? block.parts[group]->slot.slot() : source->slot.slot();
  if (on_device) {
    index_.hold(move.pin, group);
  } else {
    index_.begin_read(id, move.from, group);
  }
  const bool ahead = reason == SaveReason::kNextToBeEvicted;
  const std::optional<SlotId> to =
      index_.reserve_copy(id, move.to, group, ahead ? std::optional(move.from) : std::nullopt, move.form);
  if (to) {
    if (on_device && windowed(group)) ++moving_[group];
    move.parts.push_back({group, from, *to});
    return true;
  }
  if (on_device) {
    index_.let_go(move.pin, group, Release::kUnused);
  } else {
    index_.end_read(id, move.from, group);
  }
  return false;
}

// Saves what `from` has of the block and the next tier lacks. False: nothing was begun.
bool Transfers::begin_save(BlockId id, Tier from, SaveScope scope, SaveReason reason, const SaveRules& rules,
                           StateForm form) {
  const Tier to = next_own(from);
  if (!may_write(to)) return false;
  InFlight move{.from = from, .to = to, .pin = index_.pin(id), .parts = {}, .form = form};
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group) || scope == SaveScope::kAllGroups) add_save_part(move, group, reason, rules);
  }
  if (move.parts.empty()) return false;
  move.next_to_be_evicted = reason == SaveReason::kNextToBeEvicted;
  if (move.next_to_be_evicted) {
    for (const MovePart& part : move.parts) ++saving_ahead_[index_of(from)][part.group];
  }
  ++saves_in_flight_;
  begin_move(std::move(move));
  return true;
}

void Transfers::save_wished(Tier from, const SaveRules& rules) {
  const auto line = from == Tier::kDevice ? SaveWishes::Line::kFromDevice : SaveWishes::Line::kFromHost;
  while (!wishes_.empty(line) && may_begin()) {
    const std::optional<SaveWishes::Wish> wish = wishes_.take(line);
    if (!wish) return;
    const bool begun = begin_save(wish->block, from, wish->scope, SaveReason::kWished, rules, wish->form);
    // (There may be no room for more hidden states.)
    if (!begun && wish->form == StateForm::kHidden)
      begin_save(wish->block, from, wish->scope, SaveReason::kWished, rules, StateForm::kKeysAndValues);
  }
}

// What requests have left in groups with a window. The first that finds no room waits, and the others behind
// it: the blocks of one window are of use together.
void Transfers::save_windows(const SaveRules& rules) {
  constexpr auto kLine = SaveWishes::Line::kWindows;
  const Tier to = next_own(Tier::kDevice);
  while (!wishes_.empty(kLine) && may_begin()) {
    const std::optional<SaveWishes::Wish> wish = wishes_.take(kLine);
    if (!wish) return;
    const Block& block = index_.block(wish->block);
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      const bool lacks = block.filled_in(group) == kBlockTokens && !block.copied_below(to, group);
      if (lacks && !has_room_to_hold(group, rules)) return wishes_.keep_first(kLine, *wish);
    }
    begin_save(wish->block, Tier::kDevice, wish->scope, SaveReason::kWished, rules, wish->form);
  }
}

void Transfers::save(const SaveRules& rules) {
  if (!saves_) return;
  for (const Tier from : {Tier::kDevice, Tier::kHost}) {
    if (!may_write(next_own(from))) continue;
    save_wished(from, rules);
    if (from == Tier::kDevice) save_windows(rules);
    save_ahead(from, rules);
  }
  save_tails(rules);
  constexpr auto kLine = SaveWishes::Line::kToShared;
  while (!wishes_.empty(kLine) && shares_in_flight_ < shares_max_ && !shared_write_link_.paused(now_)) {
    const std::optional<SaveWishes::Wish> wish = wishes_.take(kLine);
    if (!wish) return;
    share(*wish, rules);
  }
}

// --- the ends of sequences ---

void Transfers::wish_save_tail(BlockId id) {
  if (saves_ && (has(Tier::kDisk) || has(Tier::kHost))) wishes_.add_tail(id, key_of_end(id));
}

// The name of the partial block that holds what the tail does.
ChainKey Transfers::key_of_end(BlockId id) const {
  const Block& tail = index_.block(id);
  const BlockTokens tokens = partial_tokens(std::span<const TokenId>(tail.tokens).first(tail.filled));
  return hasher_.child(index_.block(tail.parent).key, tokens);
}

// Those whose turn has come. (A pass in flight may use one still.)
void Transfers::save_tails(const SaveRules& rules) {
  if (!wishes_.has_tails() || !may_begin()) return;
  if (!may_write(next_own(Tier::kDevice))) return;
  std::deque<SaveWishes::TailWish> later;
  for (const SaveWishes::TailWish& wish : wishes_.take_tails()) {
    if (!wishes_.is_there(wish)) continue;
    const bool waits = !may_begin() || !index_.can_take_over(wish.tail) ||
                       begin_tail_save(wish, SaveReason::kWished, rules) == TailSave::kWaits;
    if (waits) later.push_back(wish);
  }
  wishes_.keep_tails(std::move(later));
}

Transfers::TailSave Transfers::begin_tail_save(const SaveWishes::TailWish& wish, SaveReason reason,
                                               const SaveRules& rules) {
  const Tier to = next_own(Tier::kDevice);
  const BlockId parent = index_.block(wish.tail).parent;
  const std::uint32_t held = tokens_held(wish.tokens);
  const auto kept = [&](BlockId id) {
    bool all = true;
    for (std::uint32_t group = 0; group < group_count_; ++group)
      all = all && index_.block(id).copied_below(to, group);
    return all;
  };
  const std::span<const TokenId> tokens = std::span<const TokenId>(wish.tokens).first(held);
  const BlockId same = index_.find(wish.key);
  if ((same != kNoBlock && kept(same)) || index_.match_names(parent, tokens, kept).run == held) {
    index_.settle_end(wish.tail);
    return TailSave::kNotNeeded;
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!has_room_to_hold(group, rules)) return TailSave::kWaits;
  }
  BlockPin tail = index_.pin(wish.tail);
  index_.hold_all(tail);  // a tail's parts give way together
  InFlight move{
      .from = Tier::kDevice, .to = to, .pin = index_.open_full(parent, wish.key, wish.tokens), .parts = {}};
  move.original = std::move(tail);
  move.next_to_be_evicted = reason == SaveReason::kNextToBeEvicted;
  if (!reserve_tail_parts(move, move.next_to_be_evicted ? std::optional(move.from) : std::nullopt)) {
    // Whole blocks that come behind it may have room. (Once it is let go it may be there no more.)
    if (move.next_to_be_evicted) index_.settle_end(wish.tail);
    for (std::uint32_t group = 0; group < group_count_; ++group)
      index_.let_go(*move.original, group, Release::kUnused);
    return TailSave::kNoRoom;
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) moving_[group] += windowed(group);
  if (move.next_to_be_evicted) {
    for (const MovePart& part : move.parts) ++saving_ahead_[index_of(move.from)][part.group];
  }
  ++saves_in_flight_;
  begin_move(std::move(move));
  return TailSave::kBegun;
}

// All that its tier lacks of the partial block. False: there is not room for all of it, and nothing was
// reserved.
bool Transfers::reserve_tail_parts(InFlight& move, std::optional<Tier> spare) {
  const BlockId id = move.pin.block();
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (index_.block(id).copied_below(move.to, group)) continue;
    const std::optional<SlotId> slot = index_.reserve_copy(id, move.to, group, spare);
    if (!slot) {
      for (const MovePart& part : move.parts) index_.finish_copy(id, move.to, part.group, false);
      move.parts.clear();
      return false;
    }
    move.parts.push_back({group, index_.block(move.source()).parts[group]->slot.slot(), *slot});
  }
  return true;
}

// The device parts that the move holds as its source.
void Transfers::let_go_source(InFlight& move) {
  const auto let_go = [&](BlockPin& pin, std::uint32_t group) {
    moving_[group] -= windowed(group);
    index_.let_go(pin, group, Release::kUnused);
  };
  if (move.original) {
    for (std::uint32_t group = 0; group < group_count_; ++group) let_go(*move.original, group);
  } else {
    for (const MovePart& part : move.parts) let_go(move.pin, part.group);
  }
}

// The slowest tier has the block in each group in which there is something of the partial one.
bool Transfers::replaces(BlockId id, BlockId partial) const {
  const Tier tier = has(Tier::kDisk) ? Tier::kDisk : Tier::kHost;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const LowerCopy* copy = index_.block(id).copy(tier, group);
    const bool lacks = copy == nullptr || !copy->whole;
    if (lacks && index_.block(partial).copied_below(Tier::kHost, group)) return false;
  }
  return true;
}

// The block is kept: partial ones that hold no more than its first tokens are of no use any more.
void Transfers::drop_replaced(BlockId id) {
  const Block& block = index_.block(id);
  const std::span<const TokenId> tokens =
      std::span<const TokenId>(block.tokens).first(tokens_held(block.tokens));
  for (const BlockId partial : index_.partial_beginnings(block.parent, tokens)) {
    if (partial != id && replaces(id, partial)) index_.forget(partial);
  }
}

// The move is to take the group's part along, if its source has it and no faster tier does.
void Transfers::hold_read_part(InFlight& move, std::uint32_t group, const SaveRules& rules) {
  const Block& block = index_.block(move.pin.block());
  if (move.from != Tier::kDevice) {
    const LowerCopy* copy = block.whole_copy(group);
    if (copy == nullptr || copy->tier != move.from || copy->form != StateForm::kKeysAndValues ||
        block.filled_in(group) == kBlockTokens)
      return;
    index_.begin_read(move.pin.block(), move.from, group);
    move.parts.push_back({group, copy->slot.slot(), kNoSlot});
    return;
  }
  if (block.filled_in(group) < kBlockTokens || !has_room_to_hold(group, rules)) return;
  moving_[group] += windowed(group);
  index_.hold(move.pin, group);
  move.parts.push_back({group, block.parts[group]->slot.slot(), kNoSlot});
}

void Transfers::share(const SaveWishes::Wish& wish, const SaveRules& rules) {
  for (const Tier from : {Tier::kDevice, Tier::kHost}) {
    InFlight move{.from = from, .to = Tier::kShared, .pin = index_.pin(wish.block), .parts = {}};
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (!windowed(group) || wish.scope == SaveScope::kAllGroups) hold_read_part(move, group, rules);
    }
    if (move.parts.empty()) continue;
    ++shares_in_flight_;
    begin_move(std::move(move));
  }
}

// What is saved with a block: its neighbours of one sequence in the same run of swap_chunk_tokens, the first
// one first. (Where sequences part behind it, it ends.)
std::vector<ChainKey> Transfers::chunk_of(BlockId id) const {
  const std::uint32_t blocks = config_.swap_chunk_tokens / kBlockTokens;
  std::vector<ChainKey> chunk;
  for (BlockId at = id; index_.block(at).kind == BlockKind::kFull; at = index_.block(at).parent) {
    chunk.push_back(index_.block(at).key);
    if ((index_.block(at).depth - 1) % blocks == 0) break;
  }
  std::reverse(chunk.begin(), chunk.end());
  for (BlockId at = id; index_.block(at).depth % blocks != 0;) {
    const auto& children = index_.block(at).full_children;
    if (children.size() != 1) break;
    at = *children.begin();
    chunk.push_back(index_.block(at).key);
  }
  return chunk;
}

// --- what peers read ---

std::uint8_t Transfers::there_for_peers(BlockId id) const {
  const Block& block = index_.block(id);
  const Tier slowest = slowest_own();
  std::uint8_t there = 0;
  if (is_partial(block.tokens)) return there;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const LowerCopy* copy = block.whole_copy(group);
    const bool has_copy = copy != nullptr && copy->tier <= slowest && copy->form == StateForm::kKeysAndValues;
    if (block.filled_in(group) == kBlockTokens || has_copy) there |= static_cast<std::uint8_t>(1u << group);
  }
  return there;
}

// What comes from another server is not promised on: two servers would wait for one another.
std::uint8_t Transfers::coming_for_peers(BlockId id) const {
  const Block& block = index_.block(id);
  const auto load = loads_.find(id);
  if (!block.appending || (load != loads_.end() && tier_of(load->second.slowest) == Tier::kShared)) return 0;
  std::uint8_t coming = 0;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (block.parts[group] && block.filled_in(group) < kBlockTokens)
      coming |= static_cast<std::uint8_t>(1u << group);
  }
  return coming;
}

Transfers::Served Transfers::serve(BlockId id, PeerPlace place, std::uint8_t groups, const SaveRules& rules) {
  Served served;
  groups &= there_for_peers(id);
  if (groups == 0) return served;
  for (const Tier from : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
    if (from == Tier::kDisk && !may_serve_from_disk()) continue;
    InFlight move{.from = from, .to = Tier::kShared, .pin = index_.pin(id), .parts = {}};
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if ((groups >> group & 1) != 0) hold_read_part(move, group, rules);
    }
    if (move.parts.empty()) continue;
    move.peer = place;
    if (from == Tier::kDisk) move.peer->rounds.end = place.rounds.of;
    for (const MovePart& part : move.parts) {
      const auto group = static_cast<std::uint8_t>(1u << part.group);
      served.groups |= group;
      if (move.peer->rounds.end == place.rounds.of) served.to_last |= group;
    }
    ++served.moves;
    ++serves_in_flight_;
    if (from == Tier::kDisk) ++disk_serves_in_flight_;
    begin_move(std::move(move));
  }
  return served;
}

// Saves the part or copy that is to be evicted next, and what goes with it. False: it cannot be saved now.
bool Transfers::save_next(BlockId next, Tier tier, const SaveRules& rules) {
  const SaveReason reason = SaveReason::kNextToBeEvicted;
  if (index_.block(next).kind == BlockKind::kTail) {
    if (!index_.can_take_over(next)) return false;
    const TailSave save = begin_tail_save(wishes_.tail_wish(next, key_of_end(next)), reason, rules);
    return save != TailSave::kWaits;
  }
  bool begun = false;
  for (const ChainKey& key : chunk_of(next)) {
    if (!may_begin()) break;
    const BlockId id = index_.find(key);  // (making room for one may have ended another)
    if (id == kNoBlock) continue;
    begun |= begin_save(id, tier, SaveScope::kAllGroups, reason, rules, StateForm::kKeysAndValues);
  }
  return begun;
}

void Transfers::save_ahead(Tier tier, const SaveRules& rules) {
  if (!has(tier)) return;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    while (may_begin()) {
      const TierUse use = index_.use(tier, group);
      const std::uint64_t wanted = use.slots * std::uint64_t{rules.free_percent};
      const std::uint64_t soon = saving_ahead_[static_cast<std::size_t>(tier)][group];
      if ((index_.reclaimable(tier, group) + soon) * 100 >= wanted) break;
      const BlockId next = index_.next_unsaved(tier, group);
      if (next == kNoBlock || !save_next(next, tier, rules)) break;
    }
  }
}

bool Transfers::prefetch(BlockId id, GroupSet groups) {
  // Without a whole copy on the disk there is nothing to bring, and nothing to pin.
  const LowerCopies& copies = index_.block(id).copies;
  if (std::none_of(copies.begin(), copies.end(),
                   [](const LowerCopy& copy) { return copy.tier == Tier::kDisk && copy.whole; }))
    return true;
  bool room = true;
  InFlight move{.from = Tier::kDisk, .to = Tier::kHost, .pin = index_.pin(id), .parts = {}};
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const Block& block = index_.block(id);
    const LowerCopy* disk = block.copy(Tier::kDisk, group);
    if (disk == nullptr || !disk->whole || block.parts[group] || block.copy(Tier::kHost, group) != nullptr ||
        !has_group(groups, group))
      continue;
    const SlotId from = disk->slot.slot();
    index_.begin_read(id, Tier::kDisk, group);
    const std::optional<SlotId> slot = index_.reserve_copy(id, Tier::kHost, group);
    if (!slot) {
      index_.end_read(id, Tier::kDisk, group);
      room = false;
      continue;
    }
    move.parts.push_back({group, from, *slot});
  }
  if (move.parts.empty()) return room;
  ++saves_in_flight_;
  begin_move(std::move(move));
  return room;
}

}  // namespace loci
