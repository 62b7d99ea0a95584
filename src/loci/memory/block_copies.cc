// SPDX-License-Identifier: Apache-2.0
// The index's copies in slower tiers: reserving, reading and losing them, and what the disk's records are to
// say so that a restart finds the way to what is there.
#include <algorithm>
#include <utility>
#include <vector>

#include "loci/base/check.h"
#include "loci/memory/block_index.h"

namespace loci {
namespace {

constexpr std::uint8_t bit(Tier tier) { return static_cast<std::uint8_t>(1u << static_cast<unsigned>(tier)); }

// This server's tiers slower than `tier` that have the whole part.
std::uint8_t elsewhere(const Block& block, Tier tier, std::uint32_t group) {
  std::uint8_t tiers = 0;
  for (const LowerCopy& copy : block.copies) {
    if (copy.group == group && copy.whole && copy.tier > tier && copy.tier != Tier::kShared)
      tiers |= bit(copy.tier);
  }
  return tiers;
}

}  // namespace

// --- looking ---

const LowerCopy* Block::copy(Tier tier, std::uint32_t group) const {
  for (const LowerCopy& copy : copies) {
    if (copy.tier == tier && copy.group == group) return &copy;
  }
  return nullptr;
}

const LowerCopy* Block::whole_copy(std::uint32_t group) const {
  const LowerCopy* best = nullptr;
  for (const LowerCopy& copy : copies) {
    if (copy.group != group || !copy.whole) continue;
    if (best == nullptr || copy.tier < best->tier) best = &copy;
  }
  return best;
}

bool Block::copied_below(Tier tier, std::uint32_t group) const {
  return std::any_of(copies.begin(), copies.end(), [&](const LowerCopy& copy) {
    return copy.group == group && copy.tier >= tier && copy.tier != Tier::kShared;
  });
}

bool BlockIndex::reachable(BlockId id, Tier slowest) const {
  for (std::uint32_t group = 0; group < group_count(); ++group)
    if (!reachable(id, group, slowest)) return false;
  return true;
}

bool BlockIndex::reachable(BlockId id, std::uint32_t group, Tier slowest) const {
  const Block& b = block(id);
  if (b.filled_in(group) == kBlockTokens) return true;
  const LowerCopy* copy = b.whole_copy(group);
  return copy != nullptr && copy->tier <= slowest;
}

TierUse BlockIndex::use(Tier tier, std::uint32_t pool) const {
  const Pools& pools = tiers_[static_cast<std::size_t>(tier)];
  if (pools.empty()) return {};
  const Pool& of = pools[pool];
  if (tier == Tier::kDevice) return {of.slots.count(), of.slots.free_count(), of.evictable, of.evictions};
  if (of.other == nullptr) return {of.limit, of.free(), of.evictable, of.evictions};
  const std::uint32_t free = pool < group_count() ? of.free() : 0;
  return {of.used() + free, free, of.evictable, of.evictions};
}

std::uint32_t BlockIndex::reclaimable(Tier tier, std::uint32_t group) const {
  const Pool& pool = tiers_[static_cast<std::size_t>(tier)][group];
  const std::size_t unsaved = pool.unsaved == nullptr ? 0 : pool.unsaved->size();
  return pool.free() + pool.evictable - static_cast<std::uint32_t>(unsaved);
}

BlockEntry BlockIndex::entry(BlockId id) const {
  const Block& b = block(id);
  LOCI_CHECK(b.kind == BlockKind::kFull, "a disk's slot holds a whole block");
  const Block& parent = block(b.parent);
  BlockEntry entry;
  entry.key = b.key;
  entry.parent = parent.key;
  entry.depth = b.depth;
  entry.tokens = b.tokens;
  if (parent.kind == BlockKind::kRoot) {
    entry.parent_kind = parent.parent == kNoBlock ? ParentKind::kRoot : ParentKind::kGate;
    if (parent.parent != kNoBlock) entry.above = block(parent.parent).key;
  }
  return entry;
}

// --- orders of eviction ---

// A whole block's whole part, which no slower tier has, or a tail's, which was not saved.
bool BlockIndex::savable(BlockId id, Tier tier, std::uint32_t group, const EvictionFacts& facts) const {
  const Block& b = block(id);
  if (b.kind == BlockKind::kTail) return saves_tails_ && !b.end_settled;
  return facts.elsewhere == 0 && b.kind == BlockKind::kFull &&
         (tier != Tier::kDevice || b.parts[group]->filled == kBlockTokens);
}

void BlockIndex::enlist(BlockId id, Tier tier, std::uint32_t group, EvictionFacts& facts, StateForm form) {
  facts.elsewhere = elsewhere(block(id), tier, group);
  facts.form = form;
  Pool& p = pool(tier, pool_number(group, form));
  p.order().insert(id, facts);
  ++p.evictable;
  if (p.unsaved != nullptr && savable(id, tier, group, facts)) p.unsaved->insert(id, facts);
}

void BlockIndex::delist(BlockId id, Tier tier, std::uint32_t group, const EvictionFacts& facts,
                        StateForm form) {
  Pool& p = pool(tier, pool_number(group, form));
  p.order().erase(id, facts);
  --p.evictable;
  if (p.unsaved != nullptr && savable(id, tier, group, facts)) p.unsaved->erase(id, facts);
}

void BlockIndex::set_orders(Tier tier, std::uint32_t pool_of, std::unique_ptr<EvictionOrder> eviction,
                            std::unique_ptr<EvictionOrder> unsaved) {
  Pool& p = pool(tier, pool_of);
  LOCI_CHECK((unsaved == nullptr) == (p.unsaved == nullptr), "the same copies are saved");
  LOCI_CHECK(eviction != nullptr && p.eviction != nullptr, "a pool with an order of its own");
  p.eviction = std::move(eviction);
  p.evictable = 0;
  if (p.other != nullptr) p.other->evictable = 0;
  p.unsaved = std::move(unsaved);
  for (std::uint32_t i = 0; i < blocks_.size(); ++i) {
    Block& b = blocks_[i];
    if (b.kind == BlockKind::kUnused) continue;
    if (tier == Tier::kDevice) {
      if (b.parts.has(pool_of) && b.parts[pool_of]->evictable())
        enlist(BlockId(i), tier, pool_of, b.parts[pool_of]->facts);
      continue;
    }
    for (LowerCopy& copy : b.copies) {
      if (copy.tier == tier && copy.group == pool_of && copy.evictable())
        enlist(BlockId(i), tier, copy.group, copy.facts, copy.form);
    }
  }
}

template <class Change>
void BlockIndex::update_facts(BlockId id, Tier tier, std::uint32_t group, EvictionFacts& facts,
                              bool evictable, StateForm form, Change change) {
  if (evictable) delist(id, tier, group, facts, form);
  change(facts);
  if (evictable) enlist(id, tier, group, facts, form);
}

template <class Change>
void BlockIndex::update_facts(BlockId id, std::uint32_t group, Change change) {
  Block& b = at(id);
  if (b.parts.has(group))
    update_facts(id, Tier::kDevice, group, b.parts[group]->facts, b.parts[group]->evictable(),
                 StateForm::kKeysAndValues, change);
  for (LowerCopy& copy : b.copies) {
    if (copy.group == group)
      update_facts(id, copy.tier, group, copy.facts, copy.evictable(), copy.form, change);
  }
}

// A whole copy came or went: the facts of faster ones say where else the part is.
void BlockIndex::update_faster(BlockId id, Tier tier, std::uint32_t group) {
  if (tier == Tier::kShared) return;  // which no facts name
  Block& b = at(id);
  const auto same = [](EvictionFacts&) {};
  if (b.parts.has(group))
    update_facts(id, Tier::kDevice, group, b.parts[group]->facts, b.parts[group]->evictable(),
                 StateForm::kKeysAndValues, same);
  for (LowerCopy& copy : b.copies) {
    if (copy.group == group && copy.tier < tier)
      update_facts(id, copy.tier, group, copy.facts, copy.evictable(), copy.form, same);
  }
}

// (The part knows already.)
void BlockIndex::use_copies(BlockId id, std::uint32_t group) {
  for (LowerCopy& copy : at(id).copies) {
    if (copy.group != group) continue;
    const EvictionFacts before = copy.facts;
    copy.facts.last_used = now_;
    if (!copy.evictable()) continue;
    Pool& p = pool(copy.tier, pool_number(group, copy.form));
    p.order().use(id, before, copy.facts);
    if (p.unsaved != nullptr && savable(id, copy.tier, group, before)) p.unsaved->use(id, before, copy.facts);
  }
  date_again(id, group);
}

// Ages survive a restart by the records' dates. A date for each use would be a write for each turn and block.
void BlockIndex::date_again(BlockId id, std::uint32_t group) {
  if (!date_granularity_) return;
  for (LowerCopy& copy : at(id).copies) {
    if (copy.tier != Tier::kDisk || copy.group != group || !copy.whole) continue;
    if (now_ - copy.dated < *date_granularity_) continue;
    copy.dated = now_;
    change_record(RecordChange::Kind::kUsed, pool_number(group, copy.form), copy.slot.slot(), kNoBlock);
    record_changes_.back().entry.key = block(id).key;
  }
}

Nanos BlockIndex::last_use(BlockId id, std::uint32_t group) const {
  const Block& b = block(id);
  if (b.parts[group]) return b.parts[group]->evictable() ? b.parts[group]->facts.last_used : now_;
  Nanos last = 0;
  for (const LowerCopy& copy : b.copies) {
    if (copy.group == group && copy.whole) last = std::max(last, copy.facts.last_used);
  }
  return last;
}

void BlockIndex::set_wanted(BlockId id, std::uint32_t wanted, GroupSet groups) {
  Block& b = at(id);
  b.wanted = wanted;
  b.wanted_groups = groups;
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    update_facts(id, group, [now = b.wanted_in(group)](EvictionFacts& facts) { facts.wanted = now; });
  }
}

void BlockIndex::settle_end(BlockId tail) {
  Block& b = at(tail);
  LOCI_CHECK(b.kind == BlockKind::kTail, "the end of a sequence is a tail");
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    if (!b.parts.has(group) || !b.parts[group]->evictable()) continue;
    const EvictionFacts& facts = b.parts[group]->facts;
    Pool& p = pool(Tier::kDevice, group);
    if (p.unsaved != nullptr && savable(tail, Tier::kDevice, group, facts)) p.unsaved->erase(tail, facts);
  }
  b.end_settled = true;
}

BlockId BlockIndex::next_unsaved(Tier tier, std::uint32_t group) {
  Pool& p = pool(tier, group);
  return p.unsaved == nullptr ? kNoBlock : p.unsaved->choose(now_);
}

// --- copies ---

LowerCopy& BlockIndex::copy_at(BlockId id, Tier tier, std::uint32_t group) {
  LowerCopy* found = const_cast<LowerCopy*>(block(id).copy(tier, group));
  LOCI_CHECK(found != nullptr, "a copy that is not there");
  return *found;
}

// What is brought to a faster tier takes no room from what is needed before it. What is saved takes it, but
// for the last that there is of something.
bool BlockIndex::may_displace(BlockId by, BlockId victim, Tier tier, std::uint32_t group) const {
  const Block &b = block(by), &v = block(victim);
  if (v.wanted_in(group) == kNotWanted || v.wanted_in(group) > b.wanted_in(group)) return true;
  const LowerCopy* source = b.whole_copy(group);
  const bool prefetched = source != nullptr && source->tier > tier;
  if (prefetched) return false;
  const bool last = v.filled_in(group) < kBlockTokens && std::none_of(
                                                             v.copies.begin(), v.copies.end(),
                                                             [&](const LowerCopy& copy) {
                                                               return copy.group == group && copy.whole &&
                                                                      copy.tier != tier &&
                                                                      copy.tier != Tier::kShared;
                                                             });
  return !last;
}

// Its writes have failed, one after the other: it is not the slots. A form that has no room any more tries
// one all the same now and then, for which the other gives some up: it may go well again. Asked once a save.
bool BlockIndex::gives_nothing_up(Pool& pool) {
  constexpr std::uint64_t kTrialsApart = 1'024;
  return pool.slots.fails() && (pool.other == nullptr || ++pool.refused % kTrialsApart != 0);
}

// Gives up copies, of either form, until there is room for one more in the pool. False: they must stay.
bool BlockIndex::make_room(BlockId by, Tier tier, std::uint32_t pool_of, std::optional<Tier> spare) {
  Pool& p = pool(tier, pool_of);
  if (p.is_beyond()) return false;  // giving one up makes no room yet
  if (p.free() > 0) return true;
  if (!gives_nothing_up(p)) {
    const std::uint32_t group = pool_of % group_count();
    const std::vector<BlockId> going = victims(by, tier, pool_of, spare);
    for (std::size_t i = 0; i < going.size(); ++i) {
      const LowerCopy* copy = block(going[i]).copy(tier, group);
      if (copy == nullptr) continue;  // it went with one before it
      const bool is_last = i + 1 == going.size() && pool_number(group, copy->form) == pool_of;
      evict_copy(going[i], tier, group, is_last && !p.slots.is_trial_next());
    }
  }
  // (Some may be free and set aside.)
  return p.free() > 0 || (p.used() < p.allowed() && p.slots.free_count() > 0);
}

// The next of the order, of either form, that together make room for one more; none if one of them must stay.
// Where a slot is missing, as others are set aside, the first of the same form; where none is near, all that
// were looked at: they are the least worth, and the next save looks at those behind them.
std::vector<BlockId> BlockIndex::victims(BlockId by, Tier tier, std::uint32_t pool_of,
                                         std::optional<Tier> spare) {
  constexpr std::size_t kLooksMost = 256;
  Pool& p = pool(tier, pool_of);
  const std::uint32_t group = pool_of % group_count();
  const bool has_room = p.used() < p.allowed();
  std::uint32_t used = p.used(), others = p.other == nullptr ? 0 : p.other->used();
  // One that was set aside does where there is no other, and for a trial.
  const bool any_slot = p.evictable == 0 || (p.slots.fails() && !has_room);
  std::uint32_t ready = any_slot ? p.slots.free_count() : p.slots.ready_count();
  const bool lacks_slot = ready == 0;
  if (has_room && !lacks_slot) return {};
  std::vector<BlockId> looked;
  bool enough = false, refused = false;
  while (!enough && looked.size() < kLooksMost && p.order().size() > 0) {
    const BlockId victim = p.order().choose(now_);
    refused = !may_displace(by, victim, tier, group) || (spare && is_spared(victim, *spare, group));
    if (refused) break;
    looked.push_back(victim);
    LowerCopy& copy = copy_at(victim, tier, group);
    const bool own = pool_number(group, copy.form) == pool_of;
    --(own ? used : others);
    ready += own ? 1 : 0;
    enough = used < p.allowed_beside(others) && ready > 0;
    if (!enough) delist(victim, tier, group, copy.facts, copy.form);
  }
  // What was only looked at is as before.
  for (std::size_t i = 0; i < looked.size() - (enough ? 1 : 0); ++i) {
    LowerCopy& copy = copy_at(looked[i], tier, group);
    enlist(looked[i], tier, group, copy.facts, copy.form);
  }
  if (enough) return lacks_slot ? std::vector{looked.back()} : looked;
  return lacks_slot && !refused && looked.size() == kLooksMost ? looked : std::vector<BlockId>{};
}

// Whether another tier that is asked for has it too.
bool BlockIndex::is_spared(BlockId victim, Tier spare, std::uint32_t group) const {
  const Block& b = block(victim);
  const LowerCopy* copy = b.copy(spare, group);
  return spare == Tier::kDevice ? b.filled_in(group) == kBlockTokens : copy != nullptr && copy->whole;
}

// `rewritten`: its slot is written next, so that nobody need tell the disk.
void BlockIndex::evict_copy(BlockId victim, Tier tier, std::uint32_t group, bool rewritten) {
  ++pool(tier, pool_number(group, block(victim).copy(tier, group)->form)).evictions;
  if (rewritten) {
    erase_copy(victim, tier, group, MissReason::kEvicted);
  } else {
    drop_copy(victim, tier, group, MissReason::kEvicted);
  }
  settle(victim);
}

std::optional<SlotId> BlockIndex::reserve_copy(BlockId id, Tier tier, std::uint32_t group,
                                               std::optional<Tier> spare, StateForm form) {
  LOCI_CHECK(block(id).pins > 0 && block(id).kind == BlockKind::kFull, "a copy is of a pinned whole block");
  LOCI_CHECK(block(id).copy(tier, group) == nullptr, "a tier has one copy");
  const std::uint32_t number = pool_number(group, form);
  Pool& p = pool(tier, number);
  if (!make_room(id, tier, number, spare)) return std::nullopt;
  Block& b = at(id);
  b.copies.push_back({.slot = std::move(*p.slots.take()),
                      .tier = tier,
                      .group = static_cast<std::uint8_t>(group),
                      .form = form,
                      .facts = {}});
  b.copies.back().facts.depth = b.depth;
  b.copies.back().facts.wanted = b.wanted_in(group);
  return b.copies.back().slot.slot();
}

void BlockIndex::doubt_slot(BlockId id, Tier tier, std::uint32_t group) {
  copy_at(id, tier, group).slot.doubt();
}

void BlockIndex::finish_copy(BlockId id, Tier tier, std::uint32_t group, bool whole) {
  LowerCopy& copy = copy_at(id, tier, group);
  LOCI_CHECK(!copy.whole, "a copy is written once");
  // Nobody names the slot when the block is forgotten later, or the one that had the slot before: the disk
  // may have what that one left, and a part of this one whose other parts failed.
  if (!whole) return drop_copy(id, tier, group, block(id).lost);
  const Nanos used = last_use(id, group);
  copy.slot.prove();
  copy.whole = true;
  copy.facts.born = copy.dated = now_;
  copy.facts.last_used = used != 0 ? used : now_;
  enlist(id, tier, group, copy.facts, copy.form);
  update_faster(id, tier, group);
  noted_.note(id);
  if (tier == Tier::kDisk) update_disk(id);
}

void BlockIndex::set_at_peer(BlockId id, std::uint32_t group, bool at_peer) {
  copy_at(id, Tier::kShared, group).at_peer = at_peer;
}

void BlockIndex::begin_read(BlockId id, Tier tier, std::uint32_t group) {
  LowerCopy& copy = copy_at(id, tier, group);
  LOCI_CHECK(copy.whole && block(id).pins > 0, "only a whole copy of a pinned block is read");
  if (copy.evictable()) delist(id, tier, group, copy.facts, copy.form);
  ++copy.readers;
}

void BlockIndex::end_read(BlockId id, Tier tier, std::uint32_t group) {
  LowerCopy& copy = copy_at(id, tier, group);
  LOCI_CHECK(copy.readers > 0, "a read ends once");
  if (--copy.readers > 0) return;
  enlist(id, tier, group, copy.facts, copy.form);
}

// Without a word to the disk: its slot is about to be written, or the caller tells.
void BlockIndex::erase_copy(BlockId id, Tier tier, std::uint32_t group, MissReason reason) {
  LowerCopy& copy = copy_at(id, tier, group);
  LOCI_CHECK(copy.readers == 0, "a copy that is read stays");
  Block& b = at(id);
  const bool whole = copy.whole;
  if (whole) {
    delist(id, tier, group, copy.facts, copy.form);
    copy.whole = false;
    b.lost = reason;
    update_faster(id, tier, group);
  }
  b.copies.erase(b.copies.begin() + (&copy - b.copies.data()));
  noted_.note(id);
  if (tier == Tier::kDisk) update_disk(id);
}

void BlockIndex::drop_copy(BlockId id, Tier tier, std::uint32_t group, MissReason reason) {
  if (tier == Tier::kDisk) {
    const LowerCopy& copy = *block(id).copy(tier, group);
    change_record(RecordChange::Kind::kForget, pool_number(group, copy.form), copy.slot.slot(), kNoBlock);
  }
  erase_copy(id, tier, group, reason);
}

void BlockIndex::drop_copies(BlockId id, MissReason reason) {
  while (!block(id).copies.empty()) {
    const LowerCopy& copy = block(id).copies.back();
    drop_copy(id, copy.tier, copy.group, reason);
  }
}

void BlockIndex::limit(Tier tier, std::uint32_t pool_of, std::uint32_t slots) {
  Pool& p = pool(tier, pool_of);
  p.limit = std::min(slots, p.slots.count());
}

std::uint32_t BlockIndex::trim(Tier tier, std::uint32_t pool_of, std::uint32_t most) {
  Pool& p = pool(tier, pool_of);
  const std::uint32_t group = pool_of % group_count();
  std::uint32_t trimmed = 0;
  for (; trimmed < most && p.is_beyond() && p.order().size() > 0; ++trimmed) {
    evict_copy(p.order().choose(now_), tier, group, false);
  }
  return trimmed;
}

void BlockIndex::expire(BlockId id, Nanos before) { drop_unused(id, before, MissReason::kExpired); }

void BlockIndex::forget(BlockId id) { drop_unused(id, kNever, MissReason::kNeverSeen); }

void BlockIndex::drop_unused(BlockId id, Nanos before, MissReason reason) {
  Block& b = at(id);
  if (b.pins > 0 || (b.kind != BlockKind::kFull && b.kind != BlockKind::kTail)) return;
  const auto old = [before](const EvictionFacts& facts) { return facts.last_used < before; };
  bool dropped = false;
  for (std::uint32_t group = 0; group < group_count(); ++group) {
    if (!b.parts[group] || !old(b.parts[group]->facts)) continue;
    if (b.kind == BlockKind::kTail) {
      drop_parts(id);
    } else {
      drop_part(id, group);
    }
    dropped = true;
  }
  for (std::size_t i = b.copies.size(); i > 0; --i) {
    const LowerCopy& copy = b.copies[i - 1];
    if (!copy.evictable() || !old(copy.facts)) continue;
    drop_copy(id, copy.tier, copy.group, reason);
    dropped = true;
  }
  if (!dropped) return;
  b.lost = reason;
  settle(id);
}

// --- the disk's records ---

void BlockIndex::change_record(RecordChange::Kind kind, std::uint32_t group, SlotId slot, BlockId id) {
  RecordChange& change = record_changes_.emplace_back();
  change.kind = kind;
  change.group = group;
  change.slot = slot;
  if (id != kNoBlock) change.entry = entry(id);
}

// Tells those above whether there is anything on the disk below them, and keeps holes' records.
void BlockIndex::update_disk(BlockId id) {
  while (id != kNoBlock) {
    Block& b = at(id);
    const bool has =
        b.disk_children > 0 || std::any_of(b.copies.begin(), b.copies.end(), [](const LowerCopy& copy) {
          return copy.tier == Tier::kDisk && copy.whole;
        });
    update_hole(id);
    if (has == b.on_disk) return;
    b.on_disk = has;
    if (b.parent == kNoBlock) return;
    at(b.parent).disk_children += has ? 1 : -1;
    id = b.parent;
  }
}

void BlockIndex::update_hole(BlockId id) {
  Block& b = at(id);
  const bool copied = std::any_of(b.copies.begin(), b.copies.end(), [](const LowerCopy& copy) {
    return copy.tier == Tier::kDisk && copy.whole;
  });
  const bool wanted = b.kind == BlockKind::kFull && b.disk_children > 0 && !copied;
  if (wanted == b.hole.has_value()) return;
  if (!wanted) {
    change_record(RecordChange::Kind::kForgetHole, 0, b.hole->slot(), kNoBlock);
    b.hole.reset();
  } else if (std::optional<SlotReservation> slot = holes_.take()) {
    b.hole.emplace(std::move(*slot));
    change_record(RecordChange::Kind::kHole, 0, b.hole->slot(), id);
  }
}

bool BlockIndex::recover_copy(BlockId id, std::uint32_t pool_of, SlotId slot, Nanos last_used) {
  Block& b = at(id);
  const std::uint32_t group = pool_of % group_count();
  const StateForm form = pool_of == group ? StateForm::kKeysAndValues : StateForm::kHidden;
  LOCI_CHECK(b.kind == BlockKind::kFull && b.pins > 0, "what is recovered is a pinned whole block");
  if (b.copy(Tier::kDisk, group) != nullptr) return false;
  std::optional<SlotReservation> taken = pool(Tier::kDisk, pool_of).slots.take(slot);
  if (!taken) return false;
  b.copies.push_back({.slot = std::move(*taken),
                      .tier = Tier::kDisk,
                      .group = static_cast<std::uint8_t>(group),
                      .form = form,
                      .facts = {}});
  LowerCopy& copy = b.copies.back();
  copy.facts.depth = b.depth;
  copy.facts.wanted = b.wanted_in(group);
  copy.whole = true;
  copy.facts.born = copy.facts.last_used = copy.dated = last_used;
  enlist(id, Tier::kDisk, group, copy.facts, form);
  update_faster(id, Tier::kDisk, group);
  update_disk(id);
  noted_.note(id);
  return true;
}

bool BlockIndex::recover_hole(BlockId id, SlotId slot) {
  Block& b = at(id);
  if (b.hole || b.kind != BlockKind::kFull) return false;
  std::optional<SlotReservation> taken = holes_.take(slot);
  if (!taken) return false;
  b.hole.emplace(std::move(*taken));
  if (b.lost == MissReason::kNeverSeen) b.lost = MissReason::kEvicted;
  return true;
}

}  // namespace loci
