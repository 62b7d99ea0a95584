// SPDX-License-Identifier: Apache-2.0
// Taking a request into the batch: what it needs, whether that is there, and holding it.
//
// All blocks of a request's tokens are placed and held when it is admitted, in groups without window; in
// the others it is promised slots. So a prompt that has begun never lacks memory. The block of the last token
// is the request's own tail even when the index has it whole: the last token is computed again for its
// logits, and nobody writes where others read.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {
namespace {

// Siblings' state cannot be held while it is copied.
void drop_copies(CoreProbes& probes) {
  for (CoreProbe& found : probes.blocks) {
    if (found.source == CoreProbe::Source::kCopy) found.source = CoreProbe::Source::kNone;
  }
}

}  // namespace

// What groups without window need.
void Core::State::count_needs(CoreProbes& probes) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (windowed(group)) continue;
    for (const CoreProbe& found : probes.blocks) {
      const Block* node = found.node == kNoBlock ? nullptr : &index_.block(found.node);
      const Block* sibling =
          found.source == CoreProbe::Source::kNone ? nullptr : &index_.block(found.sibling);
      if (node != nullptr && node->parts[group]) {
        if (node->parts[group]->evictable()) ++probes.pins[group];
      } else if (found.source == CoreProbe::Source::kTakeOver) {
        ++probes.pins[group];
      } else {
        ++probes.slots[group];
      }
      if (found.source == CoreProbe::Source::kCopy && sibling->parts[group]->evictable()) {
        ++probes.copy_pins[group];
      }
      if (found.original != kNoBlock) {
        const auto& part = index_.block(found.original).parts[group];
        if (part && part->evictable()) ++probes.pins[group];
      }
    }
  }
}

bool Core::State::admissible(const CoreProbes& probes, const CorePass& pass) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (windowed(group)) {
      const std::size_t needed =
          windows_.taken(group) + transfers_.moving()[group] + probes.promised[group] + pass.copies.size();
      if (needed > config_.groups[group].block_count) return false;
      continue;
    }
    const std::uint32_t reserve = running_.empty() ? 0 : reserve_blocks_[group];
    if (probes.slots[group] + probes.pins[group] + reserve > index_.available(group)) return false;
  }
  return true;
}

// Whether those that run keep to the room of memory with the request beside them. A quarter of the pool is
// theirs however small the room is, or one long request would keep all others waiting.
bool Core::State::keeps_to_room(const CoreProbes& probes) const {
  if (running_.empty() || !device_memory_.limited()) return true;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint64_t needed = windowed(group)
                                     ? std::uint64_t{windows_.taken(group)} + probes.promised[group]
                                     : std::uint64_t{index_.slot_count(group)} - index_.available(group) +
                                           probes.slots[group] + probes.pins[group];
    const std::uint64_t slots = index_.slot_count(group);
    if (needed > std::max<std::uint64_t>(device_memory_.room(group), slots / 4)) return false;
  }
  return true;
}

// Whether the sources of copies can be held for one pass.
bool Core::State::copies_fit(const CoreProbes& probes, const CorePass& pass) const {
  const std::size_t copies = static_cast<std::size_t>(
      std::count_if(probes.blocks.begin(), probes.blocks.end(),
                    [](const auto& found) { return found.source == CoreProbe::Source::kCopy; }));
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (windowed(group)) {
      const std::size_t needed = windows_.taken(group) + transfers_.moving()[group] + probes.promised[group] +
                                 pass.copies.size() + copies;
      if (needed > config_.groups[group].block_count) return false;
      continue;
    }
    const std::uint32_t needed = probes.slots[group] + probes.pins[group] + probes.copy_pins[group];
    if (needed > index_.available(group)) return false;
  }
  return true;
}

// Originals on the device are held beside their new blocks for a while. Where there is no room for both the
// first of them are computed instead.
void Core::State::fit_originals(CoreProbes& probes, const CorePass& pass) const {
  for (CoreProbe& found : probes.blocks) {
    if (admissible(probes, pass)) return;
    if (found.original == kNoBlock) continue;
    found.original = kNoBlock;
    found.load = false;
    probes.slots = probes.pins = probes.copy_pins = {};
    count_needs(probes);
  }
}

// So that making room for the request takes none of them before their moves hold them.
std::vector<BlockPin> Core::State::hold_originals(const CoreProbes& probes) {
  std::vector<BlockPin> held;
  for (const CoreProbe& found : probes.blocks) {
    if (found.original == kNoBlock) continue;
    BlockPin& pin = held.emplace_back(index_.pin(found.original));
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (index_.block(found.original).filled_in(group) == kBlockTokens) index_.hold(pin, group);
    }
  }
  return held;
}

// Takes a request that waits into the batch. False: the batch is full or blocks are missing.
bool Core::State::try_admit(CoreRequest& request, CorePass& pass, Plan& plan) {
  if (blocked_head_ == request.id || running_.size() >= running_max_) return false;
  Tier slowest = slowest_for(request);
  CoreProbes probes = choose(request, true, slowest);
  const RestoreForecast forecast = plan_restore_of(request, probes, slowest);
  if (request.lineage) fit_originals(probes, pass);
  const bool with_copies = copies_fit(probes, pass);
  if (windows_.any() && !with_copies) probes = choose(request, false, slowest);
  if (!admissible(probes, pass) || !keeps_to_room(probes)) {
    // A request that is alone has all but what is public and, for a while, what moves or what a pass in
    // flight keeps: arrivals that need more than a pool were refused.
    if (running_.empty() && transfers_.idle() && flights_.empty())
      end_without_memory(request, plan);
    else
      blocked_head_ = request.id;
    return false;
  }
  ContextSources from = sources(request, probes, with_copies);
  from.restore = forecast;
  queue_.begin_running(request.group);
  take_off_queue(request);
  const bool first = !request.was_admitted();
  const std::vector<BlockPin> originals = hold_originals(probes);
  admit(request, probes, with_copies, pass);
  start_loads(request, probes);
  if (first) start(request, from, plan);
  return true;
}

void Core::State::start(CoreRequest& request, ContextSources from, Plan& plan) {
  request.cached_tokens = from.cached();
  for (const std::uint32_t i : request.loads) {
    const Nanos ends = transfers_.arrives_at(request.blocks[i].block());
    from.predicted_load = std::max(from.predicted_load, ends - now_);
  }
  totals_.tokens_cached_total += request.cached_tokens;
  totals_.tokens_prompt_total += request.prompt_tokens;
  for (std::size_t tier = 0; tier < kTiers; ++tier)
    totals_.tokens_from_total[tier] += from.of(static_cast<Tier>(tier));
  for (std::size_t i = 0; i < kMissReasons; ++i) totals_.tokens_missed_total[i] += from.computed[i];
  charge(request, request.prompt_tokens - request.cached_tokens);
  plan.outputs.emplace_back(Started{request.id, request.cached_tokens, from});
}

CoreProbes Core::State::choose(const CoreRequest& request, bool copies, Tier slowest) const {
  const Prefixes::ProbeRules rules{.slowest = slowest,
                                   .originals = !windows_.any(),
                                   .tails_may_move = config_.passes_ahead > 0 && !flights_.empty()};
  CoreProbes probes = prefixes_.probe(request, rules);
  if (windows_.any()) {
    windows_.find_parting(probes);
    if (!copies) drop_copies(probes);
    windows_.choose_start(probes, slowest);
    if (request.is_public) windows_.compute_all(probes);
    windows_.promise(request, probes);
  }
  count_needs(probes);
  return probes;
}

void Core::State::admit(CoreRequest& request, const CoreProbes& probes, bool with_copies, CorePass& pass) {
  // First everything that is there is held, so that making room for the rest takes none of it.
  BlockPin root = prefixes_.open_parent(probes);
  std::vector<std::optional<BlockPin>> siblings(probes.blocks.size());
  for (std::size_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    if (found.node != kNoBlock) {
      BlockPin& pin = request.blocks.emplace_back(index_.pin(found.node));
      for (std::uint32_t group = 0; group < group_count_; ++group) {
        if (!windowed(group) && index_.block(found.node).parts[group]) index_.hold(pin, group);
      }
    }
    if (found.source == CoreProbe::Source::kTakeOver ||
        (found.source == CoreProbe::Source::kCopy && with_copies)) {
      siblings[i] = index_.pin(found.sibling);
      index_.hold_all(*siblings[i]);
    }
  }
  if (windows_.any()) windows_.hold(request, probes);
  admit_blocks(request, probes, std::move(root), std::move(siblings), pass);
  request.promised = probes.promised;
  request.parting = probes.parting;
  request.public_blocks = probes.public_blocks;
  fill_tables(request);
  request.phase.become(RequestPhase::kPrompt);
  request.whole_blocks = probes.start / kBlockTokens;
  windows_.take(request.promised);
  const auto place = std::upper_bound(running_.begin(), running_.end(), &request,
                                      [](auto* a, auto* b) { return a->arrival < b->arrival; });
  running_.insert(place, &request);
}

void Core::State::fill_tables(CoreRequest& request) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    request.tables[group].clear();
    request.held[group] = 0;
    for (const BlockPin& pin : request.blocks) {
      const bool holds = pin.holds(group);
      request.tables[group].push_back(holds ? index_.block(pin.block()).parts[group]->slot.slot() : kNoSlot);
      if (windowed(group) && holds) ++request.held[group];
    }
  }
}

// What admission has counted; groups with a window are placed when a pass gets there, but for what a copy
// fills now.
void Core::State::place_admitted(BlockPin& pin, bool all_groups) {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if ((windowed(group) && !all_groups) || index_.block(pin.block()).parts[group]) continue;
    const bool placed = index_.place(pin, group);
    LOCI_CHECK(placed, "the blocks that admission has counted are there");
  }
}

void Core::State::admit_blocks(CoreRequest& request, const CoreProbes& probes, BlockPin root,
                               std::vector<std::optional<BlockPin>> siblings, CorePass& pass) {
  const std::size_t shared = probes.blocks.size() - 1;
  BlockId parent = root.block();
  std::optional<BlockPin> gate;
  const auto pass_gate = [&](std::size_t block) {
    if (!begins_lineage(probes.lineage, block)) return;
    gate = index_.open_gate(request.blocks[block - 1].block(), probes.lineage->gate);
    parent = gate->block();
  };
  for (std::size_t i = 0; i < shared; ++i) {
    const CoreProbe& found = probes.blocks[i];
    pass_gate(i);
    const auto tokens = std::span<const TokenId>(request.tokens).subspan(i * kBlockTokens, kBlockTokens);
    const bool take_over = found.source == CoreProbe::Source::kTakeOver;
    const bool copy = found.source == CoreProbe::Source::kCopy && siblings[i];
    if (i == request.blocks.size()) {
      request.blocks.push_back(take_over ? index_.promote(std::move(*siblings[i]), found.key, tokens)
                                         : index_.open_full(parent, found.key, tokens));
    } else if (take_over) {
      index_.adopt(request.blocks[i], std::move(*siblings[i]));
    }
    const BlockId block = request.blocks[i].block();
    if (i >= probes.public_blocks) parent = block;
    place_admitted(request.blocks[i], copy);
    if (copy) add_copy(request, std::move(*siblings[i]), block, found.run, false, pass);
  }
  pass_gate(shared);
  const CoreProbe& found = probes.blocks.back();
  if (found.source == CoreProbe::Source::kTakeOver) {
    request.blocks.push_back(std::move(*siblings.back()));
    request.tail = index_.claim(request.blocks.back().block());
    index_.truncate(*request.tail, found.run);
    return;
  }
  BlockPin& tail = request.blocks.emplace_back(index_.open_tail(parent));
  place_admitted(tail, siblings.back().has_value());
  request.tail = index_.claim(tail.block());
  if (siblings.back()) {
    add_copy(request, std::move(*siblings.back()), tail.block(), found.run, true, pass);
  }
}

void Core::State::add_copy(CoreRequest& request, BlockPin source, BlockId target, std::uint32_t tokens,
                           bool to_tail, CorePass& pass) {
  CorePiece piece{target, tokens, std::nullopt};
  if (!to_tail) {
    std::optional<AppendToken> claim = index_.claim(target);
    LOCI_CHECK(claim.has_value(), "a block that was just placed has no writer");
    piece.claim = pass.claims.size();
    pass.claims.push_back(std::move(*claim));
  }
  pass.copies.push_back({&request, std::move(source), piece});
}

// Where the state of the request's tokens comes from, and why the rest does not. Before it is admitted.
ContextSources Core::State::sources(const CoreRequest& request, const CoreProbes& probes,
                                    bool with_copies) const {
  ContextSources from;
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    const bool last = i + 1 == probes.blocks.size();
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t count = last ? request.length() - begin : kBlockTokens;
    const std::uint32_t there = tokens_there(probes, i, with_copies);
    if (found.load) {
      from.of(transfers_.load_tier(found)) += kBlockTokens;
      if (transfers_.from_hidden(found)) from.hidden += kBlockTokens;
      continue;
    }
    const auto preload = last ? request.preloads.end() : request.preloads.find(found.key);
    if (preload != request.preloads.end() && there == count) {
      from.of(preload->second) += count;
      if (preload->second == Tier::kDisk && transfers_.from_hidden(found)) from.hidden += count;
      continue;
    }
    const bool brought = request.beginning && found.source == CoreProbe::Source::kCopy &&
                         there == found.run && there > 0 &&
                         index_.find(request.beginning->key) == found.sibling;
    from.of(brought ? request.beginning->from : Tier::kDevice) += there;
    if (brought && request.beginning->hidden) from.hidden += there;
    if (there == count) continue;
    MissReason reason = last ? MissReason::kNeverSeen : index_.miss_reason(found.key);
    if (found.too_slow) reason = MissReason::kTooSlow;
    from.computed[static_cast<std::size_t>(reason)] += count - there;
    from.predicted_compute += pass_times_.compute(begin + there, count - there);
  }
  return from;
}

}  // namespace loci
