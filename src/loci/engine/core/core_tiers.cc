// SPDX-License-Identifier: Apache-2.0
// What requests have to do with slower tiers (transfers.h): what happens before the queue, loads of who comes
// next, the ends of moves, saves, and what a start and less room on the disk leave to be done.
#include <optional>
#include <utility>

#include "loci/engine/core/core_state.h"

namespace loci {
namespace {

constexpr std::uint32_t kTrimmedInAStep = 32;  // copies

}  // namespace

// --- before the queue ---

// It waits for what is on its way to it, or for its turn.
void Core::State::take_in(CoreRequest& request) {
  if (!await_beginning(request)) enqueue(request);
}

// True: it waits for the first tokens of a block, and is in no queue.
bool Core::State::await_beginning(CoreRequest& request) {
  if (request.paused || before_queue_.full() || !beginnings_.begin(request, !flights_.empty())) return false;
  before_queue_.enter(request, BeforeQueue::For::kBeginning, now_ + Beginnings::kWaitMax);
  preloads_.begin_behind_first(request, room_.changes());
  return true;
}

// True: the request waits to hear what the store that servers share has of it.
bool Core::State::ask(CoreRequest& request, Plan& plan) {
  if (before_queue_.full()) return false;
  std::optional<SharedAsk> ask = shared_questions_.ask(request);
  if (!ask) return false;
  before_queue_.enter(request, BeforeQueue::For::kAnswer, now_ + ask->time_limit);
  plan.asks.push_back(std::move(*ask));
  return true;
}

void Core::State::on(const SharedAnswer& event, Plan&) {
  const auto found = requests_.find(event.request);
  if (found == requests_.end() || found->second->runs()) return;
  CoreRequest& request = *found->second;
  if (!shared_questions_.take_answer(request, event.groups)) return;
  if (room_.is_blocked(request.id)) room_.changed();
  if (!request.before_queue->until) return;  // it came late; whoever still waits may use it
  before_queue_.leave(request);
  take_in(request);
}

// --- looking ahead into the queue ---

// The request, if it waits; null: it runs, is paused or is gone.
CoreRequest* Core::State::waiting_request(RequestId id) const {
  const auto request = requests_.find(id);
  return request == requests_.end() || !request->second->waits() ? nullptr : request->second.get();
}

void Core::State::look_ahead(bool pass_waits) {
  queue_needs_.look([this](RequestId id) { return waiting_request(id); }, pass_waits);
  if (!index_.has_tier(Tier::kHost) && !index_.has_tier(Tier::kDisk) && !index_.has_tier(Tier::kShared))
    return;
  if (!flights_.empty() && !deadlines_.drains()) {
    preloads_.begin([this](RequestId id) -> CoreRequest& { return *requests_.at(id); }, room_.changes(),
                    pass_waits);
  } else {
    preloads_.rest();
  }
  queue_needs_.prefetch();
}

// --- moves ---

void Core::State::on(const MovesEnded& event, Plan& plan) {
  const std::optional<OperationId> first_pass = flights_.first_id();
  std::vector<Transfers::Missed> missed;
  for (const MoveOutcome& outcome : event.moves) {
    Transfers::Ended ended = transfers_.end(outcome, first_pass);
    if (ended.missed) {
      tables_.miss(*ended.missed);
      missed.push_back(*ended.missed);
    }
    if (ended.served) peer_reads_.ended(*ended.served);
    for (Transfers::ReadSlot& slot : ended.still_read) flights_.detach(slot.group, std::move(slot.slot));
  }
  if (!missed.empty()) PromptSources::lost(batch_, std::move(missed));
  tables_.count_loaded();
  room_.changed();
  const auto has_come = [this](const CoreRequest& request) { return beginnings_.has_come(request); };
  for (CoreRequest* request : before_queue_.take_begun(has_come)) enqueue(*request);
  plan.hidden_share = share_follower_.look(now_);
}

// Past the drain's deadline nothing is begun any more.
void Core::State::save() {
  if (drained_ || deadlines_.drain_is_over(now_)) return peer_reads_.refuse_all();
  Transfers::SaveRules rules{.free_percent = deadlines_.drains() ? 100 : config_.swap_out_percent};
  const auto copies = static_cast<std::uint32_t>(flights_.copies());
  for (std::uint32_t group = 0; group < group_count_; ++group)
    rules.taken[group] = windows_.taken(group) + copies;
  transfers_.save(rules);
  peer_reads_.serve(now_, rules);
}

// --- the disk ---

// Does a portion of the work that the disk causes, so that no step is long: lets go of what an earlier
// process left there, and drops copies for which there is no room any more.
void Core::State::settle_disk() {
  if (recovery_.let_go()) {
    transfers_.open_disk();
    forgotten_.recovered();
    disk_is_beyond_ = true;  // more may have been found than there is room for by now
  }
  // It may answer again: what was not read ahead is looked at once more.
  const bool gives_up = transfers_.disk_gives_up();
  if (std::exchange(disk_gives_up_, gives_up) && !gives_up) room_.changed();
  if (!disk_is_beyond_) return;
  std::uint32_t left = kTrimmedInAStep;
  for (std::uint32_t pool = 0; pool < index_.pool_count(Tier::kDisk); ++pool)
    left -= index_.trim(Tier::kDisk, pool, left);
  disk_is_beyond_ = left == 0;
}

}  // namespace loci
