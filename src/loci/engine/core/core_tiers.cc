// SPDX-License-Identifier: Apache-2.0
// What requests have to do with transfers (transfers.h): which of their loads they wait for and how long,
// what becomes of them when something does not come, and what they leave that is worth saving.
//
// A request that is being restored joins a pass when its loads are predicted to arrive in time, or when
// nobody decodes; the backend then waits for each layer (AttentionStore §3.2.1).
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {
namespace {

// What a pass waits for loads at least, whatever is predicted: with decodes in it, and without.
constexpr Nanos kPatienceOfDecodes = 20 * kNanosPerMilli;
constexpr Nanos kPatienceAlone = 500 * kNanosPerMilli;

}  // namespace

// Begins what the request's blocks need; all of it is placed and held by the request.
void Core::State::start_loads(CoreRequest& request, const CoreProbes& probes) {
  const std::size_t whole = probes.blocks.size() - 1;
  request.loads = transfers_.load(std::span<const CoreProbe>(probes.blocks).first(whole),
                                  std::span<const BlockPin>(request.blocks).first(whole));
  if (!request.loads.empty()) request.load_phase.become(LoadPhase::kWaits);
}

bool Core::State::any_loading(const CoreRequest& request) const {
  return std::any_of(request.loads.begin(), request.loads.end(),
                     [&](std::uint32_t i) { return transfers_.loading(request.blocks[i].block()); });
}

// Its spans may read what is still being loaded: that comes before it is needed, or nobody who decodes waits
// for it.
bool Core::State::joins(CoreRequest& request, const CorePass& pass) {
  std::erase_if(request.loads,
                [&](std::uint32_t i) { return !transfers_.loading(request.blocks[i].block()); });
  if (request.loads.empty()) request.load_phase.settle(LoadPhase::kNone);
  if (request.loads.empty() || request.load_phase.is(LoadPhase::kJoined)) return true;
  // What becomes public is there when it does.
  if (request.load_phase.is(LoadPhase::kHeldBack) || request.is_public) return false;
  PassWork work = work_of(pass);
  const bool decodes = decodes_wait(work);
  Nanos arrives = 0;
  for (const std::uint32_t i : request.loads) {
    arrives = std::max(arrives, transfers_.arrives_at(request.blocks[i].block()));
  }
  const auto own = static_cast<std::uint32_t>(std::min<std::uint64_t>(pass.budget, missing_tokens(request)));
  work.rows.add(request.length() - own, own);
  if (work.kind == PassKind::kDecodes) work.kind = PassKind::kBoth;
  const Nanos lasts = pass_times_.predict(work);
  if (decodes) {
    // What is late is not waited for: nobody knows for how long. Else layer k of n arrives by
    // arrives * (k + 1) / n and is used at pass * k / n.
    if (arrives < now_ || (arrives - now_) * 2 > lasts) return false;
  } else if (arrives - now_ > std::max(lasts, kPatienceAlone)) {
    return false;  // others may come meanwhile
  }
  request.load_phase.become(LoadPhase::kJoined);
  return true;
}

// Somebody waits for its next token. A pass behind one in flight keeps those waiting who decode in that one.
bool Core::State::decodes_wait(const PassWork& work) const {
  return !flights_.empty() || work.kind != PassKind::kPrompts;
}

// How long the pass waits for what arrives. Who decodes in it waits no longer than computing takes, others
// half a second more, as somebody may come meanwhile. So a load that does not come (a disk that hangs) costs
// its own request the pass, and nobody else much.
Nanos Core::State::patience_of(const CorePass& pass) const {
  const bool waits = std::any_of(pass.spans.begin(), pass.spans.end(),
                                 [&](const CoreSpan& span) { return any_loading(*span.request); });
  if (!waits) return kWaitsForEver;
  const PassWork work = work_of(pass);
  const Nanos lasts = pass_times_.predict(work);
  return decodes_wait(work) ? std::max(kPatienceOfDecodes, lasts) : lasts + kPatienceAlone;
}

void Core::State::on(const MovesEnded& event, Plan&) {
  const std::optional<OperationId> first_pass = flights_.first_id();
  for (const MoveOutcome& outcome : event.moves) {
    Transfers::Ended ended = transfers_.end(outcome, first_pass);
    if (ended.missed) miss(*ended.missed);
    if (ended.served) peer_reads_.ended(*ended.served);
    for (Transfers::ReadSlot& slot : ended.still_read) flights_.detach(slot.group, std::move(slot.slot));
  }
  room_changed();
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
  if (drained_ || (drain_deadline_ && *drain_deadline_ <= now_)) return peer_reads_.refuse_all();
  Transfers::SaveRules rules{.free_percent = drain_deadline_ ? 100 : config_.swap_out_percent};
  for (std::uint32_t group = 0; group < group_count_; ++group) rules.taken[group] = windows_.taken(group);
  transfers_.save(rules);
  peer_reads_.serve(now_, rules);
}

}  // namespace loci
