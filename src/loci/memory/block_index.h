// SPDX-License-Identifier: Apache-2.0
// The index: a trie of blocks that finds what any request shares with anything seen before.
//
// An example: two sequences, A B C D, and A B with some tokens more, e. K: the state is on the device; d: on
// the disk alone; .: nowhere.
//
//     root - A - B - C - D     A has lost its state, and stays as a *hole*: B behind it has some. D can be
//            .   K   K   d     brought back. e is a *tail*: less than a block, and without a name.
//                 |
//                  e           A lookup of A B C X probes A, B, C and X. X is not known, so nothing is known
//                  K           behind it. The request computes A anew, uses B and C, and computes X.
//
//     the disk drops D         Nothing leads to state through D any more: it goes.
//     C, then B is evicted     C goes. B stays as a hole, because e behind it has state.
//     e is evicted             e goes, and with it B and A.
//
// The rules:
//
// A block's state has a *part* in each group of layers (compute/backend.h), each in a slot of its group's
// pool; parts are held, evicted and placed independently. A token has *complete* state where all parts
// hold it.
//
// A whole block's parts may also have *copies* in slower tiers: host memory and disk, each group's in a pool
// of slots of its own. A copy is whole, or it is still being written and nobody may read it. A block that has
// a whole copy of a group's part is *reachable* in that group: the part can be brought back. The disk may
// hold copies in two forms, each with pools of its own, which share one room and one order of eviction; a
// part has one copy there, in one of them.
//
// A *full* node has a chain key and the tokens of a whole block; its parts may still be filling, or be
// gone. A *tail* has no key: a partially filled leaf whose tokens are those that its parts hold, all of
// them the same. A full node without parts is a *hole*; it stays while it is pinned or a descendant has
// state. So a node that is absent has no descendants, and a lookup that probes block by block until the
// first absent one has seen all that there is, holes or not. Roots have no tokens and no parts. A *gate* is a
// root below a full node of a public prefix. Blocks below the gate belong to those who share state, blocks
// beside it to everybody; matching among a node's children never finds those below a gate.
//
// Children with complete state are ordered by its tokens, so the longest run that any child shares with a
// text is found next to the text's own place in that order. Full nodes are ordered by their tokens a second
// time, wherever their state is: so a copy in a slower tier that begins like the text is found too. A full
// node may be *partial* (partial_block.h): the end of a sequence, as slower tiers keep it.
//
// Parts are filled from the left. Only who holds the block's move-only AppendToken writes past what is
// filled; tokens below that never change while the part is held, so whoever holds it may read them.
//
// The corner cases:
//
// If a leaf that nobody pins has lost a group's part in every tier, its other parts and copies are useless:
// to make that part again its tokens go through all layers. So such a leaf is removed, and with it the nodes
// above it that lead nowhere else. A tail is removed as soon as it loses one part.
//
// The disk outlives the process, so after a restart its blocks must be found again. A full node without a
// copy on the disk, above one that has a copy, therefore has a record there of its tokens alone (a hole's
// record). take_record_changes() tells which records the disk is to write or drop.
//
// Invariants, which check_invariants() tests, numbered as in engine/core/core.h:
//   1. Each slot is free or belongs to exactly one part or copy, of which a tier has one; each record of a
//      hole is free or one node's.
//   2. A part that a pin holds is not in the eviction order of its group; every other part is. Who holds,
//      appends or publishes has a pin.
//   3. A copy that is being written or read has a pin on its block; nobody reads one that is being written.
//   4. Keys are unique, and lead to their node; so do the tokens below a parent. A tail's parts are all there
//      and filled alike; copies are of named blocks.
//   5. A node hangs below a root, a gate or a full node, one block deeper than what is above it. (That its
//      key is that of its parent's key and its tokens is tested by engine/core/block_tables.h, which has the
//      hasher.)
//   6. A node without parts, copies, pin or children does not exist. A leaf that nobody pins is reachable in
//      all groups, and if it is a tail has complete state. A hole leads to what is on the disk.
//   10. Children, nodes and sequences are counted, and what a node knows of its copies and children is so.
//      What take_moved() has told of a full node is where its state is, or the node is noted to be told anew.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/compute/backend.h"
#include "loci/memory/block.h"
#include "loci/memory/block_entry.h"
#include "loci/memory/block_list.h"
#include "loci/memory/block_place.h"
#include "loci/memory/chain_key.h"
#include "loci/memory/eviction_order.h"
#include "loci/memory/key_table.h"
#include "loci/memory/lost_blocks.h"
#include "loci/memory/miss_reason.h"
#include "loci/memory/noted_blocks.h"
#include "loci/memory/partial_block.h"
#include "loci/memory/slot_pool.h"
#include "loci/memory/state_form.h"
#include "loci/memory/tier.h"

namespace loci {

struct ChildMatch {
  BlockId child = kNoBlock;
  std::uint32_t run = 0;  // tokens from the begin that are common and have state
};

struct Completion {
  BlockPin pin;  // of the full node, all its parts held
  // By group: the slot that the full node had for an incomplete part, which has another one now. (Somebody
  // may still be writing there.)
  std::array<std::optional<SlotReservation>, kLayerGroupsMax> replaced;
  // By group: the slot that the tail had, where the full node had the whole part. (Somebody may be reading
  // it.)
  std::array<std::optional<SlotReservation>, kLayerGroupsMax> dropped;
};

// Why a part is let go.
enum class Release : std::uint8_t {
  kWanted,        // a sequence ends or parts here: what goes on from it needs the part
  kBehindWindow,  // EvictionFacts::behind_window
  kUnused,        // a transfer held it, which does not count as a use
};

// One tier's pool of slots for one group, and the order in which slots are given up when none is free.
struct IndexPool {
  std::uint32_t slots = 0;
  // Null for hidden states alone, which are in the order of the group's keys and values.
  std::unique_ptr<EvictionOrder> eviction;
  // The same order over those blocks only that no slower tier has a copy of: the first is to be saved next.
  // Where each group has one on the device tails that were not saved are among them. May be null.
  std::unique_ptr<EvictionOrder> unsaved;
};

// The tiers, the fastest first. A slower one's pools are as many as the device's, or none; the disk may have
// as many again, for hidden states.
struct IndexPools {
  std::vector<IndexPool> device;  // 1 to kLayerGroupsMax
  std::vector<IndexPool> host;
  std::vector<IndexPool> disk;
  std::vector<IndexPool> shared;   // slots: of how many parts what the store said is remembered
  std::uint32_t hole_records = 0;  // of the disk
  // A use that is later than the date in the disk's record by at least this gives the record a new date
  // (RecordChange::kUsed).
  std::optional<Nanos> date_granularity;  // absent: never
};

// Where two forms share a room, what is free counts as keys and values.
struct TierUse {
  std::uint32_t slots = 0;
  std::uint32_t free = 0;
  std::uint32_t evictable = 0;
  std::uint64_t evictions = 0;
};

// Thread-compatible. It must outlive its pins and tokens.
class BlockIndex {
 public:
  explicit BlockIndex(IndexPools pools);
  BlockIndex(const BlockIndex&) = delete;
  BlockIndex& operator=(const BlockIndex&) = delete;

  // The time that uses from now on are recorded with.
  void advance(Nanos now) { now_ = now; }

  // From now on these orders say which of the tier's copies in the pool is given up next, and which is saved
  // next. Not for a pool of hidden states, which has none of its own. O(blocks · log).
  void set_orders(Tier tier, std::uint32_t pool, std::unique_ptr<EvictionOrder> eviction,
                  std::unique_ptr<EvictionOrder> unsaved);

  // --- looking ---

  const Block& block(BlockId id) const { return blocks_[id.value]; }
  // The root or full node of that key, or kNoBlock. O(1).
  BlockId find(const ChainKey& key) const { return by_key_.find(key); }
  // Say that find() is soon called with the key, or that the node (or none) is looked at: memory is read
  // ahead.
  void prefetch(const ChainKey& key) const { by_key_.prefetch(key); }
  void prefetch(BlockId id) const {
    if (id == kNoBlock) return;
    const Block& node = block(id);
    const auto* const copies = reinterpret_cast<const char*>(&node.copies);
    for (const void* at : {static_cast<const void*>(&node), static_cast<const void*>(&node.parts),
                           static_cast<const void*>(copies), static_cast<const void*>(copies + 64),
                           static_cast<const void*>(copies + 128)})
      __builtin_prefetch(at);
  }
  // Reads ahead the part of the node that says how far it is filled, and whether somebody appends to it.
  void prefetch_fill(BlockId id) const { __builtin_prefetch(&block(id)); }
  // The same of its children, which change as its state's or theirs come and go.
  void prefetch_children(BlockId id) const {
    if (id != kNoBlock) __builtin_prefetch(&block(id).children_with_state);
  }
  // The same of its tokens, for entry().
  void prefetch_tokens(BlockId id) const {
    if (id == kNoBlock) return;
    const auto* const tokens = reinterpret_cast<const char*>(&block(id).tokens);
    for (std::size_t at = 0; at <= sizeof(Block::tokens); at += 64) __builtin_prefetch(tokens + at);
  }
  // The child of `parent` whose complete state has the longest run in common with `tokens`; among equals
  // a tail that may be taken over (can_take_over), whose every token is in the run. O(log children).
  ChildMatch match_children(BlockId parent, std::span<const TokenId> tokens) const;
  // The child of `parent` whose tokens have the longest run in common with `tokens`, among those that
  // `serves` is true of, which is asked of few. Of full nodes, with or without state. O(log children).
  ChildMatch match_names(BlockId parent, std::span<const TokenId> tokens,
                         const std::function<bool(BlockId)>& serves) const;
  // The children of `parent` that are partial, and hold the first ones of `tokens`. O(tokens · log children);
  // O(1) where it has none.
  std::vector<BlockId> partial_beginnings(BlockId parent, std::span<const TokenId> tokens) const;
  // A tail that nobody uses: its next user may append to it instead of copying it.
  bool can_take_over(BlockId id) const;
  // A sibling that has all the state of the tail, which is dropped for it once nobody uses it; kNoBlock:
  // none. O(log children).
  BlockId same_beginning(BlockId tail) const;
  std::uint32_t group_count() const { return group_count_; }
  std::uint32_t slot_count(std::uint32_t group) const { return device()[group].slots.count(); }
  std::uint32_t free_count(std::uint32_t group) const { return device()[group].slots.free_count(); }
  std::uint32_t evictable_count(std::uint32_t group) const {
    return static_cast<std::uint32_t>(device()[group].eviction->size());
  }
  // Slots that are free or can be freed.
  std::uint32_t available(std::uint32_t group) const { return free_count(group) + evictable_count(group); }
  std::uint64_t evictions() const { return evictions_; }  // of device parts
  // Slots of the device that were used and not given back: only for these does the system hold memory.
  std::uint32_t used_slots(std::uint32_t group) const { return device()[group].slots.used_count(); }
  bool has_tier(Tier tier) const { return !tiers_[static_cast<std::size_t>(tier)].empty(); }
  // Pools of the tier: of the groups' keys and values, then of their hidden states.
  std::uint32_t pool_count(Tier tier) const {
    return static_cast<std::uint32_t>(tiers_[static_cast<std::size_t>(tier)].size());
  }
  TierUse use(Tier tier, std::uint32_t pool) const;
  // Every group's state is there as a whole part or as a copy.
  bool reachable(BlockId id) const { return reachable(id, Tier::kShared); }
  // The same, from copies in tiers not slower than `slowest`.
  bool reachable(BlockId id, Tier slowest) const;
  // The same of one group's state.
  bool reachable(BlockId id, std::uint32_t group, Tier slowest) const;
  // BlockPlace::tier.
  std::optional<Tier> tier_of(BlockId id) const;
  // Why the block of that key is not there, or lacks state. `found`: by find(), which costs a line from
  // memory.
  MissReason miss_reason(BlockId found, const ChainKey& key) const {
    return found == kNoBlock ? lost_.reason(key) : block(found).lost;
  }
  // What a disk's slot says of the full node.
  BlockEntry entry(BlockId id) const;
  std::uint32_t block_count() const { return live_; }
  // How many names were given to nodes so far: while it is the same, what find() did not find is not there.
  std::uint64_t names_made() const { return names_made_; }
  // The mean state of a sequence that is known: full nodes over those of them that no full node follows,
  // rounded up; 0: there are none. O(1).
  std::uint32_t mean_session_blocks() const {
    return end_count_ == 0 ? 0 : (full_count_ + end_count_ - 1) / end_count_;
  }
  // All ids are below it.
  std::uint32_t id_bound() const { return static_cast<std::uint32_t>(blocks_.size()); }

  // --- pins and nodes ---

  // A pin of the node, which holds none of its parts.
  BlockPin pin(BlockId id);
  // The pin holds a part that is there, from now on.
  void hold(BlockPin& pin, std::uint32_t group);
  void hold_all(BlockPin& pin);
  void let_go(BlockPin& pin, std::uint32_t group, Release release);
  // Found or made.
  BlockPin open_root(const ChainKey& key);
  BlockPin open_gate(BlockId parent, const ChainKey& key);
  BlockPin open_full(BlockId parent, const ChainKey& key, std::span<const TokenId> tokens);
  // A block that is pinned, all its parts held, is part of one more, or one fewer, public prefix.
  void publish(const BlockPin& pin);
  void withdraw(const BlockPin& pin);
  // A new tail, empty.
  BlockPin open_tail(BlockId parent);

  // --- parts (block_parts.cc) ---

  // Gives a block without part in `group` an empty one, which the pin holds; evicts for it where no slot
  // is free. False: all slots hold what is needed.
  bool place(BlockPin& pin, std::uint32_t group);
  // The same in two steps, for a block that does not exist yet: a slot that is no part's (a detached one,
  // see check_invariants()); absent: all slots hold what is needed.
  std::optional<SlotReservation> reserve(std::uint32_t group);
  void place(BlockPin& pin, std::uint32_t group, SlotReservation slot);
  // Limits how many of the group's slots are used, as far as parts that nobody needs can be evicted. While
  // more are used, give_back() returns slots.
  void limit_used_slots(std::uint32_t group, std::uint32_t slots) { device()[group].limit = slots; }
  // A slot beyond that limit whose memory may go back to the system; evicts for it if none is free. It is
  // taken again only after all other slots. Absent: all slots hold what is needed.
  std::optional<SlotId> give_back(std::uint32_t group);
  // The right to append to the block, which is pinned. Absent: somebody else has it.
  std::optional<AppendToken> claim(BlockId id);
  // All parts of a full node hold at least the first `filled` tokens.
  void fill(const AppendToken& token, std::uint32_t filled);
  // All parts of a tail got the state of these tokens.
  void append(const AppendToken& token, std::span<const TokenId> tokens);
  // One part of a full node is whole: a load has brought it.
  void fill_part(const AppendToken& token, std::uint32_t group);
  // A tail forgets what is past `filled`. Nobody else has a pin.
  void truncate(const AppendToken& token, std::uint32_t filled);

  // --- copies in slower tiers (block_copies.cc) ---
  // The node is pinned.

  // A slot for a copy that does not exist yet; evicts for it where none is free. Absent: all slots are in
  // use; or the next victim is whole in the tier `spare` too, where giving this copy up would leave it
  // unsaved.
  std::optional<SlotId> reserve_copy(BlockId id, Tier tier, std::uint32_t group,
                                     std::optional<Tier> spare = std::nullopt,
                                     StateForm form = StateForm::kKeysAndValues);
  // The copy that was reserved could not be written: its slot is not the next that is taken.
  void doubt_slot(BlockId id, Tier tier, std::uint32_t group);
  // The copy that was reserved is whole now, or will not come: then the disk forgets what is in its slot.
  void finish_copy(BlockId id, Tier tier, std::uint32_t group, bool whole);
  // Says whether a peer gives the copy in the shared tier, or the store.
  void set_at_peer(BlockId id, std::uint32_t group, bool at_peer);
  void begin_read(BlockId id, Tier tier, std::uint32_t group);
  void end_read(BlockId id, Tier tier, std::uint32_t group);
  // Drops a copy that nobody reads.
  void drop_copy(BlockId id, Tier tier, std::uint32_t group, MissReason reason);
  // A copy that was found on the disk, in one of its pools. False: the slot or the copy is taken.
  bool recover_copy(BlockId id, std::uint32_t pool, SlotId slot, Nanos last_used);
  // The same of a hole's record.
  bool recover_hole(BlockId id, SlotId slot);
  // The block whose part or copy is to be saved next, because no slower tier has one; a tail, if it is not
  // settled; kNoBlock: none.
  BlockId next_unsaved(Tier tier, std::uint32_t group);
  // Says that the tail's tokens need no save: a slower tier has them, had no room for them, or failed to take
  // them. Once the tail has grown or was shortened it is to be saved again.
  void settle_end(BlockId tail);
  // Slots of the tier that are free, or hold what nobody uses and what a slower tier has too, or will not
  // get.
  std::uint32_t reclaimable(Tier tier, std::uint32_t group) const;
  // The tier uses no more than so many of the pool's slots from now on, fewer where the other form takes room
  // (slots_beside())...
  void limit(Tier tier, std::uint32_t pool, std::uint32_t slots);
  // ...and gives up what it has beyond them, in either form, at most so many copies, in the order of
  // eviction, where nobody reads or writes it. Returns how many it gave up.
  std::uint32_t trim(Tier tier, std::uint32_t pool, std::uint32_t most);
  // Drops a hole's record that was found after a restart, if nothing was found below the hole.
  void settle_hole(BlockId id) { update_hole(id); }
  // Drops the parts and copies of a node that nobody pins and that was last used before `before`.
  void expire(BlockId id, Nanos before);
  // Drops all that there is of a node that nobody pins, as if it had never been seen.
  void forget(BlockId id);
  // The place in the queue of the first that needs the node (EvictionFacts::wanted), and of which groups
  // anybody needs its state. The others' is wanted by nobody.
  void set_wanted(BlockId id, std::uint32_t wanted, GroupSet groups = kEveryGroup);
  // How the disk's records are to change, since the last call.
  std::vector<RecordChange> take_record_changes() { return std::exchange(record_changes_, {}); }

  // --- where blocks are, for others (block_places.cc, noted_blocks.h) ---

  // From now on take_changed() says of which names the full node, a part of it or a copy of one came, became
  // whole or went since the last call; some that have not changed, too. O(those noted).
  void watch_changed() { noted_.watch(NotedBlocks::Reader::kNearness); }
  std::vector<ChainKey> take_changed();
  // From now on take_moved() tells the places of full nodes that have changed since they were told last; to
  // begin with, of all. Whoever watches takes them again and again. O(those noted).
  void watch_places();
  std::vector<BlockPlace> take_moved();

  // --- changes of kind ---

  // A tail that can be taken over (and that only `tail` pins) becomes the full node of `key`, whose
  // tokens begin with its own. Nothing with that key exists.
  BlockPin promote(BlockPin tail, const ChainKey& key, std::span<const TokenId> tokens);
  // The same where the full node exists as a hole: it gets the tail's parts, and its pin holds them.
  // Consumes the tail, all of whose parts its pin holds.
  void adopt(BlockPin& hole, BlockPin tail);
  // A tail with kBlockTokens tokens becomes the full node of `key`; where one exists already, that node
  // gets what it lacks, and the tail's other parts are dropped, as they have the same bits.
  Completion complete(BlockPin tail, AppendToken token, const ChainKey& key);

  // Aborts on a broken invariant. `detached`: slots that callers hold, by group.
  // O(nodes · log).
  void check_invariants(std::span<const std::uint32_t> detached = {}) const;

 private:
  friend class BlockPin;
  friend class AppendToken;

  struct Pool {
    SlotPool slots;
    std::unique_ptr<EvictionOrder> eviction;  // null: the other form's
    std::unique_ptr<EvictionOrder> unsaved;
    std::uint64_t evictions = 0;
    std::uint32_t evictable = 0;  // of its copies, in the order
    std::uint32_t limit;          // slots that may be used; of the device: unless requests need more
    Pool* other = nullptr;        // of the other form, which shares the room
    std::uint64_t refused = 0;    // copies for which nothing was given up, because writes fail
    explicit Pool(IndexPool pool)
        : slots(pool.slots),
          eviction(std::move(pool.eviction)),
          unsaved(std::move(pool.unsaved)),
          limit(pool.slots) {}
    EvictionOrder& order() { return eviction != nullptr ? *eviction : *other->eviction; }
    std::uint32_t used() const { return slots.count() - slots.free_count(); }
    std::uint32_t allowed() const { return allowed_beside(other == nullptr ? 0 : other->used()); }
    // Where so many slots of the other form are used.
    std::uint32_t allowed_beside(std::uint32_t others) const {
      return other == nullptr ? limit : slots_beside(limit, others, other->limit);
    }
    bool is_beyond() const {
      return used() > allowed() || (other != nullptr && other->used() > other->allowed());
    }
    std::uint32_t free() const {
      return std::min(allowed() > used() ? allowed() - used() : 0, slots.ready_count());
    }
  };
  using Pools = std::deque<Pool>;  // by group; deque: slots know their pool

  Pools& device() { return tiers_[0]; }
  const Pools& device() const { return tiers_[0]; }
  Pool& pool(Tier tier, std::uint32_t group) { return tiers_[static_cast<std::size_t>(tier)][group]; }
  Block& at(BlockId id) { return blocks_[id.value]; }
  BlockId create(BlockKind kind, BlockId parent);
  void destroy(BlockId id);
  void unpin(BlockPin& pin);
  void settle(BlockId id);
  void settle_unused_parts(BlockId id);
  void drop_part(BlockId id, std::uint32_t group);
  void drop_parts(BlockId id);
  void drop_unused(BlockId id, Nanos before, MissReason reason);
  void discard_parts(BlockPin& pin);
  void evict(std::uint32_t group);
  std::uint32_t pool_number(std::uint32_t group, StateForm form) const {
    return pool_of(group, form, group_count());
  }
  void enlist(BlockId id, Tier tier, std::uint32_t group, EvictionFacts& facts,
              StateForm form = StateForm::kKeysAndValues);
  void delist(BlockId id, Tier tier, std::uint32_t group, const EvictionFacts& facts,
              StateForm form = StateForm::kKeysAndValues);
  // Applies `change` to the facts of the group's part and copies, which keep their right places in the
  // orders.
  template <class Change>
  void update_facts(BlockId id, std::uint32_t group, Change change);
  template <class Change>
  void update_facts(BlockId id, Tier tier, std::uint32_t group, EvictionFacts& facts, bool evictable,
                    StateForm form, Change change);
  void update_faster(BlockId id, Tier tier, std::uint32_t group);
  void use_copies(BlockId id, std::uint32_t group);
  void date_again(BlockId id, std::uint32_t group);
  bool savable(BlockId id, Tier tier, std::uint32_t group, const EvictionFacts& facts) const;
  LowerCopy& copy_at(BlockId id, Tier tier, std::uint32_t group);
  void erase_copy(BlockId id, Tier tier, std::uint32_t group, MissReason reason);
  void drop_copies(BlockId id, MissReason reason);
  static bool gives_nothing_up(Pool& pool);
  bool make_room(BlockId by, Tier tier, std::uint32_t pool, std::optional<Tier> spare);
  std::vector<BlockId> victims(BlockId by, Tier tier, std::uint32_t pool, std::optional<Tier> spare);
  bool is_spared(BlockId victim, Tier spare, std::uint32_t group) const;
  void evict_copy(BlockId victim, Tier tier, std::uint32_t group, bool rewritten);
  // Whether a copy of `by` in the tier may take the victim's room.
  bool may_displace(BlockId by, BlockId victim, Tier tier, std::uint32_t group) const;
  // When the block's state in the group was last used, wherever it is; 0: it is nowhere.
  Nanos last_use(BlockId id, std::uint32_t group) const;
  void update_disk(BlockId id);
  void update_hole(BlockId id);
  void change_record(RecordChange::Kind kind, std::uint32_t group, SlotId slot, BlockId id);
  std::uint32_t complete_tokens(const Block& block) const;
  void set_filled(BlockId id, std::uint32_t filled, std::span<const TokenId> tail_tokens);
  void register_key(BlockId id, const ChainKey& key);
  void unregister_key(BlockId id);
  void note_nameless(BlockId id);
  void check_block(BlockId id) const;
  void check_parts(BlockId id) const;
  void check_copies(BlockId id) const;
  void check_tier(Tier tier, std::span<const std::uint32_t> detached) const;

  std::array<Pools, kTiers> tiers_;
  std::uint32_t group_count_;
  bool saves_tails_;  // each pool of the device has an order of what is to be saved
  SlotPool holes_;
  LostBlocks lost_;
  std::vector<RecordChange> record_changes_;
  NotedBlocks noted_;
  BlockList<Block> blocks_;  // by id
  std::vector<BlockId> unused_;
  KeyTable<BlockId> by_key_;
  std::optional<Nanos> date_granularity_;
  Nanos now_ = 0;
  std::uint32_t live_ = 0;
  std::uint64_t names_made_ = 1;
  std::uint32_t full_count_ = 0;  // full nodes
  std::uint32_t end_count_ = 0;   // of them, that have no full child
  std::uint64_t evictions_ = 0;
};

}  // namespace loci
