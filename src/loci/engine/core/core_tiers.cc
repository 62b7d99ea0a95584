// SPDX-License-Identifier: Apache-2.0
// What requests have to do with transfers (transfers.h): their loads begin, what becomes of them when
// something does not come, and what they leave that is worth saving.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

// Begins what the request's blocks need; all of it is placed and held by the request. True: what
// begins now others may need too.
bool Core::State::start_loads(CoreRequest& request, const CoreProbes& probes) {
  const std::size_t whole = probes.blocks.size() - 1;
  bool for_others = false;
  for (std::size_t i = 0; i < whole && !for_others; ++i) {
    const BlockId block = request.blocks[i].block();
    for_others = probes.blocks[i].load && index_.block(block).pins > 1 && !transfers_.loading(block);
  }
  request.loads = transfers_.load(std::span<const CoreProbe>(probes.blocks).first(whole),
                                  std::span<const BlockPin>(request.blocks).first(whole));
  if (!request.loads.empty()) request.load_phase.become(LoadPhase::kWaits);
  return for_others;
}

void Core::State::on(const MovesEnded& event, Plan&) {
  const std::optional<OperationId> first_pass = flights_.first_id();
  for (const MoveOutcome& outcome : event.moves) {
    Transfers::Ended ended = transfers_.end(outcome, first_pass);
    if (ended.missed) miss(*ended.missed);
    if (ended.served) peer_reads_.ended(*ended.served);
    for (Transfers::ReadSlot& slot : ended.still_read) flights_.detach(slot.group, std::move(slot.slot));
  }
  room_.changed();
  end_waits();
}

// Something of the block will not come.
void Core::State::miss(const Transfers::Missed& missed) {
  for (CoreRequest* request : batch_) {
    const LoadPhase phase = request->load_phase.now();
    const bool joined = phase == LoadPhase::kJoined || phase == LoadPhase::kMissed;
    const bool reads = request->in_passes > 0 && joined;
    if (!reads && !windows_.any()) continue;
    const bool needs = std::any_of(request->loads.begin(), request->loads.end(), [&](std::uint32_t i) {
      return request->blocks[i].block() == missed.block;
    });
    if (!needs) continue;
    // In groups with a window it looks again for a place to go on from.
    request->load_phase.settle(windows_.any() ? LoadPhase::kLost : LoadPhase::kMissed);
    request->without_disk |= missed.from == Tier::kDisk;
  }
}

// What a request leaves in groups with a window: only what its next token sees is worth saving.
void Core::State::wish_windows(const CoreRequest& request) {
  if (!windows_.any()) return;
  for (const BlockPin& pin : request.blocks) {
    if (index_.block(pin.block()).kind != BlockKind::kFull) continue;
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (!windowed(group) || !pin.holds(group)) continue;
      transfers_.wish_save(pin.block(), Tier::kDevice, Transfers::SaveScope::kAllGroups);
      transfers_.wish_share(pin.block(), Transfers::SaveScope::kAllGroups);
      break;
    }
  }
}

// Past the drain's deadline nothing is begun any more.
void Core::State::save() {
  if (drained_ || deadlines_.drain_is_over(now_)) return peer_reads_.refuse_all();
  Transfers::SaveRules rules{.free_percent = deadlines_.drains() ? 100 : config_.swap_out_percent};
  for (std::uint32_t group = 0; group < group_count_; ++group) rules.taken[group] = windows_.taken(group);
  transfers_.save(rules);
  peer_reads_.serve(now_, rules);
}

}  // namespace loci
