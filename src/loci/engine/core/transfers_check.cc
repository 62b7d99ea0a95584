// SPDX-License-Identifier: Apache-2.0
// What the core asks of transfers as a whole: sums, and their invariants.
#include <algorithm>

#include "loci/base/check.h"
#include "loci/engine/core/transfers.h"

namespace loci {

GroupCounts Transfers::detached() const {
  GroupCounts slots{};
  for (const auto& [block, load] : loads_) {
    for (std::uint32_t group = 0; group < group_count_; ++group) slots[group] += load.is_replaced(group);
  }
  return slots;
}

void Transfers::visit_pins(const std::function<void(const BlockPin&)>& visit) const {
  for (const auto& [id, move] : moves_) {
    visit(move.pin);
    if (move.original) visit(*move.original);
  }
}

void Transfers::add_stats(CoreStats& stats) const {
  stats.moves = ended_;
  stats.moves_in_flight = static_cast<std::uint32_t>(moves_.size());
  stats.saves_waiting = static_cast<std::uint32_t>(wishes_.waiting());
  stats.saves_dropped_total = wishes_.dropped();
  stats.hidden_percent = hidden_share_.percent;
  stats.hidden_saved_total = hidden_saved_;
  stats.hidden_loaded_total = hidden_loaded_;
  stats.partial_saved_total = partial_saved_;
}

// What is rotated are the same tokens, at positions that differ by as much.
void Transfers::check_rotation(const InFlight& move) const {
  const Block& from = index_.block(move.source());
  const Block& to = index_.block(move.pin.block());
  LOCI_CHECK(move.to == Tier::kDevice && from.tokens == to.tokens,
             "invariant 3: a rotation keeps its tokens");
  const auto difference = (static_cast<std::int64_t>(to.depth) - from.depth) * kBlockTokens;
  LOCI_CHECK(difference == move.rotate_by && difference != 0,
             "invariant 3: keys turn by what positions differ");
  for (const MovePart& part : move.parts) {
    if (move.from != Tier::kDevice) continue;
    LOCI_CHECK(move.original->holds(part.group) && from.filled_in(part.group) == kBlockTokens &&
                   from.parts[part.group]->slot.slot() == part.from,
               "invariant 3: a rotation holds its source");
  }
}

// What is saved of a tail are its tokens.
void Transfers::check_tail_save(const InFlight& move) const {
  const Block& tail = index_.block(move.source());
  const Block& to = index_.block(move.pin.block());
  const std::uint32_t held = tokens_held(to.tokens);
  LOCI_CHECK(tail.kind == BlockKind::kTail && tail.parent == to.parent && tail.filled == held &&
                 held < kBlockTokens &&
                 std::equal(tail.tokens.begin(), tail.tokens.begin() + held, to.tokens.begin()),
             "invariant 3: a tail is saved as it is");
  for (const MovePart& part : move.parts) {
    LOCI_CHECK(tail.parts[part.group]->slot.slot() == part.from, "invariant 3: a tail's slot is its source");
  }
}

// A move has its source and its target.
void Transfers::check_move(const InFlight& move) const {
  const BlockId block = move.pin.block();
  LOCI_CHECK(!move.parts.empty() && (move.from != move.to || move.original),
             "invariant 3: a move moves something");
  if (move.original) move.to == Tier::kDevice ? check_rotation(move) : check_tail_save(move);
  const BlockPin& holder = move.original && move.to != Tier::kDevice ? *move.original : move.pin;
  for (const MovePart& part : move.parts) {
    const bool device = move.from == Tier::kDevice || move.to == Tier::kDevice;
    const auto load = loads_.find(block);
    const bool detached =
        move.to == Tier::kDevice && load != loads_.end() && load->second.is_replaced(part.group);
    LOCI_CHECK(!device || detached || holder.holds(part.group), "invariant 3: a move holds its device part");
    if (move.from != Tier::kDevice) {
      const LowerCopy* source = index_.block(move.source()).copy(move.from, part.group);
      LOCI_CHECK(
          source != nullptr && source->whole && source->readers > 0 && source->slot.slot() == part.from,
          "invariant 3: a move's source stays");
    }
    if (move.to != Tier::kDevice && move.to != Tier::kShared) {
      const LowerCopy* target = index_.block(block).copy(move.to, part.group);
      LOCI_CHECK(target != nullptr && !target->whole && target->slot.slot() == part.to,
                 "invariant 3: a move's target is reserved and unseen");
    }
  }
}

void Transfers::check_invariants() const {
  std::map<BlockId, std::vector<OperationId>> loads;
  std::array<std::uint32_t, kLoadLinks> loads_from{};
  GroupCounts moving{};
  std::uint32_t saves = 0, shares = 0, serves = 0, disk_serves = 0;
  for (const auto& [id, move] : moves_) {
    check_move(move);
    const bool device = move.from == Tier::kDevice || move.to == Tier::kDevice;
    const bool of_tail = move.original && move.to != Tier::kDevice;
    for (std::uint32_t group = 0; of_tail && group < group_count_; ++group) moving[group] += windowed(group);
    for (const MovePart& part : move.parts) moving[part.group] += !of_tail && device && windowed(part.group);
    if (move.to == Tier::kDevice) {
      loads[move.pin.block()].push_back(id);
      if (move.is_over_link()) ++loads_from[index_of(move.link)];
    } else {
      ++(move.peer ? serves : move.to == Tier::kShared ? shares : saves);
      disk_serves += move.peer && move.from == Tier::kDisk;
    }
  }
  LOCI_CHECK(saves == saves_in_flight_ && shares == shares_in_flight_ && serves == serves_in_flight_ &&
                 disk_serves == disk_serves_in_flight_ && moving == moving_ && loads_from == loads_from_,
             "invariant 10: what moves is counted");
  LOCI_CHECK(serves < serves_max_ + kTiers && disk_serves <= std::max(1u, serves_max_ / 2),
             "invariant 7: what peers are brought is bounded, half of it from the disk at most");
  link_times_.check_invariants(loads_from);
  wishes_.check_invariants();
  LOCI_CHECK(loads.size() == loads_.size(), "invariant 10: a load has moves");
  for (const auto& [block, operations] : loads) {
    const auto load = loads_.find(block);
    LOCI_CHECK(load != loads_.end() && std::ranges::equal(load->second.moves, operations),
               "invariant 10: a load's moves are known");
    LOCI_CHECK(index_.block(block).appending, "invariant 4: what is loaded has one writer");
  }
}

}  // namespace loci
