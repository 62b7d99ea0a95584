// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/block_tables.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "loci/base/check.h"

namespace loci {
namespace {

// Nodes that are let go are in no cache; those of so many blocks ahead are read meanwhile.
constexpr std::size_t kPinsAhead = 8;

}  // namespace

BlockTables::BlockTables(const CoreConfig& config, BlockIndex& index, Transfers& transfers,
                         const Prefixes& prefixes, Windows& windows, Flights& flights, const Batch& batch)
    : index_(index),
      transfers_(transfers),
      prefixes_(prefixes),
      windows_(windows),
      flights_(flights),
      batch_(batch),
      group_count_(static_cast<std::uint32_t>(config.groups.size())),
      saves_as_they_fill_(config.save == "through" && config.reuse),
      saves_ends_(config.reuse && (config.save == "through" || windows.any())) {}

// --- growth ---

bool BlockTables::grow(CoreRequest& request) {
  BlockPin pin = index_.open_tail(request.blocks.back().block());
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group) && !index_.place(pin, group)) return false;
  }
  request.tail = index_.claim(pin.block());
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const bool holds = pin.holds(group);
    request.tables[group].push_back(holds ? index_.block(pin.block()).parts[group]->slot.slot() : kNoSlot);
  }
  request.blocks.push_back(std::move(pin));
  return true;
}

bool BlockTables::reserve_next(CoreRequest& request) {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    request.grown[group] = index_.reserve(group);
    if (!request.grown[group]) {
      LOCI_CHECK(!windowed(group), "the slots that admission has promised are there");
      for (CoreSlots::value_type& slot : request.grown) slot.reset();
      return false;
    }
  }
  for (std::uint32_t group = 0; group < group_count_; ++group)
    request.tables[group].push_back(request.grown[group]->slot());
  windows_.begin_next(request);
  return true;
}

void BlockTables::open_next(CoreRequest& request) {
  LOCI_CHECK(request.length() == request.blocks.size() * kBlockTokens + 1, "a new block's first token");
  BlockPin pin = index_.open_tail(request.blocks.back().block());
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    index_.place(pin, group, std::move(*request.grown[group]));
    request.grown[group].reset();
  }
  request.tail = index_.claim(pin.block());
  flights_.open_grown(request, pin.block());
  request.blocks.push_back(std::move(pin));
}

void BlockTables::release_slots(CoreRequest& request) {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    request.grown[group].reset();
    request.tables[group].pop_back();
  }
  windows_.release_next(request);
}

// --- loads ---

bool BlockTables::begin_loads(CoreRequest& request, const CoreProbes& probes) {
  const std::size_t whole = probes.blocks.size() - 1;
  bool for_others = false;
  for (std::size_t i = 0; i < whole && !for_others; ++i) {
    const BlockId block = request.blocks[i].block();
    for_others = probes.blocks[i].load && index_.block(block).pins > 1 && !transfers_.loading(block);
  }
  request.loads = transfers_.load(std::span<const CoreProbe>(probes.blocks).first(whole),
                                  std::span<const BlockPin>(request.blocks).first(whole));
  if (!request.loads.empty()) {
    request.load_phase.become(LoadPhase::kWaits);
    request.untouched_from = std::max(request.untouched_from, request.loads.back() + 1);
  }
  return for_others;
}

void BlockTables::count_loaded() {
  if (windows_.any()) return;  // there a block is whole when its request has taken its parts, too
  for (CoreRequest* request : batch_) {
    std::vector<std::uint32_t>& loads = request->loads;
    if (loads.empty()) continue;
    windows_.advance(*request);
    // (That none is left is for the pass to find, which changes the phase.)
    auto left = loads.begin();
    while (left + 1 != loads.end() && !transfers_.loading(request->blocks[*left].block())) ++left;
    loads.erase(loads.begin(), left);
  }
}

void BlockTables::miss(const Transfers::Missed& missed) {
  for (CoreRequest* request : batch_) {
    const LoadPhase phase = request->load_phase.now();
    const bool joined = phase == LoadPhase::kJoined || phase == LoadPhase::kMissed;
    const bool reads = request->passes->in_flight > 0 && joined;
    if (!reads && !windows_.any()) continue;
    const bool needs = std::any_of(request->loads.begin(), request->loads.end(), [&](std::uint32_t i) {
      return request->blocks[i].block() == missed.block;
    });
    if (!needs) continue;
    // In groups with a window it looks again for a place to go on from.
    request->load_phase.settle(windows_.any() ? LoadPhase::kLost : LoadPhase::kMissed);
    // A damaged copy was dropped, and others may be sound. But a request with windows that loses loads of two
    // passes in a row asks the disk for nothing more.
    request->without_disk |= missed.from == Tier::kDisk && missed.result != MoveResult::kDamaged;
    request->without_disk |= windows_.any() && request->passes->poisoned > 0;
  }
}

// --- what passes bring ---

void BlockTables::fill(CoreRequest& request, const CorePiece& piece, const CorePass& pass) {
  touch(request, piece.block);
  if (piece.claim) {
    index_.fill(*pass.claims[*piece.claim], piece.filled);
    if (piece.filled == kBlockTokens) wish_copies(piece.block);
    return;
  }
  const std::uint32_t had = index_.block(piece.block).filled;
  const std::size_t begin = (request.blocks.size() - 1) * kBlockTokens;
  index_.append(*request.tail,
                std::span<const TokenId>(request.tokens).subspan(begin + had, piece.filled - had));
  if (piece.filled == kBlockTokens) complete_tail(request);
}

// The block has state from now on, for all who have it.
void BlockTables::touch(CoreRequest& request, BlockId block) const {
  const std::uint32_t number = index_.block(block).depth - 1;
  request.untouched_from = std::max(request.untouched_from, number + 1);
  if (index_.block(block).pins == 1) return;
  for (CoreRequest* other : batch_) {
    if (other->untouched_from <= number && number < other->blocks.size() &&
        other->blocks[number].block() == block)
      other->untouched_from = number + 1;
  }
}

// The tail is whole: it becomes a block that others find by its key, or gives way to one that is there.
void BlockTables::complete_tail(CoreRequest& request) {
  const std::size_t number = request.blocks.size() - 1;
  const Block& tail = index_.block(request.blocks[number].block());
  const ChainKey key = prefixes_.hasher().child(index_.block(tail.parent).key, tail.tokens);
  Completion completion = index_.complete(std::move(request.blocks[number]), std::move(*request.tail), key);
  request.tail.reset();
  request.blocks[number] = std::move(completion.pin);
  const BlockId block = request.blocks[number].block();
  touch(request, block);
  const std::optional<OperationId> last_pass = flights_.last_id();
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const SlotId slot = index_.block(block).parts[group]->slot.slot();
    request.tables[group].set(number, slot);
    // A pass in flight goes on with the slots that were there when it was planned.
    flights_.detach(request, group, std::move(completion.dropped[group]));
    if (!completion.replaced[group]) continue;
    transfers_.keep_slot(block, group, completion.replaced[group], last_pass);
    flights_.detach(request, group, std::move(completion.replaced[group]));
    for (CoreRequest* other : batch_) {
      if (number < other->blocks.size() && other->blocks[number].block() == block &&
          other->blocks[number].holds(group)) {
        other->tables[group].set(number, slot);
      }
    }
  }
  wish_copies(block);
}

// The block has been computed.
void BlockTables::wish_copies(BlockId block) {
  if (saves_as_they_fill_) transfers_.wish_save(block, Tier::kDevice, SaveScope::kWithoutWindows);
  transfers_.wish_share(block, SaveScope::kWithoutWindows);
}

void BlockTables::wish_save_tail(const CoreRequest& request) {
  if (!saves_ends_ || request.is_public || !request.tail) return;
  const BlockId id = request.tail->block();
  const Block& tail = index_.block(id);
  if (tail.filled == 0) return;
  transfers_.wish_save_tail(id);
  // It goes at once if a sibling has its tokens, which may not be saved: a block that is behind the window of
  // its own sequence, or what a cancelled prompt has left.
  const BlockId same = index_.same_beginning(id);
  if (same == kNoBlock) return;
  if (index_.block(same).kind == BlockKind::kTail) {
    transfers_.wish_save_tail(same);
  } else if (windows_.any() && index_.block(same).filled == kBlockTokens) {
    transfers_.wish_save(same, Tier::kDevice, SaveScope::kAllGroups);
  }
}

// What a request leaves in groups with a window: only what its next token sees is worth saving.
void BlockTables::wish_windows(const CoreRequest& request) {
  if (!windows_.any()) return;
  for (const BlockPin& pin : request.blocks) {
    if (index_.block(pin.block()).kind != BlockKind::kFull) continue;
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (!windowed(group) || !pin.holds(group)) continue;
      transfers_.wish_save(pin.block(), Tier::kDevice, SaveScope::kAllGroups);
      transfers_.wish_share(pin.block(), SaveScope::kAllGroups);
      break;
    }
  }
}

void BlockTables::let_go(CoreRequest& request) {
  wish_windows(request);
  request.loads.clear();
  request.load_phase.settle(LoadPhase::kNone);
  flights_.forget_copies(request);
  request.tail.reset();
  if (request.passes->in_flight > 0 || request.windows->lent != GroupCounts{}) flights_.keep(request);
  while (!request.blocks.empty()) {
    if (request.blocks.size() > kPinsAhead)
      index_.prefetch(request.blocks[request.blocks.size() - 1 - kPinsAhead].block());
    request.blocks.pop_back();
  }
  windows_.leave(request);
  request.untouched_from = 0;
  for (SlotTable& table : request.tables) table.clear();
}

}  // namespace loci
