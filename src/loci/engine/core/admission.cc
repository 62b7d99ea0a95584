// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/admission.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

// The places of new names are in no cache. Those of so many blocks ahead are read meanwhile.
constexpr std::size_t kNamesAhead = 8;
// A table has room from the start for the blocks of a reply, at most so many. One that lacks room is copied.
constexpr std::uint64_t kGrowthMost = 128;

// Up to the last block that the index knows. It knows all before that; but for a lineage whose gate was made
// below a public front, which is public no more: its own front may be missing, and is made anew.
std::size_t known_blocks(const CoreProbes& probes) {
  std::size_t known = probes.blocks.size();
  while (known > 0 && probes.blocks[known - 1].node == kNoBlock) --known;
  return known;
}

// Before where it goes on, the plan may compute blocks that are loaded else.
std::uint32_t first_to_compute(const CoreProbes& probes) {
  const std::uint32_t start = probes.start / kBlockTokens;
  for (std::uint32_t i = 0; i < start; ++i) {
    if (probes.blocks[i].instead) return i;
  }
  return start;
}

}  // namespace

Admission::Admission(const CoreConfig& config, BlockIndex& index, const Transfers& transfers,
                     Prefixes& prefixes, Windows& windows, const DeviceMemory& device_memory,
                     const Restores& restores, const Batch& batch)
    : config_(config),
      index_(index),
      transfers_(transfers),
      prefixes_(prefixes),
      windows_(windows),
      device_memory_(device_memory),
      restores_(restores),
      batch_(batch),
      group_count_(static_cast<std::uint32_t>(config.groups.size())) {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint64_t count = config_.groups[group].block_count;
    if (windowed(group)) continue;
    reserve_most_[group] = static_cast<std::uint32_t>((count * config.decode_reserve_percent + 99) / 100);
  }
}

// (The last token of a reply has no state.)
std::uint64_t Admission::growth(const CoreRequest& request, std::uint64_t blocks) const {
  const std::uint64_t most = std::min<std::uint64_t>(
      std::uint64_t{request.prompt_tokens} + request.max_new_tokens, windows_.sequence_tokens_max());
  return std::max((most - 1 + kBlockTokens - 1) / kBlockTokens, blocks) - blocks;
}

std::size_t Admission::room_for(const CoreRequest& request, std::size_t blocks) const {
  return blocks + std::min(growth(request, blocks), kGrowthMost);
}

std::uint32_t Admission::reserve(std::uint32_t group, const CoreRequest& request) const {
  const std::uint64_t most = reserve_most_[group];
  std::uint64_t sum = growth(request, (request.length() + kBlockTokens - 1) / kBlockTokens);
  for (const CoreRequest* one : batch_) {
    if (sum >= most) break;
    sum += growth(*one, one->blocks.size());
  }
  return static_cast<std::uint32_t>(std::min(sum, most));
}

bool Admission::admissible(const CoreProbes& probes, const Beside& beside) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (windowed(group)) {
      const std::size_t needed =
          windows_.taken(group) + transfers_.moving()[group] + probes.promised[group] + beside.copies;
      if (needed > config_.groups[group].block_count) return false;
      continue;
    }
    if (probes.slots[group] + probes.pins[group] + beside.kept[group] > index_.available(group)) return false;
  }
  return true;
}

bool Admission::keeps_to_room(const CoreProbes& probes, const Beside& beside) const {
  if (!beside.others_run || !device_memory_.limited()) return true;
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const std::uint64_t needed = windowed(group)
                                     ? std::uint64_t{windows_.taken(group)} + probes.promised[group]
                                     : std::uint64_t{index_.slot_count(group)} - index_.available(group) +
                                           probes.slots[group] + probes.pins[group];
    if (needed > device_memory_.for_requests(group)) return false;
  }
  return true;
}

bool Admission::copies_fit(const CoreProbes& probes, const Beside& beside) const {
  const std::size_t copies = static_cast<std::size_t>(
      std::count_if(probes.blocks.begin(), probes.blocks.end(),
                    [](const auto& found) { return found.source == CoreProbe::Source::kCopy; }));
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (windowed(group)) {
      const std::size_t needed = windows_.taken(group) + transfers_.moving()[group] + probes.promised[group] +
                                 beside.copies + copies;
      if (needed > config_.groups[group].block_count) return false;
      continue;
    }
    const std::uint32_t needed = probes.slots[group] + probes.pins[group] + probes.copy_pins[group];
    if (needed > index_.available(group)) return false;
  }
  return true;
}

void Admission::fit_originals(CoreProbes& probes, const Beside& beside) const {
  for (CoreProbe& found : probes.blocks) {
    if (admissible(probes, beside)) return;
    if (found.original == kNoBlock) continue;
    restores_.drop_original(probes, found);
  }
}

std::vector<BlockPin> Admission::hold_originals(const CoreProbes& probes) {
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

void Admission::take(CoreRequest& request, const CoreProbes& probes, bool with_copies, CorePass& pass) {
  // First everything that is there is held, so that making room for the rest takes none of it.
  BlockPin root = prefixes_.open_parent(probes);
  std::vector<std::optional<BlockPin>> siblings(probes.blocks.size());
  const std::size_t known = known_blocks(probes);
  request.blocks.reserve(room_for(request, probes.blocks.size()));
  for (std::size_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    if (found.node == kNoBlock && i < known) {
      const BlockId parent = i == 0 ? root.block() : request.blocks.back().block();
      const auto tokens = std::span<const TokenId>(request.tokens).subspan(i * kBlockTokens, kBlockTokens);
      request.blocks.push_back(index_.open_full(parent, found.key, tokens));
    }
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
  take_blocks(request, probes, std::move(root), std::move(siblings), pass);
  request.prefix.change().public_blocks = probes.public_blocks;
  fill_tables(request);
  request.whole_blocks = first_to_compute(probes);
  request.untouched_from = windows_.any() ? UINT32_MAX : first_untouched(request);
  windows_.take(request, probes);
}

// (Its own loads have not begun.)
std::uint32_t Admission::first_untouched(const CoreRequest& request) const {
  auto first = static_cast<std::uint32_t>(request.blocks.size());
  for (; first > 0; --first) {
    const BlockId id = request.blocks[first - 1].block();
    if (index_.block(id).filled > 0 || transfers_.loading(id)) break;
  }
  return first;
}

void Admission::fill_tables(CoreRequest& request) const {
  const std::size_t room = room_for(request, request.blocks.size());
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    request.tables[group].clear();
    request.tables[group].reserve(room);
    for (const BlockPin& pin : request.blocks) {
      const bool holds = pin.holds(group);
      request.tables[group].push_back(holds ? index_.block(pin.block()).parts[group]->slot.slot() : kNoSlot);
    }
  }
}

// What admission has counted; groups with a window are placed when a pass gets there, but for what a copy
// fills now.
void Admission::place(BlockPin& pin, bool all_groups) {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if ((windowed(group) && !all_groups) || index_.block(pin.block()).parts[group]) continue;
    const bool placed = index_.place(pin, group);
    LOCI_CHECK(placed, "the blocks that admission has counted are there");
  }
}

void Admission::take_blocks(CoreRequest& request, const CoreProbes& probes, BlockPin root,
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
    if (i + kNamesAhead < shared && probes.blocks[i + kNamesAhead].node == kNoBlock)
      index_.prefetch(probes.blocks[i + kNamesAhead].key);
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
    place(request.blocks[i], copy);
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
  place(tail, siblings.back().has_value());
  request.tail = index_.claim(tail.block());
  if (siblings.back()) {
    add_copy(request, std::move(*siblings.back()), tail.block(), found.run, true, pass);
  }
}

void Admission::add_copy(CoreRequest& request, BlockPin source, BlockId target, std::uint32_t tokens,
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

std::vector<BlockPin> Admission::hold_there(const CoreProbes& probes) {
  std::vector<BlockPin> there;
  for (const CoreProbe& found : probes.blocks) {
    if (found.node == kNoBlock || (found.load && !windows_.any() && !transfers_.loading(found.node)))
      continue;
    BlockPin& pin = there.emplace_back(index_.pin(found.node));
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (has_group(found.groups, group) && index_.block(found.node).parts[group]) index_.hold(pin, group);
    }
  }
  return there;
}

bool Admission::has_room_ahead(const CoreRequest& request, const CoreProbes& probes,
                               std::span<const std::uint32_t> begins) const {
  GroupCounts slots{};
  for (const std::uint32_t i : begins) {
    const CoreProbe& found = probes.blocks[i];
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      const bool there = found.node != kNoBlock && index_.block(found.node).parts[group];
      if (!there && has_group(found.groups, group)) ++slots[group];
    }
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group)) {
      if (index_.available(group) < slots[group] + reserve(group, request)) return false;
      continue;
    }
    const std::uint64_t taken = std::uint64_t{windows_.taken(group)} + transfers_.moving()[group];
    if (taken + slots[group] + probes.promised[group] > config_.groups[group].block_count) return false;
    if (index_.available(group) < slots[group]) return false;
  }
  return true;
}

bool Admission::has_room_to_copy(const CoreRequest& request, const CoreProbes& probes) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (index_.available(group) < 1 + reserve(group, request)) return false;
    const std::uint64_t taken = std::uint64_t{windows_.taken(group)} + transfers_.moving()[group];
    if (windowed(group) && taken + 1 + probes.promised[group] > config_.groups[group].block_count)
      return false;
  }
  return true;
}

std::vector<BlockPin> Admission::open_rotated(const CoreRequest& request, CoreProbes& probes,
                                              std::span<const std::uint32_t> begins) {
  std::vector<BlockPin> opened;
  std::uint32_t end = 0;
  for (const std::uint32_t i : begins) {
    if (probes.blocks[i].node == kNoBlock) end = std::max(end, i + 1);
  }
  if (end == 0) return opened;
  const std::uint32_t front = probes.lineage->front_blocks;
  opened.push_back(index_.open_gate(probes.blocks[front - 1].node, probes.lineage->gate));
  for (std::uint32_t i = front; i < end; ++i) {
    const auto tokens = std::span<const TokenId>(request.tokens).subspan(std::size_t{i} * kBlockTokens);
    const BlockId parent = opened.back().block();
    opened.push_back(index_.open_full(parent, probes.blocks[i].key, tokens.first(kBlockTokens)));
    probes.blocks[i].node = opened.back().block();
  }
  return opened;
}

void Admission::check_invariants(const CoreRequest& request) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    LOCI_CHECK(reserve_most_[group] <= (windowed(group) ? 0 : config_.groups[group].block_count),
               "invariant 1: what is kept for decodes fits");
  }
  const std::uint32_t public_blocks = request.prefix->public_blocks;
  LOCI_CHECK(public_blocks < request.blocks.size(), "invariant 5: the tail is never public");
  LOCI_CHECK(request.lineage == nullptr || public_blocks <= request.lineage->front_blocks,
             "invariant 5: what is public is in front of what was cut");
}

}  // namespace loci
