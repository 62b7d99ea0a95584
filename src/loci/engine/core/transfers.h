// SPDX-License-Identifier: Apache-2.0
// Moves of state between tiers: loads for requests, saves of blocks that fill or are next to be evicted,
// prefetches from the disk into host memory, and the end of each move.
//
// An example: a conversation of three whole blocks comes back. K: the state is there; k: it is being written.
//
//     block     0   1   2
//     device    .   K   .     load() begins two moves: block 0 from host memory, block 2 from the disk. It
//     host      K   K   .     claims both blocks as a pass would, so nobody else fills them meanwhile, and a
//     disk      K   .   K     second request that needs them waits for the same two moves.
//
//     device    k   K   k     loading() is true of 0 and 2. Whoever computes behind them waits, or joins:
//                             the backend waits for each layer when it gets there (AttentionStore §3.2.1).
//
//     device    K   K   .     end() of both: host memory brought 0, and the disk's 2 did not verify. Its copy
//     disk      K   .   .     is dropped, and end() says that block 2 missed: who needs it computes it.
//
//     disk      K   k   .     save(): 1 is not on the disk yet, and nobody waits for it to get there.
//
// The rules:
//   - A load holds its block's parts and its claim until its last move has ended. Its source stays as it is.
//   - A save holds its source and reserves its target, which nobody sees before it is whole. A save that
//     cannot begin is dropped rather than delay anybody: its block will be computed again.
//   - A link that fails repeatedly is left alone for a while (link_breaker.h).
//   - A save to the shared store has no target here, and nothing depends on its arrival.
//   - The end of a load is predicted from the times of earlier loads (link_times.h).
//
// The corner cases:
//   - A block that is being loaded may get its state in another slot meanwhile (a request's tail completes
//     it). The load goes on writing to its own slot, which keep_slot() takes over, and has no effect.
//   - A pass in flight may still read such a slot when the load has ended; then end() returns it.
//   - The end of a sequence is saved from its tail, which has no name, as a partial block, which has one
//     (partial_block.h), in all groups or in none. The tail stays unchanged, and nobody takes it over
//     meanwhile.
//   - A partial block is given up when another one has its tokens, in each group: in groups with a window a
//     whole block that begins with them may have no state.
//   - In groups with a window saves hold slots that nobody was promised. Where there are none, what is to be
//     saved of them waits.
//   - A block may be brought from another one that holds the same tokens at other positions (its *original*,
//     see CoreLineage); its keys are rotated on the way. Groups with a window have no originals.
//
// It owns the moves in flight with their pins, the claims of blocks being loaded, the wishes to save
// (save_wishes.h), the knowledge of the links, and a hash for the names of sequences' ends. It requires that
// nobody else reads or writes copies in slower tiers, and that pins and slots which it returned or was lent
// are dropped before the index. It calls only the index.
//
// Invariants, which check_invariants() tests (core.h has all):
//   3. A move's source stays and its target is reserved and unseen until it has ended; it holds its parts on
//      the device. A rotation is between blocks of the same tokens, by the difference of their positions.
//   4. A block being loaded has one writer: the load.
//   7. What peers are brought is bounded, and at most half of it comes from the disk.
//   10. Moves are counted by what they are for; a load's moves are known.
#pragma once

#include <algorithm>
#include <array>
#include <bitset>
#include <boost/container/static_vector.hpp>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/link_breaker.h"
#include "loci/engine/core/link_times.h"
#include "loci/engine/core/load_link.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/save_wishes.h"
#include "loci/memory/block_index.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/restore_plan.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. A call costs O(groups · log(moves)) for each block,
// unless noted.
class Transfers {
 public:
  // All three must outlive it.
  Transfers(const CoreConfig& config, const CostModel& costs, BlockIndex& index);
  ~Transfers();

  // Later calls happen at this time.
  void advance(Nanos now) {
    now_ = now;
    link_times_.advance(now);
  }

  // Says that the costs have changed.
  void costs_changed() { link_times_.costs_changed(now_); }

  // Which blocks are saved as hidden states from now on.
  void set_hidden_share(const HiddenShare& share) { hidden_share_ = share; }
  const HiddenShare& hidden_share() const { return hidden_share_; }
  // The time to bring `bytes` to the device, alone on the link, as loads have corrected it.
  Nanos load_time(LoadLink from, std::uint64_t bytes) const { return link_times_.load(from, bytes); }
  // Moves from the disk to the device, ever, that said how fast it is: those that went well and those that
  // were given up.
  std::uint64_t disk_loads() const {
    const LinkStats& loads = ended_[static_cast<std::size_t>(CoreLink::kDiskLoad)];
    return loads.ended[static_cast<std::size_t>(MoveResult::kDone)] +
           loads.ended[static_cast<std::size_t>(MoveResult::kTooSlow)];
  }

  // --- what can be brought back ---

  // True: the device lacks the group's part, and it is being loaded or a tier not slower than `slowest` has
  // it.
  bool comes(BlockId id, std::uint32_t group, Tier slowest) const;
  // True: the device lacks parts of the block, and all of these come.
  bool comes(BlockId id, Tier slowest) const;
  // The slowest tier that a load of the block's parts in `groups` reads from.
  Tier load_tier(BlockId id, GroupSet groups = kEveryGroup) const;
  // The slowest link that loading the block needs. Absent: it needs none, because the device has the blocks
  // from which it is rotated.
  std::optional<LoadLink> load_link(const CoreProbe& found) const;
  // The slowest of the tiers that have an original's parts; absent: a part is in no tier up to `slowest`.
  std::optional<Tier> original_tier(BlockId original, Tier slowest) const;
  // The slowest tier that a load of what was found reads from; kDevice: it is rotated there.
  Tier load_tier(const CoreProbe& found) const;
  // The same; absent: its original has gone since it was found.
  std::optional<Tier> load_tier_now(const CoreProbe& found) const;
  // True: the disk has it as hidden states.
  bool from_hidden(const CoreProbe& found) const;
  // What the device lacks of the group's part and a load brings, or is bringing; absent: nothing.
  struct PartToLoad {
    LoadLink from;        // over which it comes; the slowest over which its block is being loaded
    std::uint64_t bytes;  // 0: it is on its way
  };
  std::optional<PartToLoad> part_to_load(BlockId id, std::uint32_t group) const;
  // The price of loading as many bytes over the link as the sequence's block `number`; without those of
  // projecting and computing it.
  RestorableBlock restorable(std::uint32_t number, LoadLink from, std::uint64_t bytes) const;
  // The price of loading what was found for the block, which the device lacks, over the slowest link.
  RestorableBlock restorable(const CoreProbe& found, std::uint32_t number) const;
  // The same of the block's parts in `groups` that the device has, were they evicted; absent: no tier of this
  // server's own that is not slower than `slowest` has all of them.
  std::optional<RestorableBlock> restorable_later(BlockId id, std::uint32_t number, Tier slowest,
                                                  GroupSet groups = kEveryGroup) const;
  // What is booked on the link.
  RestoreLink link(LoadLink from) const;
  // True: loads over the link are long overdue, so no further ones should begin.
  bool overdue(LoadLink link) const;
  // The slowest tier that answers: from where state may be brought back; the second of this server's own.
  Tier slowest_readable() const;
  Tier slowest_own() const;
  // Where state may be brought back from up to `slowest`, without the disk and what is behind it.
  Tier before_disk(Tier slowest) const {
    if (slowest < Tier::kDisk) return slowest;
    return has(Tier::kHost) ? Tier::kHost : Tier::kDevice;
  }
  // True: there is a shared store, and reads from it do not keep failing.
  bool shared_readable() const { return has(Tier::kShared) && !shared_read_link_.paused(now_); }

  // True: the disk is silent, and has given a read up a moment ago. Nothing should be read ahead of its turn.
  Nanos disk_gives_up_until() const { return disk_read_link_.gives_up_until(); }
  bool disk_gives_up() const { return disk_read_link_.gives_up(now_); }

  // --- loads ---

  // (What is being loaded has a writer, its load. So most blocks are told apart without a search.)
  bool loading(BlockId id) const {
    return id != kNoBlock && index_.block(id).appending && loads_.contains(id);
  }
  // True: the group's part is still being loaded.
  bool loading(BlockId id, std::uint32_t group) const;
  // When a load in progress has brought all of the block, as predicted.
  Nanos arrives_at(BlockId id) const { return loads_.at(id).ends_at; }
  // Begins the loads in `wanted` for the blocks pinned by `held`, which are as many and all placed. Returns
  // the indices of the blocks that are being loaded now, including those that others load.
  std::vector<std::uint32_t> load(std::span<const CoreProbe> wanted, std::span<const BlockPin> held);
  // Begins to load blocks before anybody is admitted who needs them. Their nodes are there, and lack
  // something of their groups that comes. It is placed here, for which there is room, and held by the loads
  // alone. Returns the slowest tier that each comes from.
  std::vector<Tier> load_ahead(std::span<const CoreProbe> blocks);
  // The same for one block, whose layers others do not take turns with: somebody waits for all of it.
  void load_first(const CoreProbe& found);
  // The block got its state in another slot. If it is being loaded, `slot`, where the load goes on writing,
  // is kept here until that has ended, and longer if `last_pass`, the last one in flight, has not (end()).
  void keep_slot(BlockId id, std::uint32_t group, std::optional<SlotReservation>& slot,
                 std::optional<OperationId> last_pass);

  // --- saves ---

  // Wishes to save the block's parts in `from` to the next tier when their turn comes (save_wishes.h).
  void wish_save(BlockId id, Tier from, SaveScope scope);
  // The same for saves from the device or host memory to the shared store; they come after all other saves.
  void wish_share(BlockId id, SaveScope scope);
  // Wishes to save the end of a sequence as a partial block once nobody uses it, if it is unchanged then.
  // (Others are saved when they are to be evicted next.)
  void wish_save_tail(BlockId tail);
  // The form in which the block is saved as it fills, if its rows were captured: the configured share of a
  // sequence's blocks, evenly.
  StateForm form_to_save(BlockId id) const;
  struct SaveRules {
    // Device slots of groups with a window that saves may not use: they are promised, public, read by a pass
    // or copied from.
    GroupCounts taken{};
    // Saves blocks that are next to be evicted while less than this share of a pool is free or saved
    // (Pensieve §4.3.2).
    std::uint32_t free_percent = 0;
  };
  // Begins wished saves, then saves of the blocks to be evicted next, as far as saves may be in flight.
  void save(const SaveRules& rules);
  // When saves to the shared store may continue, if it is left alone just now; kNever: none waits for that.
  Nanos shares_at() const {
    return wishes_.empty(SaveWishes::Line::kToShared) || !shared_write_link_.paused(now_)
               ? kNever
               : shared_write_link_.paused_until();
  }
  // True: one more save or prefetch may be in flight.
  bool may_begin() const { return saves_in_flight_ < saves_max_; }
  // Brings to host memory what the disk alone has of the block in `groups`. False: there is not room for all
  // of it.
  bool prefetch(BlockId id, GroupSet groups);
  // Says that all of the disk's earlier entries are known: from now on the disk is written.
  void open_disk() { disk_open_ = true; }
  // True: there is a disk, and it is not written yet.
  bool waits_for_disk() const { return has(Tier::kDisk) && !disk_open_; }

  // --- what peers read ---

  // Which groups' parts of the block a peer could have (bit g): whole ones on the device or in a tier of this
  // server's own, as keys and values, and those that are being computed or come from such a tier.
  std::uint8_t there_for_peers(BlockId id) const;
  std::uint8_t coming_for_peers(BlockId id) const;
  // True: one more block may be in flight to a peer.
  bool may_serve() const { return serves_in_flight_ < serves_max_; }
  // True: one more of these may be read from the disk. At most half of them are, so that a slow disk does not
  // hold up blocks in memory.
  bool may_serve_from_disk() const { return disk_serves_in_flight_ < std::max(1u, serves_max_ / 2); }
  std::uint32_t serves_in_flight() const { return serves_in_flight_; }
  // Begins to give the peer those of `groups` that are there, except device parts that the rules forbid to
  // hold, and parts that only the disk has while it may not be read. Of a part on the disk, whose reads are
  // whole, all rounds that are left come at once.
  struct Served {
    std::uint8_t groups = 0;   // that were begun
    std::uint8_t to_last = 0;  // of these, those of which no later round is left
    std::uint32_t moves = 0;
  };
  Served serve(BlockId id, PeerPlace place, std::uint8_t groups, const SaveRules& rules);

  // --- ends ---

  // Parts of the block will not come.
  struct Missed {
    BlockId block;
    Tier from = Tier::kHost;
    MoveResult result = MoveResult::kFailed;
  };
  // A slot that only a load held, and that a pass in flight may still read.
  struct ReadSlot {
    std::uint32_t group = 0;
    SlotReservation slot;
  };
  struct Ended {
    std::optional<Missed> missed;
    std::optional<PeerReadId> served;  // it was a move to that peer
    std::vector<ReadSlot> still_read;
  };
  // A move has ended; `first_pass`: the first one in flight.
  Ended end(const MoveOutcome& outcome, std::optional<OperationId> first_pass);

  // --- what the machine above asks ---

  // The moves that began since the last call, in order.
  std::vector<Move> take_begun() { return std::exchange(begun_, {}); }
  bool idle() const { return moves_.empty(); }
  // For groups with a window: device parts that moves hold.
  const GroupCounts& moving() const { return moving_; }
  // Slots that belong to no block and that loads hold.
  GroupCounts detached() const;
  void visit_pins(const std::function<void(const BlockPin&)>& visit) const;
  void add_stats(CoreStats& stats) const;
  // Aborts on a broken invariant. O(moves · groups).
  void check_invariants() const;

 private:
  // In flight. The pin holds the device's parts, as source or as target.
  struct InFlight {
    Tier from = Tier::kDevice;
    Tier to = Tier::kDevice;
    LoadLink link = LoadLink::kHost;  // of a load that does not come from the device
    BlockPin pin;
    MoveParts parts;
    StateForm form = StateForm::kKeysAndValues;
    // The block from which the state comes: the original of a rotated load, the tail of a save.
    std::optional<BlockPin> original = std::nullopt;
    bool next_to_be_evicted = false;               // a save's reason
    std::int32_t rotate_by = 0;                    // positions, from the original's to the block's
    std::optional<PeerPlace> peer = std::nullopt;  // Move::peer

    bool is_over_link() const { return to == Tier::kDevice && from != Tier::kDevice; }
    // The block that the parts come from.
    BlockId source() const { return original ? original->block() : pin.block(); }
  };
  // A block whose parts are being loaded, by one move for each link over which they come.
  struct Load {
    AppendToken token;
    std::bitset<kLayerGroupsMax> groups;  // still to come
    // That have not ended: one for each link, one on the device.
    boost::container::static_vector<OperationId, kLoadLinks + 1> moves;
    LoadLink slowest = LoadLink::kHost;   // of those over which it comes
    Nanos ends_at = 0;                    // predicted
    std::unique_ptr<CoreSlots> replaced;  // keep_slot(); null: none
    OperationId replaced_in;              // the last pass that was in flight then; 0: none

    bool is_replaced(std::uint32_t group) const { return replaced != nullptr && (*replaced)[group]; }
  };

  bool windowed(std::uint32_t group) const { return config_.groups[group].window != 0; }
  bool has(Tier tier) const { return index_.has_tier(tier); }
  // To which of this server's tiers what `from` has is saved.
  Tier next_own(Tier from) const {
    return from == Tier::kDevice && has(Tier::kHost) ? Tier::kHost : Tier::kDisk;
  }
  std::uint64_t block_bytes(BlockId id, GroupSet groups) const;
  // Bytes that loading the copy brings.
  std::uint64_t copy_bytes(const LowerCopy& copy) const;
  bool may_write(Tier tier) const;
  static CoreLink link_of(const InFlight& move);
  // The slowest link over which the parts in `groups` come; absent: the device lacks none of them.
  std::optional<LoadLink> load_link(BlockId id, GroupSet groups) const;

  // Loads that begin at once, by the link over which they come.
  struct Booking {
    OperationId first;  // the first move's; what begins meanwhile is all of it
    std::array<std::uint64_t, kLoadLinks> bytes{};
    std::array<std::uint32_t, kLoadLinks> moves{};
  };
  Booking begin_booking() const { return {.first = OperationId(moves_begun_ + 1)}; }
  Load& begin_load(const BlockPin& held, Booking& booking);
  Load& begin_rotation(const BlockPin& held, const CoreProbe& found, Booking& booking);
  void book(std::span<Load* const> fresh, const Booking& booking);
  OperationId begin_move(InFlight move);
  void end_read(const InFlight& move, const MoveOutcome& outcome);
  void end_load(InFlight move, const MoveOutcome& outcome, std::optional<OperationId> first_pass,
                Ended& ended);
  void end_save(InFlight move, const MoveOutcome& outcome);

  enum class SaveReason : std::uint8_t { kWished, kNextToBeEvicted };
  bool add_save_part(InFlight& move, std::uint32_t group, SaveReason reason, const SaveRules& rules);
  bool begin_save(BlockId id, Tier from, SaveScope scope, SaveReason reason, const SaveRules& rules,
                  StateForm form);
  void hold_read_part(InFlight& move, std::uint32_t group, const SaveRules& rules);
  void save_wished(Tier from, const SaveRules& rules);
  void save_windows(const SaveRules& rules);
  bool has_room_to_hold(std::uint32_t group, const SaveRules& rules) const;
  void share(const SaveWishes::Wish& wish, const SaveRules& rules);
  enum class TailSave : std::uint8_t {
    kBegun,
    kNotNeeded,  // slower tiers have it
    kWaits,      // for slots of windows that nobody was promised; the wish stays
    kNoRoom,     // in the next tier; the wish goes
  };
  ChainKey key_of_end(BlockId id) const;
  TailSave begin_tail_save(const SaveWishes::TailWish& wish, SaveReason reason, const SaveRules& rules);
  bool reserve_tail_parts(InFlight& move, std::optional<Tier> spare);
  void save_tails(const SaveRules& rules);
  void let_go_source(InFlight& move);
  bool replaces(BlockId id, BlockId partial) const;
  void drop_replaced(BlockId id);
  std::vector<ChainKey> chunk_of(BlockId id) const;
  bool save_next(BlockId next, Tier tier, const SaveRules& rules);
  void save_ahead(Tier tier, const SaveRules& rules);

  void check_rotation(const InFlight& move) const;
  void check_tail_save(const InFlight& move) const;
  void check_move(const InFlight& move) const;

  const CoreConfig& config_;
  const CostModel& costs_;
  BlockIndex& index_;
  const ChainKeyHasher hasher_;  // of the names of sequences' ends
  std::uint32_t group_count_;
  Nanos now_ = 0;
  bool saves_;               // anything
  bool through_;             // save blocks as they fill
  bool disk_open_ = false;   // open_disk()
  std::uint32_t saves_max_;  // in flight

  std::map<OperationId, InFlight> moves_;
  std::uint64_t moves_begun_ = 0;
  std::vector<Move> begun_;  // take_begun()
  GroupCounts moving_{};     // moving()
  std::unordered_map<BlockId, Load> loads_;
  std::array<std::uint32_t, kLoadLinks> loads_from_{};  // moves to the device, by link
  LinkTimes link_times_;                                // of loads
  SaveWishes wishes_;
  std::uint32_t saves_in_flight_ = 0;  // and prefetches
  // Of what is next to be evicted, by source: parts that will be had at once when their saves have ended.
  std::array<GroupCounts, kTiers> saving_ahead_{};
  std::uint32_t shares_max_;                 // in flight
  std::uint32_t shares_in_flight_ = 0;       // beside saves_in_flight_
  std::uint32_t serves_max_;                 // in flight
  std::uint32_t serves_in_flight_ = 0;       // beside both
  std::uint32_t disk_serves_in_flight_ = 0;  // of these, from the disk
  LinkBreaker disk_write_link_, disk_read_link_, shared_write_link_, shared_read_link_;
  std::array<LinkStats, kCoreLinks> ended_{};
  std::uint64_t hidden_saved_ = 0, hidden_loaded_ = 0, partial_saved_ = 0;
  HiddenShare hidden_share_;
};

}  // namespace loci
