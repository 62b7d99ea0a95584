// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/windows.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci {

namespace {

std::uint32_t blocks_for(std::uint32_t tokens) {
  return tokens / kBlockTokens + (tokens % kBlockTokens != 0);
}

}  // namespace

Windows::Windows(const CoreConfig& config, BlockIndex& index, const Transfers& transfers,
                 const Prefixes& prefixes, const Places& places)
    : config_(config),
      index_(index),
      transfers_(transfers),
      prefixes_(prefixes),
      places_(places),
      group_count_(static_cast<std::uint32_t>(config.groups.size())),
      any_(places.any_windows()),
      sequence_tokens_max_(config.context_tokens) {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group)) continue;
    // A pool without room for a window has room for all of a shorter sequence.
    const std::uint32_t count = config_.groups[group].block_count;
    if (count < ring_blocks(group, 1)) {
      sequence_tokens_max_ = std::min(sequence_tokens_max_, count * kBlockTokens);
    }
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group)) continue;
    // One prompt's chunk takes at most a quarter of the pool, so that others run beside it.
    const std::uint32_t most =
        std::max(config_.groups[group].block_count / 4, ring_blocks(group, kBlockTokens));
    std::uint32_t& chunk = chunk_tokens_[group];
    chunk = config_.max_batch_tokens;
    while (chunk > kBlockTokens && ring_blocks(group, chunk) > most) chunk -= kBlockTokens;
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (windowed(group)) continue;
    const std::uint64_t tokens = std::uint64_t{config_.groups[group].block_count} * kBlockTokens;
    sequence_tokens_max_ = static_cast<std::uint32_t>(std::min<std::uint64_t>(sequence_tokens_max_, tokens));
  }
}

std::uint64_t Windows::blocks_needed(std::uint32_t group, std::uint64_t blocks) const {
  if (!windowed(group)) return blocks;
  const std::uint32_t ahead = config_.passes_ahead;
  return std::min<std::uint64_t>(blocks, ring_blocks(group, chunk_tokens_[group] + ahead)) + ahead;
}

std::uint32_t Windows::ring_blocks(std::uint32_t group, std::uint32_t tokens) const {
  const std::uint64_t seen = std::uint64_t{config_.groups[group].window} - 1 + tokens;
  const std::uint64_t touched = (seen + kBlockTokens - 2) / kBlockTokens + 1;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(touched, blocks_for(sequence_tokens_max_)));
}

// --- admission ---

void Windows::find_parting(CoreProbes& probes) const {
  const std::uint32_t i = Prefixes::first_unknown(probes);
  const BlockId parent = prefixes_.find_parent(probes, i);
  const CoreProbe& first = probes.blocks[i];
  if (parent == kNoBlock || first.source == CoreProbe::Source::kTakeOver) return;
  // (The end of a sequence is where one goes on.)
  const Block& above = index_.block(parent);
  if (above.children > above.partial_children) probes.parting = i * kBlockTokens + first.run;
}

void Windows::promise(const CoreRequest& request, CoreProbes& probes) const {
  const std::uint64_t most = std::uint64_t{request.length()} + request.max_new_tokens - request.new_tokens();
  const std::uint32_t blocks =
      blocks_for(static_cast<std::uint32_t>(std::min<std::uint64_t>(most, sequence_tokens_max_)));
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group)) continue;
    if (request.is_public) {
      probes.promised[group] = blocks_for(request.length());
      continue;
    }
    // A pass ahead needs another token's place, and a slot that a block no longer has while it is read.
    const std::uint32_t ahead = config_.passes_ahead;
    const std::uint32_t chunk = std::min(chunk_tokens_[group], request.length() - probes.start);
    probes.promised[group] = std::min({ring_blocks(group, chunk + ahead) + ahead, blocks + ahead,
                                       config_.groups[group].block_count - prefixes_.public_blocks()});
  }
}

void Windows::hold(CoreRequest& request, const CoreProbes& probes) {
  const std::uint32_t start = probes.start / kBlockTokens;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group)) continue;
    const std::uint32_t first = places_.first_seen(group, probes.start);
    request.windows.change().first_held[group] = first;
    for (std::uint32_t i = first; i < start; ++i) {
      if (index_.block(request.blocks[i].block()).parts[group]) index_.hold(request.blocks[i], group);
    }
    for (std::uint32_t i = first; i < start; ++i) {
      if (request.blocks[i].holds(group)) continue;
      const bool placed = index_.place(request.blocks[i], group);
      LOCI_CHECK(placed, "the slots that admission has promised are there");
    }
    if (start >= request.blocks.size()) continue;
    const Block& begun = index_.block(request.blocks[start].block());
    const bool is_copied = probes.blocks[start].source == CoreProbe::Source::kCopy && begun.parts[group];
    if (probes.blocks[start].node != kNoBlock && (begun.filled > 0 || is_copied))
      index_.hold(request.blocks[start], group);
  }
}

// --- as it goes on ---

bool Windows::take_parts(CoreRequest& request, std::uint32_t block_number) {
  BlockPin& pin = request.blocks[block_number];
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group) || pin.holds(group)) continue;
    if (!has_place(request, group)) return false;
    if (index_.block(pin.block()).parts[group]) {
      index_.hold(pin, group);
    } else {
      const bool placed = index_.place(pin, group);
      LOCI_CHECK(placed, "the slots that admission has promised are there");
    }
    request.tables[group].set(block_number, index_.block(pin.block()).parts[group]->slot.slot());
    ++request.windows.change().held[group];
  }
  return true;
}

bool Windows::advance(CoreRequest& request) {
  bool gave_back = any_ && let_go_behind_window(request);
  while (request.whole_blocks < request.blocks.size() &&
         index_.block(request.blocks[request.whole_blocks].block()).filled == kBlockTokens) {
    if (any_ && !take_parts(request, request.whole_blocks)) break;
    ++request.whole_blocks;
    if (any_) gave_back |= let_go_behind_window(request);
  }
  return gave_back;
}

bool Windows::let_go_behind_window(CoreRequest& request) {
  if (request.is_public) return false;
  bool gave_back = false;
  const std::uint32_t block = request.whole_blocks;
  std::uint32_t next = block * kBlockTokens;  // the first token to be computed
  if (block < request.blocks.size()) {
    const BlockPin& pin = request.blocks[block];
    bool holds_all = true;  // what others hold may be gone before the request gets there
    for (std::uint32_t group = 0; group < group_count_; ++group) holds_all = holds_all && pin.holds(group);
    if (holds_all) next += index_.block(pin.block()).filled;
  }
  if (request.passes->in_flight > 0) next = std::min(next, request.passes->computes_from[0]);
  RequestWindows& own = request.windows.change();
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group)) continue;
    const std::uint32_t first = places_.first_seen(group, next);
    for (std::uint32_t& i = own.first_held[group]; i < first; ++i) {
      if (!request.blocks[i].holds(group)) continue;
      // Its slot is in use until the load has ended, and so is of the promise.
      if (transfers_.loading(request.blocks[i].block())) break;
      const bool at_parting = i * kBlockTokens < own.parting && i >= places_.first_seen(group, own.parting);
      index_.let_go(request.blocks[i], group, at_parting ? Release::kWanted : Release::kBehindWindow);
      request.tables[group].set(i, kNoSlot);
      --own.held[group];
    }
    const std::uint32_t ahead = config_.passes_ahead;
    const std::uint32_t enough = ring_blocks(group, 1 + ahead) + ahead;
    const std::uint32_t used = own.held[group] + own.lent[group];
    if (!request.phase.is(RequestPhase::kDecode) || own.promised[group] <= enough || used > enough) continue;
    promised_[group] -= own.promised[group] - enough;
    own.promised[group] = enough;
    gave_back = true;
  }
  return gave_back;
}

// --- promises ---

void Windows::take(CoreRequest& request, const CoreProbes& probes) {
  RequestWindows& own = request.windows.change();
  own.promised = probes.promised;
  own.parting = probes.parting;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    promised_[group] += own.promised[group];
    own.held[group] = 0;
    if (!windowed(group)) continue;
    for (const BlockPin& pin : request.blocks) own.held[group] += pin.holds(group);
  }
}

void Windows::leave(CoreRequest& request) {
  RequestWindows& own = request.windows.change();
  give_back(std::exchange(own.promised, {}));
  own.held = own.first_held = {};
}

GroupCounts Windows::hand_over(CoreRequest& request) {
  RequestWindows& own = request.windows.change();
  own.lent = {};
  return std::exchange(own.promised, {});
}

void Windows::begin_next(CoreRequest& request) const {
  for (std::uint32_t group = 0; group < group_count_; ++group)
    request.windows.change().held[group] += windowed(group);
}

void Windows::release_next(CoreRequest& request) const {
  for (std::uint32_t group = 0; group < group_count_; ++group)
    request.windows.change().held[group] -= windowed(group);
}

void Windows::give_back(const GroupCounts& promised) {
  for (std::uint32_t group = 0; group < group_count_; ++group) promised_[group] -= promised[group];
}

void Windows::check_invariants(const GroupCounts& promised, const GroupCounts& lingering) const {
  LOCI_CHECK(lingering == lingering_, "invariant 10: what passes still read of ended loads is counted");
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    LOCI_CHECK(promised[group] == promised_[group], "invariant 10: promises are summed");
    const std::uint64_t taken =
        std::uint64_t{promised[group]} + (windowed(group) ? prefixes_.public_blocks() : 0);
    LOCI_CHECK(taken <= config_.groups[group].block_count, "invariant 1: promises fit the pool");
  }
}

void Windows::check_invariants(const CoreRequest& request) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group)) continue;
    std::uint32_t held = request.grown[group].has_value();
    for (std::uint32_t i = 0; i < request.blocks.size(); ++i) {
      if (!request.blocks[i].holds(group)) continue;
      ++held;
      LOCI_CHECK(i >= request.windows->first_held[group], "invariant 1: what was let go is not held");
    }
    LOCI_CHECK(held == request.windows->held[group], "invariant 10: what a request holds is counted");
    LOCI_CHECK(held <= request.windows->promised[group],
               "invariant 1: no request holds more than it was promised");
  }
}

void Windows::check_lent(const CoreRequest& request, const GroupCounts& lent) {
  LOCI_CHECK(request.windows->lent == lent, "invariant 10: what a request lends is counted");
}

}  // namespace loci
