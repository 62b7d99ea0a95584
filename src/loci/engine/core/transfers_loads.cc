// SPDX-License-Identifier: Apache-2.0
// Transfers to the device, and how every transfer ends.
#include <algorithm>

#include "loci/base/check.h"
#include "loci/engine/core/transfers.h"

namespace loci {
namespace {

constexpr Nanos kOverdue = kNanosPerSecond;  // by so much, and nobody asks the link for more
constexpr Nanos kLateTimes = 2;              // a load may take so many times what was predicted
// A table of loads that grew would move all of them in one step; so many have room from the start.
constexpr std::size_t kReservedLoads = std::size_t{1} << 13;
constexpr std::uint32_t kSharesMax = 8;   // each holds its block until the store has it
constexpr std::uint32_t kServesMax = 16;  // each holds its block until the peer has its bytes
// A move says which tokens its block holds, and nothing before it has read them. Those of so many blocks
// ahead are read meanwhile.
constexpr std::size_t kEntriesAhead = 4;

LoadLink load_link_of(const LowerCopy& copy) {
  if (copy.tier == Tier::kHost) return LoadLink::kHost;
  if (copy.tier == Tier::kDisk) return LoadLink::kDisk;
  return copy.at_peer ? LoadLink::kPeers : LoadLink::kShared;
}

}  // namespace

Transfers::Transfers(const CoreConfig& config, const CostModel& costs, BlockIndex& index)
    : config_(config),
      costs_(costs),
      index_(index),
      hasher_(config.chain_secret, config.model_fingerprint),
      group_count_(index.group_count()),
      saves_(config.save != "off" && config.reuse),
      through_(config.save == "through"),
      // Saves hold blocks: few enough that admission hardly feels it.
      saves_max_(std::max(1u, std::min(config.saves_max, config.groups.front().block_count / 8))),
      link_times_(costs),
      wishes_(index),
      shares_max_(std::min(saves_max_, kSharesMax)),
      serves_max_(std::min(saves_max_, kServesMax)),
      hidden_share_(config.hidden.share) {
  loads_.reserve(std::min(std::size_t{config.groups.front().block_count}, kReservedLoads));
}

// Moves in flight have no end any more: what they read is let go before their pins are, which may be the
// last.
Transfers::~Transfers() {
  for (const auto& [id, move] : moves_) {
    if (move.from == Tier::kDevice) continue;
    for (const MovePart& part : move.parts) index_.end_read(move.source(), move.from, part.group);
  }
}

// --- what can be brought back ---

bool Transfers::loading(BlockId id, std::uint32_t group) const {
  return loading(id) && loads_.at(id).groups[group];
}

bool Transfers::comes(BlockId id, std::uint32_t group, Tier slowest) const {
  const Block& block = index_.block(id);
  if (block.filled_in(group) == kBlockTokens) return false;
  if (loading(id)) return loads_.at(id).groups[group];
  if (block.parts[group]) return false;
  const LowerCopy* copy = block.whole_copy(group);
  return copy != nullptr && copy->tier <= slowest;
}

bool Transfers::comes(BlockId id, Tier slowest) const {
  bool lacks = false;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (index_.block(id).filled_in(group) == kBlockTokens) continue;
    if (!comes(id, group, slowest)) return false;
    lacks = true;
  }
  return lacks;
}

std::optional<LoadLink> Transfers::load_link(BlockId id, GroupSet groups) const {
  std::optional<LoadLink> slowest;
  if (loading(id)) return loads_.at(id).slowest;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const Block& block = index_.block(id);
    if (block.parts[group] || !has_group(groups, group)) continue;
    if (const LowerCopy* copy = block.whole_copy(group))
      slowest = std::max(slowest, std::optional(load_link_of(*copy)));
  }
  return slowest;
}

std::optional<LoadLink> Transfers::load_link(const CoreProbe& found) const {
  if (found.original == kNoBlock || loading(found.node)) return load_link(found.node, found.groups);
  std::optional<LoadLink> slowest;
  const Block& original = index_.block(found.original);
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const LowerCopy* copy = original.filled_in(group) == kBlockTokens ? nullptr : original.whole_copy(group);
    if (copy != nullptr) slowest = std::max(slowest, std::optional(load_link_of(*copy)));
  }
  return slowest;
}

Tier Transfers::load_tier(BlockId id, GroupSet groups) const {
  const std::optional<LoadLink> link = load_link(id, groups);
  return link ? tier_of(*link) : Tier::kDevice;
}

std::optional<Tier> Transfers::original_tier(BlockId original, Tier slowest) const {
  const Block& block = index_.block(original);
  Tier tier = Tier::kDevice;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (block.filled_in(group) == kBlockTokens) continue;
    const LowerCopy* copy = block.whole_copy(group);
    if (copy == nullptr || copy->tier > slowest) return std::nullopt;
    tier = std::max(tier, copy->tier);
  }
  return tier;
}

Tier Transfers::load_tier(const CoreProbe& found) const { return load_tier_now(found).value(); }

std::optional<Tier> Transfers::load_tier_now(const CoreProbe& found) const {
  if (found.original == kNoBlock || loading(found.node)) return load_tier(found.node, found.groups);
  return original_tier(found.original, Tier::kShared);
}

bool Transfers::from_hidden(const CoreProbe& found) const {
  const BlockId id = found.original == kNoBlock ? found.node : found.original;
  if (id == kNoBlock) return false;
  const LowerCopy* copy = index_.block(id).whole_copy(0);
  return copy != nullptr && copy->form == StateForm::kHidden;
}

std::optional<Transfers::PartToLoad> Transfers::part_to_load(BlockId id, std::uint32_t group) const {
  const Block& block = index_.block(id);
  if (block.filled_in(group) == kBlockTokens) return std::nullopt;
  if (loading(id, group)) return PartToLoad{loads_.at(id).slowest, 0};
  const LowerCopy* copy = block.whole_copy(group);
  if (copy == nullptr) return std::nullopt;
  return PartToLoad{load_link_of(*copy), copy_bytes(*copy)};
}

RestorableBlock Transfers::restorable(std::uint32_t number, LoadLink from, std::uint64_t bytes) const {
  return {.number = number,
          .from = tier_of(from),
          .load = link_times_.moving(from, bytes),
          .charge = costs_.load_charge(tier_of(from), bytes)};
}

RestorableBlock Transfers::restorable(const CoreProbe& found, std::uint32_t number) const {
  const BlockId source = found.original == kNoBlock ? found.node : found.original;
  RestorableBlock block = restorable(number, load_link(found).value(), block_bytes(source, found.groups));
  block.only_hidden = from_hidden(found);
  return block;
}

std::optional<RestorableBlock> Transfers::restorable_later(BlockId id, std::uint32_t number, Tier slowest,
                                                           GroupSet groups) const {
  LoadLink from = LoadLink::kHost;
  std::uint64_t bytes = 0;
  bool hidden = false;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!has_group(groups, group)) continue;
    const LowerCopy* copy = index_.block(id).whole_copy(group);
    if (copy == nullptr || copy->tier > std::min(slowest, slowest_own())) return std::nullopt;
    from = std::max(from, load_link_of(*copy));
    hidden = hidden || copy->form == StateForm::kHidden;
    bytes += copy_bytes(*copy);
  }
  RestorableBlock block = restorable(number, from, bytes);
  block.only_hidden = hidden;
  return block;
}

RestoreLink Transfers::link(LoadLink from) const {
  return {.booked = std::max<Nanos>(0, link_times_.free_at(from) - now_),
          .latency = link_times_.load(from, 0)};
}

Tier Transfers::slowest_readable() const {
  const Tier own = slowest_own();
  // (A disk that is left alone may have what the store has too, and would be read in its stead.)
  const bool disk_answers = !has(Tier::kDisk) || own == Tier::kDisk;
  return shared_readable() && disk_answers ? Tier::kShared : own;
}

Tier Transfers::slowest_own() const {
  if (has(Tier::kDisk) && !disk_read_link_.paused(now_)) return Tier::kDisk;
  return has(Tier::kHost) ? Tier::kHost : Tier::kDevice;
}

// What the link is bringing should have come long ago.
bool Transfers::overdue(LoadLink link) const {
  return loads_from_[index_of(link)] > 0 && now_ - link_times_.free_at(link) > kOverdue;
}

CoreLink Transfers::link_of(const InFlight& move) {
  const Tier from = move.from, to = move.to;
  if (move.peer) return CoreLink::kPeerServe;
  if (from == Tier::kShared) return CoreLink::kSharedLoad;
  if (to == Tier::kShared) return CoreLink::kSharedSave;
  if (to == Tier::kDevice) return from == Tier::kDisk ? CoreLink::kDiskLoad : CoreLink::kHostLoad;
  if (to == Tier::kDisk) return CoreLink::kDiskSave;
  return from == Tier::kDisk ? CoreLink::kPrefetch : CoreLink::kHostSave;
}

std::uint64_t Transfers::block_bytes(BlockId id, GroupSet groups) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (index_.block(id).parts[group] || !has_group(groups, group)) continue;
    const LowerCopy* copy = index_.block(id).whole_copy(group);
    bytes += copy == nullptr ? config_.groups[group].block_bytes : copy_bytes(*copy);
  }
  return bytes;
}

std::uint64_t Transfers::copy_bytes(const LowerCopy& copy) const {
  return copy.form == StateForm::kHidden ? config_.hidden.block_bytes
                                         : config_.groups[copy.group].block_bytes;
}

// --- loads ---

std::vector<std::uint32_t> Transfers::load(std::span<const CoreProbe> wanted,
                                           std::span<const BlockPin> held) {
  std::vector<std::uint32_t> places;
  std::vector<Load*> fresh;
  Booking booking = begin_booking();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i].load) continue;
    places.push_back(static_cast<std::uint32_t>(i));
    if (loading(held[i].block())) continue;
    const bool rotates = wanted[i].original != kNoBlock;
    fresh.push_back(rotates ? &begin_rotation(held[i], wanted[i], booking) : &begin_load(held[i], booking));
  }
  book(fresh, booking);
  return places;
}

std::vector<Tier> Transfers::load_ahead(std::span<const CoreProbe> blocks) {
  std::vector<Tier> from;
  std::vector<Load*> fresh;
  from.reserve(blocks.size());
  fresh.reserve(blocks.size());
  if (const std::size_t room = begun_.size() + blocks.size(); room > begun_.capacity())
    begun_.reserve(std::max(room, 2 * begun_.capacity()));
  Booking booking = begin_booking();
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const CoreProbe& found = blocks[i];
    const BlockId id = found.node;
    if (i + kEntriesAhead < blocks.size()) index_.prefetch_tokens(blocks[i + kEntriesAhead].node);
    BlockPin pin = index_.pin(id);
    from.push_back(load_tier(found));
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (index_.block(id).parts[group] || !has_group(found.groups, group)) continue;
      const bool placed = index_.place(pin, group);
      LOCI_CHECK(placed, "there is room for what is loaded ahead");
    }
    const bool rotates = found.original != kNoBlock;
    fresh.push_back(rotates ? &begin_rotation(pin, found, booking) : &begin_load(pin, booking));
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (pin.holds(group)) index_.let_go(pin, group, Release::kUnused);  // its load holds it
    }
  }
  book(fresh, booking);
  return from;
}

void Transfers::load_first(const CoreProbe& found) {
  const OperationId first(moves_begun_ + 1);
  load_ahead({&found, 1});
  for (auto move = begun_.rbegin(); move != begun_.rend() && move->id >= first; ++move)
    move->together = first;
}

// When they end, as predicted: those over one link together, as their layers take turns. So one that is given
// up is given up with all others, and nothing of them has come whole: it may be kLateTimes as late.
void Transfers::book(std::span<Load* const> fresh, const Booking& booking) {
  for (const LoadLink link : kEveryLoadLink) {
    const std::uint32_t count = booking.moves[index_of(link)];
    if (count == 0) continue;
    const Nanos ends_at = link_times_.book(link, booking.bytes[index_of(link)],
                                           {booking.first, OperationId(moves_begun_)}, count, now_);
    for (Load* load : fresh) {
      if (load->slowest == link) load->ends_at = ends_at;
    }
    const Nanos predicted = std::min(ends_at - now_, kCostMax / kLateTimes);
    for (auto move = begun_.rbegin(); move != begun_.rend() && move->id >= booking.first; ++move)
      if (move->from != Tier::kDevice && moves_.at(move->id).link == link)
        move->time_limit = predicted * kLateTimes;
  }
}

Transfers::Load& Transfers::begin_load(const BlockPin& held, Booking& booking) {
  const BlockId id = held.block();
  std::optional<AppendToken> token = index_.claim(id);
  LOCI_CHECK(token.has_value(), "what is loaded nobody fills");
  Load& load = loads_.emplace(id, Load{.token = std::move(*token)}).first->second;
  for (const LoadLink link : kEveryLoadLink) {
    const Tier tier = tier_of(link);
    InFlight move{.from = tier, .to = Tier::kDevice, .link = link, .pin = index_.pin(id), .parts = {}};
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      const Block& block = index_.block(id);
      const LowerCopy* copy = block.whole_copy(group);
      if (!held.holds(group) || block.filled_in(group) == kBlockTokens || copy == nullptr ||
          load_link_of(*copy) != link)
        continue;
      index_.hold(move.pin, group);
      index_.begin_read(id, tier, group);
      move.parts.push_back({group, copy->slot.slot(), block.parts[group]->slot.slot()});
      load.groups[group] = true;
      move.form = copy->form;
      booking.bytes[index_of(link)] += copy_bytes(*copy);
      if (windowed(group)) ++moving_[group];
    }
    if (move.parts.empty()) continue;
    load.slowest = link;
    ++booking.moves[index_of(link)];
    load.moves.push_back(begin_move(std::move(move)));
  }
  LOCI_CHECK(!load.moves.empty(), "a load has something to bring");
  return load;
}

// The same from the block of the same tokens at other positions.
Transfers::Load& Transfers::begin_rotation(const BlockPin& held, const CoreProbe& found, Booking& booking) {
  const BlockId id = held.block();
  std::optional<AppendToken> token = index_.claim(id);
  LOCI_CHECK(token.has_value(), "what is loaded nobody fills");
  Load& load = loads_.emplace(id, Load{.token = std::move(*token)}).first->second;
  load.ends_at = std::max(now_, link_times_.free_at(LoadLink::kHost));
  // (First what the device has, then what comes over the links.)
  for (std::size_t place = 0; place <= kLoadLinks; ++place) {
    const bool is_here = place == 0;
    const LoadLink link = is_here ? LoadLink::kHost : kEveryLoadLink[place - 1];
    const Tier tier = is_here ? Tier::kDevice : tier_of(link);
    InFlight move{.from = tier, .to = Tier::kDevice, .link = link, .pin = index_.pin(id), .parts = {}};
    move.original = index_.pin(found.original);
    move.rotate_by = -static_cast<std::int32_t>(found.shift_blocks * kBlockTokens);
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      const Block& from = index_.block(found.original);
      const bool on_device = from.filled_in(group) == kBlockTokens;
      const LowerCopy* copy = on_device ? nullptr : from.whole_copy(group);
      if (on_device ? !is_here : is_here || load_link_of(*copy) != link) continue;
      index_.hold(move.pin, group);
      if (on_device) {
        index_.hold(*move.original, group);
      } else {
        index_.begin_read(found.original, tier, group);
      }
      const SlotId source = on_device ? from.parts[group]->slot.slot() : copy->slot.slot();
      move.parts.push_back({group, source, index_.block(id).parts[group]->slot.slot()});
      load.groups[group] = true;
      if (on_device) continue;
      booking.bytes[index_of(link)] += copy_bytes(*copy);
      move.form = copy->form;
    }
    if (move.parts.empty()) continue;
    if (!is_here) {
      load.slowest = link;
      ++booking.moves[index_of(link)];
    }
    load.moves.push_back(begin_move(std::move(move)));
  }
  return load;
}

OperationId Transfers::begin_move(InFlight move) {
  const OperationId id(++moves_begun_);
  Move& out = begun_.emplace_back();
  out.id = id;
  out.from = move.from;
  out.to = move.to;
  out.parts = move.parts;
  out.form = move.form;
  out.rotate_by = move.rotate_by;
  out.peer = move.peer;
  out.entry = index_.entry(move.to == Tier::kDevice ? move.source() : move.pin.block());
  if (move.is_over_link()) ++loads_from_[index_of(move.link)];
  moves_.emplace_hint(moves_.end(), id, std::move(move));  // the latest
  return id;
}

void Transfers::keep_slot(BlockId id, std::uint32_t group, std::optional<SlotReservation>& slot,
                          std::optional<OperationId> last_pass) {
  const auto load = loads_.find(id);
  if (load == loads_.end()) return;
  if (load->second.replaced == nullptr) load->second.replaced = std::make_unique<CoreSlots>();
  (*load->second.replaced)[group] = std::exchange(slot, std::nullopt);
  load->second.groups[group] = false;
  if (last_pass) load->second.replaced_in = *last_pass;
  for (const OperationId operation : load->second.moves) {
    const auto move = moves_.find(operation);  // not of one that is ending just now
    if (move != moves_.end() && move->second.pin.holds(group)) {
      index_.let_go(move->second.pin, group, Release::kUnused);
    }
  }
}

// --- ends ---

Transfers::Ended Transfers::end(const MoveOutcome& outcome, std::optional<OperationId> first_pass) {
  const auto found = moves_.find(outcome.move);
  LOCI_CHECK(found != moves_.end(), "a move ends once");
  InFlight move = std::move(found->second);
  moves_.erase(found);
  LinkStats& link = ended_[static_cast<std::size_t>(link_of(move))];
  ++link.ended[static_cast<std::size_t>(outcome.result)];
  Ended ended;
  if (move.to == Tier::kDevice) {
    if (move.is_over_link()) {
      --loads_from_[index_of(move.link)];
      link_times_.end(move.link, outcome.move, outcome.result, now_);
    }
    end_load(std::move(move), outcome, first_pass, ended);
  } else {
    if (move.peer) ended.served = move.peer->read;
    end_save(std::move(move), outcome);
  }
  return ended;
}

// A source that did not verify is gone; another reader that is under way will find the same.
void Transfers::end_read(const InFlight& move, const MoveOutcome& outcome) {
  const MoveResult result = outcome.result;
  if (move.from == Tier::kDevice) return;
  if (move.from == Tier::kDisk) disk_read_link_.ended(outcome, now_);
  if (move.from == Tier::kShared) shared_read_link_.ended(outcome, now_);
  const BlockId id = move.source();
  // What the store was said to have did not come: nobody asks for it again before the store is asked anew.
  const bool dropped = move.from == Tier::kShared ? result != MoveResult::kDone
                       : move.from == Tier::kDisk
                           ? result == MoveResult::kDamaged || result == MoveResult::kFailed
                           : result == MoveResult::kDamaged;
  for (const MovePart& part : move.parts) {
    index_.end_read(id, move.from, part.group);
    if (!dropped || index_.block(id).copy(move.from, part.group)->readers > 0) continue;
    index_.drop_copy(id, move.from, part.group, miss_reason_of(result));
  }
}

void Transfers::end_load(InFlight move, const MoveOutcome& outcome, std::optional<OperationId> first_pass,
                         Ended& ended) {
  const MoveResult result = outcome.result;
  const BlockId id = move.pin.block();
  Load& load = loads_.at(id);
  end_read(move, outcome);
  hidden_loaded_ += result == MoveResult::kDone && move.form == StateForm::kHidden ? 1 : 0;
  for (const MovePart& part : move.parts) {
    if (windowed(part.group)) --moving_[part.group];
    // (What has got its state otherwise may be gone again, and the load's slot is another.)
    if (result == MoveResult::kDone && !load.is_replaced(part.group))
      index_.fill_part(load.token, part.group);
    load.groups[part.group] = false;
    // Its conversation goes on behind the cut: only who parts from it before would need the original again.
    if (move.original && move.from == Tier::kDevice)
      index_.let_go(*move.original, part.group, Release::kBehindWindow);
  }
  // Bringing it was no use of it: who has it holds it by a pin of its own.
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (move.pin.holds(group)) index_.let_go(move.pin, group, Release::kUnused);
  }
  if (result != MoveResult::kDone) ended.missed = Missed{id, move.from, result};
  const auto ended_move = std::ranges::find(load.moves, outcome.move);
  LOCI_CHECK(ended_move != load.moves.end(), "a load has its moves");
  load.moves.erase(ended_move);
  if (!load.moves.empty()) return;
  // The slots that the load alone had: a pass in flight may still read them.
  if (first_pass && load.replaced_in.value >= first_pass->value) {
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (load.is_replaced(group)) ended.still_read.push_back({group, std::move(*(*load.replaced)[group])});
    }
  }
  loads_.erase(id);
  // What is new to this server is saved here as what it computes.
  if ((move.original || move.from == Tier::kShared) && through_ && index_.block(id).filled == kBlockTokens)
    wish_save(id, Tier::kDevice, SaveScope::kWithoutWindows);
  if (move.original && index_.block(id).filled == kBlockTokens) wish_share(id, SaveScope::kWithoutWindows);
}

void Transfers::end_save(InFlight move, const MoveOutcome& outcome) {
  const MoveResult result = outcome.result;
  const BlockId id = move.pin.block();
  end_read(move, outcome);
  const bool done = result == MoveResult::kDone;
  const bool shared = move.to == Tier::kShared;
  if (move.original) index_.settle_end(move.original->block());  // (one that failed is not tried again)
  if (move.from == Tier::kDevice) let_go_source(move);
  for (const MovePart& part : move.parts) {
    // (Of several parts, nobody knows which one it was.)
    const bool was_not_written = result == MoveResult::kFailed || result == MoveResult::kTooSlow;
    if (was_not_written && move.to == Tier::kDisk) index_.doubt_slot(id, move.to, part.group);
    if (!shared) index_.finish_copy(id, move.to, part.group, done);
    if (move.next_to_be_evicted) --saving_ahead_[index_of(move.from)][part.group];
  }
  if (move.peer) {
    --serves_in_flight_;
    if (move.from == Tier::kDisk) --disk_serves_in_flight_;
    return;
  }
  if (shared) {
    --shares_in_flight_;
    shared_write_link_.ended(outcome, now_);
    return;
  }
  --saves_in_flight_;
  hidden_saved_ += done && move.form == StateForm::kHidden ? 1 : 0;
  if (done && move.to == (has(Tier::kDisk) ? Tier::kDisk : Tier::kHost)) {
    partial_saved_ += is_partial(index_.block(id).tokens) ? 1 : 0;
    drop_replaced(id);
  }
  // Its keys and values are there still, and nobody else has saved them.
  if (result == MoveResult::kNotCaptured) {
    wishes_.add_first(SaveWishes::Line::kFromDevice, id, SaveScope::kWithoutWindows);
    return;
  }
  if (done && move.to == Tier::kHost && move.from == Tier::kDevice && through_)
    wish_save(id, Tier::kHost, SaveScope::kAllGroups);
  if (move.to != Tier::kDisk) return;
  disk_write_link_.ended(outcome, now_);
}

}  // namespace loci
