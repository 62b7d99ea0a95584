// SPDX-License-Identifier: Apache-2.0
// State that moves between tiers (design: "Bringing state back", "Ahead of time"): loads for requests that
// are admitted, saves of what fills or is about to be evicted, and how both end.
//
// A load claims its block as a pass would: nobody else fills it meanwhile, and a second request that needs
// it waits for the same load. A request that is being restored joins a pass when its loads are predicted to
// arrive in time, or when nobody decodes; the backend then waits for each layer (AttentionStore §3.2.1).
//
// A save holds its source and reserves its target. What cannot be saved at once is dropped sooner than it
// holds anybody up: it will be computed again.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {
namespace {

constexpr std::size_t kSaveQueueMax = 4096;  // wishes; beyond it the oldest are dropped
// What a pass waits for loads at least, whatever is predicted: with decodes in it, and without.
constexpr Nanos kPatienceOfDecodes = 20 * kNanosPerMilli;
constexpr Nanos kPatienceAlone = 500 * kNanosPerMilli;
constexpr Nanos kOverdue = kNanosPerSecond;  // by so much, and nobody asks the link for more

}  // namespace

// --- what may be brought back ---

// The group's part is not on the device, and will be: it is being loaded, or a tier not slower than `slowest`
// has it.
bool Core::State::comes(BlockId id, std::uint32_t group, Tier slowest) const {
  const Block& block = index_.block(id);
  if (block.filled_in(group) == kBlockTokens) return false;
  if (const auto load = loads_.find(id); load != loads_.end()) return load->second.groups[group];
  if (block.parts[group]) return false;
  const LowerCopy* copy = block.whole_copy(group);
  return copy != nullptr && copy->tier <= slowest;
}

// All that the device lacks of the block comes.
bool Core::State::comes(BlockId id, Tier slowest) const {
  bool lacks = false;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (index_.block(id).filled_in(group) == kBlockTokens) continue;
    if (!comes(id, group, slowest)) return false;
    lacks = true;
  }
  return lacks;
}

// The tier of the slowest copy that a load of these groups reads.
Tier Core::State::load_tier(BlockId id) const {
  Tier slowest = Tier::kDevice;
  const auto load = loads_.find(id);
  if (load != loads_.end()) return load->second.slowest;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const Block& block = index_.block(id);
    if (block.parts[group]) continue;
    if (const LowerCopy* copy = block.whole_copy(group)) slowest = std::max(slowest, copy->tier);
  }
  return slowest;
}

// The slowest tier that is worth loading from: all that the request needs of it comes sooner than it can be
// computed (MemServe §6, "cost model", over the whole of a tier).
Tier Core::State::worthwhile(const CoreProbes& probes, Tier slowest) const {
  std::array<std::uint64_t, kTiers> bytes{};
  std::array<Nanos, kTiers> compute{};
  for (std::size_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    if (!found.load || loads_.contains(found.node)) continue;
    const bool here = found.original == kNoBlock;
    const auto tier = static_cast<std::size_t>(here ? load_tier(found.node)
                                                    : original_tier(found.original, Tier::kDisk).value());
    bytes[tier] += block_bytes(here ? found.node : found.original);
    compute[tier] += costs_.compute(static_cast<std::uint32_t>(i) * kBlockTokens, kBlockTokens);
  }
  Tier worth = slowest;
  for (auto tier = static_cast<std::size_t>(slowest); tier > 0; --tier) {
    if (bytes[tier] == 0) continue;  // nothing is asked of it
    const Nanos waits = std::max<Nanos>(0, link_free_at_[tier] - now_);
    if (!overdue(static_cast<Tier>(tier)) &&
        waits + costs_.load(static_cast<Tier>(tier), bytes[tier]) < compute[tier])
      break;
    worth = static_cast<Tier>(tier - 1);
  }
  return worth;
}

std::size_t Core::State::link_of(Tier from, Tier to) {
  const bool load = to == Tier::kDevice;
  const CoreLink link = load ? (from == Tier::kDisk ? CoreLink::kDiskLoad : CoreLink::kHostLoad)
                        : to == Tier::kDisk   ? CoreLink::kDiskSave
                        : from == Tier::kDisk ? CoreLink::kPrefetch
                                              : CoreLink::kHostSave;
  return static_cast<std::size_t>(link);
}

std::uint64_t Core::State::block_bytes(BlockId id) const {
  std::uint64_t bytes = 0;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!index_.block(id).parts[group]) bytes += config_.groups[group].block_bytes;
  }
  return bytes;
}

// --- loads ---

// Begins what the request's blocks need; all of it is placed and held by the request.
void Core::State::start_loads(CoreRequest& request, const CoreProbes& probes, Plan& plan) {
  request.joined = false;
  request.restart = false;
  request.loads.clear();
  std::vector<BlockId> fresh;
  std::array<std::uint64_t, kTiers> bytes{};
  for (std::size_t i = 0; i + 1 < probes.blocks.size(); ++i) {
    if (!probes.blocks[i].load) continue;
    request.loads.push_back(static_cast<std::uint32_t>(i));
    const BlockId id = request.blocks[i].block();
    if (loads_.contains(id)) continue;
    if (probes.blocks[i].original == kNoBlock) {
      start_load(request.blocks[i], bytes, plan);
    } else {
      start_rotation(request.blocks[i], probes.blocks[i], bytes, plan);
    }
    fresh.push_back(id);
  }
  book_loads(fresh, bytes);
}

// When they end, as predicted: those over one link together, as their layers take turns.
void Core::State::book_loads(const std::vector<BlockId>& fresh,
                             const std::array<std::uint64_t, kTiers>& bytes) {
  for (std::size_t tier = 1; tier < kTiers; ++tier) {
    if (bytes[tier] == 0) continue;
    link_free_at_[tier] =
        std::max(now_, link_free_at_[tier]) + costs_.load(static_cast<Tier>(tier), bytes[tier]);
    for (const BlockId id : fresh) {
      CoreLoad& load = loads_.at(id);
      if (static_cast<std::size_t>(load.slowest) == tier) load.ends_at = link_free_at_[tier];
    }
  }
}

void Core::State::start_load(const BlockPin& held, std::array<std::uint64_t, kTiers>& bytes, Plan& plan) {
  const BlockId id = held.block();
  std::optional<AppendToken> token = index_.claim(id);
  LOCI_CHECK(token.has_value(), "what is loaded nobody fills");
  CoreLoad& load = loads_.emplace(id, CoreLoad{.token = std::move(*token)}).first->second;
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    CoreMove move{.from = tier, .to = Tier::kDevice, .pin = index_.pin(id), .parts = {}};
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      const Block& block = index_.block(id);
      const LowerCopy* copy = block.whole_copy(group);
      if (!held.holds(group) || block.filled_in(group) == kBlockTokens || copy == nullptr ||
          copy->tier != tier)
        continue;
      index_.hold(move.pin, group);
      index_.begin_read(id, tier, group);
      move.parts.push_back({group, copy->slot.slot(), block.parts[group]->slot.slot()});
      load.groups[group] = true;
      bytes[static_cast<std::size_t>(tier)] += config_.groups[group].block_bytes;
      if (windowed(group)) ++moving_[group];
    }
    if (move.parts.empty()) continue;
    load.slowest = tier;
    load.moves.push_back(start_move(std::move(move), plan));
  }
  LOCI_CHECK(!load.moves.empty(), "a load has something to bring");
}

OperationId Core::State::start_move(CoreMove move, Plan& plan) {
  const OperationId id(++moves_started_);
  Move& out = plan.moves.emplace_back();
  out.id = id;
  out.from = move.from;
  out.to = move.to;
  out.parts = move.parts;
  out.rotate_by = move.rotate_by;
  out.entry = index_.entry(move.source());
  if (move.to == Tier::kDevice) ++loads_from_[static_cast<std::size_t>(move.from)];
  moves_.emplace(id, std::move(move));
  return id;
}

// Its spans may read what is still being loaded: that comes before it is needed, or nobody who decodes waits
// for it.
bool Core::State::joins(CoreRequest& request, const CorePass& pass) {
  std::erase_if(request.loads, [&](std::uint32_t i) { return !loads_.contains(request.blocks[i].block()); });
  if (request.loads.empty()) request.awaits_loads = false;
  if (request.loads.empty() || request.joined) return true;
  // What becomes public is there when it does.
  if (request.awaits_loads || request.is_public) return false;
  const PassLoad load = load_of(pass);
  Nanos arrives = 0;
  for (const std::uint32_t i : request.loads) {
    arrives = std::max(arrives, loads_.at(request.blocks[i].block()).ends_at);
  }
  const auto own = static_cast<std::uint32_t>(std::min<std::uint64_t>(pass.budget, missing_tokens(request)));
  const Nanos lasts = costs_.pass(load.rows + own, load.context + std::uint64_t{request.length()} * own);
  if (load.decodes) {
    // What is late is not waited for: nobody knows for how long. Else layer k of n arrives by
    // arrives * (k + 1) / n and is used at pass * k / n.
    if (arrives < now_ || (arrives - now_) * 2 > lasts) return false;
  } else if (arrives - now_ > std::max(lasts, kPatienceAlone)) {
    return false;  // others may come meanwhile
  }
  request.joined = true;
  return true;
}

// What the pass computes. A pass behind one in flight keeps those waiting who decode in that one.
Core::State::PassLoad Core::State::load_of(const CorePass& pass) const {
  PassLoad load{.decodes = !in_flight_.empty()};
  for (const CoreSpan& span : pass.spans) {
    load.decodes = load.decodes || span.request->decoding;
    load.rows += span.count;
    load.context += std::uint64_t{span.position} * span.count;
  }
  return load;
}

// How long the pass waits for what arrives. Who decodes in it waits no longer than computing takes, others
// half a second more, as somebody may come meanwhile. So a load that does not come (a disk that hangs) costs
// its own request the pass, and nobody else much.
Nanos Core::State::patience_of(const CorePass& pass) const {
  const bool waits = std::any_of(pass.spans.begin(), pass.spans.end(), [&](const CoreSpan& span) {
    const CoreRequest& request = *span.request;
    return std::any_of(request.loads.begin(), request.loads.end(),
                       [&](std::uint32_t i) { return loads_.contains(request.blocks[i].block()); });
  });
  if (!waits) return kWaitsForEver;
  const PassLoad load = load_of(pass);
  const Nanos lasts = costs_.pass(load.rows, load.context);
  return load.decodes ? std::max(kPatienceOfDecodes, lasts) : lasts + kPatienceAlone;
}

// --- ends ---

void Core::State::on(const MovesEnded& event, Plan& plan) {
  for (const MoveOutcome& outcome : event.moves) {
    const auto found = moves_.find(outcome.move);
    LOCI_CHECK(found != moves_.end(), "a move ends once");
    CoreMove move = std::move(found->second);
    moves_.erase(found);
    ++totals_.moves[link_of(move.from, move.to)].ended[static_cast<std::size_t>(outcome.result)];
    if (move.to == Tier::kDevice) {
      --loads_from_[static_cast<std::size_t>(move.from)];
      end_load(std::move(move), outcome);
    } else {
      end_save(std::move(move), outcome);
    }
  }
  blocked_head_.reset();
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    if (loads_from_[static_cast<std::size_t>(tier)] == 0)
      link_free_at_[static_cast<std::size_t>(tier)] = now_;
  }
  static_cast<void>(plan);
}

// The block got its state otherwise, in another slot; its load writes on to the one that it was given.
void Core::State::keep_for_load(BlockId id, std::uint32_t group, std::optional<SlotReservation>& slot) {
  const auto load = loads_.find(id);
  if (load == loads_.end()) return;
  load->second.replaced[group] = std::exchange(slot, std::nullopt);
  load->second.groups[group] = false;
  if (!in_flight_.empty()) load->second.replaced_in = in_flight_.back().id;
  for (const OperationId operation : load->second.moves) {
    const auto move = moves_.find(operation);  // not of one that is ending just now
    if (move != moves_.end() && move->second.pin.holds(group)) {
      index_.let_go(move->second.pin, group, Release::kUnused);
    }
  }
}

Tier Core::State::slowest_readable() const {
  return has_disk_ && !disk_read_link_.paused(now_) ? Tier::kDisk : has_host_ ? Tier::kHost : Tier::kDevice;
}

// What the tier is bringing should have come long ago.
bool Core::State::overdue(Tier tier) const {
  const auto index = static_cast<std::size_t>(tier);
  return loads_from_[index] > 0 && now_ - link_free_at_[index] > kOverdue;
}

// A source that did not verify is gone; another reader that is under way will find the same.
void Core::State::end_read(const CoreMove& move, const MoveOutcome& outcome) {
  const MoveResult result = outcome.result;
  if (move.from == Tier::kDevice) return;
  if (move.from == Tier::kDisk) disk_read_link_.ended(result, now_, outcome.took);
  const BlockId id = move.source();
  for (const MovePart& part : move.parts) {
    index_.end_read(id, move.from, part.group);
    if (result != MoveResult::kDamaged && (result != MoveResult::kFailed || move.from != Tier::kDisk))
      continue;
    if (index_.block(id).copy(move.from, part.group)->readers > 0) continue;
    index_.drop_copy(id, move.from, part.group, MissReason::kDamaged);
  }
}

// The slots that the load alone had: a pass in flight may still read them.
void Core::State::free_replaced(CoreLoad& load) {
  const bool read = !in_flight_.empty() && load.replaced_in.value >= in_flight_.front().id.value;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!load.replaced[group] || !read) continue;
    if (windowed(group)) ++moving_[group];
    in_flight_.back().detached.push_back({std::nullopt, group, std::move(*load.replaced[group])});
  }
}

// Something of the block will not come.
void Core::State::miss(BlockId id, Tier from) {
  for (CoreRequest* request : running_) {
    const bool reads = request->in_passes > 0 && request->joined;
    if (!reads && !windows_) continue;
    const bool needs = std::any_of(request->loads.begin(), request->loads.end(),
                                   [&](std::uint32_t i) { return request->blocks[i].block() == id; });
    if (!needs) continue;
    request->misses |= reads;
    // In groups with a window it looks again for a place to go on from.
    request->restart |= windows_;
    request->without_disk |= from == Tier::kDisk;
  }
}

void Core::State::end_load(CoreMove move, const MoveOutcome& outcome) {
  const MoveResult result = outcome.result;
  const BlockId id = move.pin.block();
  CoreLoad& load = loads_.at(id);
  end_read(move, outcome);
  for (const MovePart& part : move.parts) {
    if (windowed(part.group)) --moving_[part.group];
    // (What has got its state otherwise may be gone again, and the load's slot is another.)
    if (result == MoveResult::kDone && !load.replaced[part.group]) index_.fill_part(load.token, part.group);
    load.groups[part.group] = false;
    // Its conversation goes on behind the cut: only who parts from it before would need the original again.
    if (move.original && move.from == Tier::kDevice)
      index_.let_go(*move.original, part.group, Release::kBehind);
  }
  // Bringing it was no use of it: who has it holds it by a pin of its own.
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (move.pin.holds(group)) index_.let_go(move.pin, group, Release::kUnused);
  }
  if (result != MoveResult::kDone) miss(id, move.from);
  std::erase(load.moves, outcome.move);
  if (!load.moves.empty()) return;
  free_replaced(load);
  loads_.erase(id);
  if (move.original && through_ && index_.block(id).filled == kBlockTokens)
    wish_save(id, Tier::kDevice, false);
}

void Core::State::end_save(CoreMove move, const MoveOutcome& outcome) {
  const MoveResult result = outcome.result;
  const BlockId id = move.pin.block();
  end_read(move, outcome);
  const bool done = result == MoveResult::kDone;
  for (const MovePart& part : move.parts) {
    if (move.from == Tier::kDevice) {
      if (windowed(part.group)) --moving_[part.group];
      index_.let_go(move.pin, part.group, Release::kUnused);
    }
    index_.finish_copy(id, move.to, part.group, done);
  }
  --saves_in_flight_;
  if (done && move.to == Tier::kHost && move.from == Tier::kDevice && through_)
    wish_save(id, Tier::kHost, true);
  if (move.to != Tier::kDisk) return;
  disk_write_link_.ended(result, now_, outcome.took);
}

// --- saves ---

void Core::State::wish_save(BlockId id, Tier from, bool windows) {
  if (!has_disk_ && (from == Tier::kHost || !has_host_)) return;
  std::deque<SaveWish>& wishes = save_wishes_[static_cast<std::size_t>(from)];
  if (wishes.size() >= kSaveQueueMax) {
    wishes.pop_front();
    ++totals_.saves_dropped_total;
  }
  wishes.push_back({id, index_.block(id).key, windows});
}

// What a request leaves in groups with a window: only what its next token sees is worth saving.
void Core::State::wish_windows(const CoreRequest& request) {
  if (!windows_) return;
  for (const BlockPin& pin : request.blocks) {
    if (index_.block(pin.block()).kind != BlockKind::kFull) continue;
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (!windowed(group) || !pin.holds(group)) continue;
      wish_save(pin.block(), Tier::kDevice, true);
      break;
    }
  }
}

bool Core::State::may_write(Tier tier) const {
  return tier == Tier::kHost ? has_host_ : has_disk_ && recovered_ && !disk_write_link_.paused(now_);
}

// What `move` is to take along of the group, if the next tier lacks it and has room.
bool Core::State::add_save_part(CoreMove& move, std::uint32_t group, bool ahead) {
  const BlockId id = move.pin.block();
  const bool on_device = move.from == Tier::kDevice;
  const Block& block = index_.block(id);
  const LowerCopy* source = on_device ? nullptr : block.copy(move.from, group);
  const bool there = on_device ? block.filled_in(group) == kBlockTokens : source != nullptr && source->whole;
  if (!there || block.copied_below(move.to, group)) return false;
  if (on_device && windowed(group)) {
    const std::uint64_t held = std::uint64_t{promised_[group]} + public_held_ + moving_[group];
    if (held >= config_.groups[group].block_count) return false;
  }
  const SlotId from = on_device ? block.parts[group]->slot.slot() : source->slot.slot();
  if (on_device) {
    index_.hold(move.pin, group);
  } else {
    index_.begin_read(id, move.from, group);
  }
  const std::optional<SlotId> to =
      index_.reserve_copy(id, move.to, group, ahead ? std::optional(move.from) : std::nullopt);
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
bool Core::State::start_save(BlockId id, Tier from, bool windows, bool ahead, Plan& plan) {
  const Tier to = from == Tier::kDevice && has_host_ ? Tier::kHost : Tier::kDisk;
  if (!may_write(to)) return false;
  CoreMove move{.from = from, .to = to, .pin = index_.pin(id), .parts = {}};
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group) || windows) add_save_part(move, group, ahead);
  }
  if (move.parts.empty()) return false;
  ++saves_in_flight_;
  start_move(std::move(move), plan);
  return true;
}

// Past the drain's deadline nothing is begun any more.
void Core::State::save(Plan& plan) {
  if (drained_ || (drain_deadline_ && *drain_deadline_ <= now_)) return;
  for (const Tier from : {Tier::kDevice, Tier::kHost}) {
    std::deque<SaveWish>& wishes = save_wishes_[static_cast<std::size_t>(from)];
    if (!may_write(from == Tier::kDevice && has_host_ ? Tier::kHost : Tier::kDisk)) continue;
    while (!wishes.empty() && saves_in_flight_ < saves_max_) {
      const SaveWish wish = wishes.front();
      wishes.pop_front();
      const Block& block = index_.block(wish.block);
      if (block.kind != BlockKind::kFull || block.key != wish.key) continue;
      start_save(wish.block, from, wish.windows, false, plan);
    }
    save_ahead(from, plan);
  }
}

// Saves what is next to be evicted, while too little could be had at once (Pensieve §4.3.2).
void Core::State::save_ahead(Tier tier, Plan& plan) {
  if (!index_.has_tier(tier)) return;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint64_t percent = drain_deadline_ ? 100 : config_.swap_out_percent;
    while (saves_in_flight_ < saves_max_) {
      const TierUse use = index_.use(tier, group);
      if (std::uint64_t{index_.reclaimable(tier, group)} * 100 >= use.slots * percent) break;
      const BlockId next = index_.next_unsaved(tier, group);
      if (next == kNoBlock || !start_save(next, tier, true, true, plan)) break;
    }
  }
}

}  // namespace loci
