// SPDX-License-Identifier: Apache-2.0
// The world's host memory and disk: moves that end in any order, fail or are decided only when a pass reads
// what they bring; and processes that end while the disk stays.
#include <algorithm>
#include <array>
#include <utility>

#include "loci/memory/partial_block.h"
#include "loci/sim/core_world.h"
#include "loci/sim/core_world_require.h"

namespace loci {
World::LowerSlot& World::lower(Tier tier, std::uint32_t group, SlotId slot) {
  auto& groups = lower_[static_cast<std::size_t>(tier)];
  require(group < groups.size() && slot.value < groups[group].size(), "slots are of the tier's pool");
  return groups[group][slot.value];
}

// Of the tier's pools, that where the part is or goes.
std::uint32_t World::pool_of(const Move& move, Tier tier, std::uint32_t group) const {
  const StateForm form = tier == Tier::kDisk ? move.form : StateForm::kKeysAndValues;
  return loci::pool_of(group, form, static_cast<std::uint32_t>(options_.config.groups.size()));
}

World::Contents World::contents(const Move& move, const MovePart& part) {
  if (move.from == Tier::kShared) return shared_contents(move, part);
  if (move.from != Tier::kDevice)
    return lower(move.from, pool_of(move, move.from, part.group), part.from).rows;
  // Behind what it holds there may be anything, which is not saved.
  const std::uint32_t held = tokens_held(move.entry.tokens);
  const WorldDevice::Block& block = device_.block(part.group, part.from);
  Contents rows;
  rows.fill(0);
  for (std::size_t i = 0; i < held; ++i) rows[i] = block[i].content;
  return rows;
}

void World::see(const RecordChange& change) {
  switch (change.kind) {
    case RecordChange::Kind::kHole:
      require(change.slot.value < options_.config.hole_records, "a hole's record is of the disk's");
      holes_[change.slot] = change.entry;
      return;
    case RecordChange::Kind::kForgetHole: holes_.erase(change.slot); return;
    case RecordChange::Kind::kForget: lower(Tier::kDisk, change.group, change.slot) = {}; return;
    case RecordChange::Kind::kUsed:
      require(lower(Tier::kDisk, change.group, change.slot).entry.key == change.entry.key,
              "what is dated is there");
      return;
  }
}

void World::see(const Move& move) {
  require(move.id.value == ++last_move_, "moves are numbered");
  require(!move.parts.empty(), "a move moves something");
  require(move.from != move.to || (move.to == Tier::kDevice && move.rotate_by != 0),
          "to another tier, or to another place in a sequence");
  require(move.rotate_by % static_cast<std::int32_t>(kBlockTokens) == 0 && move.rotate_by <= 0,
          "what a cut moves goes whole blocks towards the beginning");
  WorldMove& begun = moves_.emplace_back(WorldMove{move, {}, {}});
  for (const MovePart& part : move.parts) {
    begun.source.push_back(contents(move, part));
    for (std::uint32_t i = 0; i < tokens_held(move.entry.tokens); ++i)
      require(begun.source.back()[i] != 0 || move.from == Tier::kShared, "what is moved is there");
    for (const WorldMove& other : moves_) {
      if (&other == &begun) continue;
      for (const MovePart& p : other.move.parts) {
        if (move.to == Tier::kShared) continue;  // it has no slots
        const std::uint32_t pool = pool_of(move, move.to, part.group);
        const bool same = other.move.to == move.to && pool_of(other.move, other.move.to, p.group) == pool &&
                          p.to == part.to;
        const bool read = other.move.from == move.to &&
                          pool_of(other.move, other.move.from, p.group) == pool && p.from == part.to;
        require(!same && !read, "a move's target is nobody else's");
      }
    }
    if (move.from == Tier::kDisk) {
      const LowerSlot& source = lower(Tier::kDisk, pool_of(move, Tier::kDisk, part.group), part.from);
      require(source.entry.key == move.entry.key, "what is read is the block that was meant");
      history_.after_restart += move.to == Tier::kDevice && source.saved_in != history_.restarts;
    }
    if (move.to == Tier::kDevice) {
      device_.block(part.group, part.to) = {};
    } else if (move.to != Tier::kShared) {
      lower(move.to, pool_of(move, move.to, part.group), part.to) = {};
    }
  }
}

// What becomes of a move; true: it succeeds. Its target has the state from then on.
bool World::decide(WorldMove& begun) {
  if (begun.result) return *begun.result == MoveResult::kDone;
  const Move& move = begun.move;
  begun.result = MoveResult::kDone;
  if (options_.move_fails_one_in > 0 && one_in(options_.move_fails_one_in)) {
    begun.result = static_cast<MoveResult>(1 + choose_(3));
    history_.failed_loads += move.to == Tier::kDevice;
    return false;
  }
  if (move.from == Tier::kShared && !decide_shared(begun)) return false;
  // Not all rows were captured, or they gave way.
  if (move.form == StateForm::kHidden && move.to == Tier::kDisk) {
    require(move.from == Tier::kDevice, "hidden states are captured on the device");
    if (one_in(3)) {
      begun.result = MoveResult::kNotCaptured;
      return false;
    }
  }
  for (std::size_t i = 0; i < move.parts.size(); ++i) {
    const MovePart& part = move.parts[i];
    require(contents(move, part) == begun.source[i], "what is moved stays as it is");
    if (move.to == Tier::kShared) {
      const bool is_last = !move.peer || move.peer->rounds.end == move.peer->rounds.of;
      if (is_last) shared_[{move.entry.key, part.group}] = begun.source[i];
    } else if (move.to == Tier::kDevice) {
      const auto moved = static_cast<std::uint64_t>(-std::int64_t{move.rotate_by}) * kMovedByOne;
      for (std::size_t r = 0; r < kBlockTokens; ++r) {
        const std::uint64_t content = begun.source[i][r];
        device_.block(part.group, part.to)[r] = {content == 0 ? 0 : content + moved, 0, 0};
      }
    } else {
      lower(move.to, pool_of(move, move.to, part.group), part.to) = {begun.source[i], move.entry,
                                                                     history_.restarts};
    }
  }
  ++(move.to == Tier::kDevice ? history_.loads : history_.saves);
  history_.rotated += move.rotate_by != 0;
  if (!is_partial(move.entry.tokens)) return true;
  ++(move.to == Tier::kDevice ? history_.ends_loaded : history_.ends_saved);
  const bool windows = options_.config.groups.back().window != 0;
  history_.window_ends_loaded += windows && move.to == Tier::kDevice;
  return true;
}

// A span that reads what is being loaded waits for it; false: some of it does not come.
bool World::arrive_loads(const Span& span) {
  bool all = true;
  for (WorldMove& begun : moves_) {
    if (begun.move.to != Tier::kDevice) continue;
    for (const MovePart& part : begun.move.parts) {
      if (!reads(span, part)) continue;
      history_.early_reads += !begun.result;
      all = decide(begun) && all;
    }
  }
  return all;
}

// What is moved to the device is in the span's context.
bool World::reads(const Span& span, const MovePart& part) const {
  const std::uint32_t end = span.position + static_cast<std::uint32_t>(span.tokens.size());
  const std::uint32_t first =
      first_visible(options_.config.groups[part.group].window, span.position) / kBlockTokens;
  const auto& table = span.tables[part.group].blocks;
  for (std::uint32_t i = first; i * kBlockTokens < end; ++i) {
    if (table[i] == part.to) return true;
  }
  return false;
}

// The load has failed before passes in flight have got there.
void World::doom(const Move& move) {
  for (Flight& flight : flights_) {
    const std::vector<Span>& spans = flight.plan.pass->spans;
    for (std::size_t i = 0; i < spans.size(); ++i) {
      for (const MovePart& part : move.parts) {
        if (!flight.ran && reads(spans[i], part)) flight.doomed.insert(i);
      }
    }
  }
}

void World::end_some_moves() { end_moves(1 + choose_(moves_.size())); }

void World::end_moves(std::size_t count) {
  MovesEnded ended;
  for (; count > 0; --count) {
    const std::size_t at = is_small() ? 0 : choose_(moves_.size());
    decide(moves_[at]);
    if (moves_[at].move.to == Tier::kDevice && *moves_[at].result != MoveResult::kDone) doom(moves_[at].move);
    ended.moves.push_back(
        {moves_[at].move.id, *moves_[at].result, is_small() ? 1 : static_cast<Nanos>(choose_(100))});
    moves_.erase(moves_.begin() + static_cast<std::ptrdiff_t>(at));
  }
  step(ended);
}

// The process ends where it stands, with its clients; the next one has what is on the disk.
void World::restart() {
  while (options_.ends_are_found && !moves_.empty()) end_some_moves();
  for (const RequestId id : live_) clients_.erase(id);
  live_.clear();
  flights_.clear();
  for (WorldMove& begun : moves_) {
    // A write that was under way is there or not.
    if (begun.move.to == Tier::kDisk && one_in(2)) decide(begun);
  }
  moves_.clear();
  asks_.clear();
  peer_reads_.clear();
  public_.clear();
  last_pass_ = last_move_ = 0;
  draining_ = drained_ = false;
  drain_deadline_ = kNever;
  device_.clear();
  for (auto& group : lower_[1]) group.assign(group.size(), {});
  if (has_shared() && one_in(2)) {  // it is another server, with a disk of its own
    for (auto& group : lower_[2]) group.assign(group.size(), {});
    holes_.clear();
  }
  digest_stats();
  history_.events.clear();
  history_.plan_digests.clear();
  core_ = Core::make(options_.config).value();
  rejected_ = rejected_for_now_ = 0;
  core_.watch_places();
  ++history_.restarts;
  recover();
}

// Parents before children, in batches.
void World::recover() {
  if (options_.config.groups.front().disk_blocks == 0) return;
  std::vector<RecoveredEntry> entries;
  for (std::uint32_t group = 0; group < lower_[2].size(); ++group) {
    for (std::uint32_t slot = 0; slot < lower_[2][group].size(); ++slot) {
      const LowerSlot& found = lower_[2][group][slot];
      if (found.rows[0] != 0) entries.push_back({found.entry, group, false, SlotId(slot)});
    }
  }
  for (const auto& [slot, entry] : holes_) entries.push_back({entry, 0, true, slot});
  std::stable_sort(entries.begin(), entries.end(),
                   [](const auto& a, const auto& b) { return a.entry.depth < b.entry.depth; });
  std::size_t next = 0;
  while (next < entries.size() && !is_small() && one_in(2)) {
    Recovered batch;
    for (std::size_t i = 0; i < 8 && next < entries.size(); ++i) batch.entries.push_back(entries[next++]);
    step(batch);
  }
  Recovered batch{{entries.begin() + static_cast<std::ptrdiff_t>(next), entries.end()}, 0, true};
  step(batch);
}

}  // namespace loci
