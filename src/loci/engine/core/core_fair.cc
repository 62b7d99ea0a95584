// SPDX-License-Identifier: Apache-2.0
// Shares between tenants (policy/admission.h): whose requests are admitted next, the queue, and the
// suspension of those who give way (giving_way.h). With one tenant all of it is first come, first served.
#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "loci/engine/core/core_state.h"

namespace loci {
namespace {

// So many at the front of the queue may lack room while others pass them: each is looked at in every step.
constexpr std::size_t kPassedMost = 4;

}  // namespace

// --- prompts ---

// Admits what waits while the pass has tokens left for it: prompts that could not start pin no blocks.
void Core::State::admit_waiting(CorePrompts& prompts, std::uint64_t& booked, CorePass& pass, Plan& plan) {
  if (pass.budget == 0) return;
  const auto has_enough = [&](const std::string& tenant, std::uint64_t weights) {
    if (prompts.total < pass.budget) return false;
    const std::optional<std::size_t> place = prompts.place_of(tenant);
    return place &&
           prompts.tenants[*place].wanted * weights >= std::uint64_t{pass.budget} * queue_.weight(tenant);
  };
  for (bool admitted = true; admitted && !batch_.full();) {
    admitted = false;
    // Of all who have prompts that run or wait.
    std::uint64_t weights = queue_.waiting_weight();
    for (const CorePrompts::Tenant& tenant : prompts.tenants) {
      if (queue_.waiting(*tenant.name) == 0) weights += queue_.weight(*tenant.name);
    }
    std::vector<CoreRequest*> passed;
    // Only who has prompts that run may have enough, and only few let others pass.
    for (const FairQueue::Head& head : queue_.heads(prompts.tenants.size() + 1 + kPassedMost)) {
      if (has_enough(*head.tenant, weights)) continue;
      CoreRequest& request = *requests_.at(head.request);
      if (!giving_way_.may_pass(request, passed)) continue;
      if (!try_admit(request, booked, pass, plan)) {
        const bool is_passed =
            room_.is_blocked(head.request) && passed.size() < kPassedMost && giving_way_.lets_pass(request);
        if (!is_passed) return;
        passed.push_back(&request);
        continue;
      }
      request.passed.clear();
      for (CoreRequest* one : passed) {
        one->passed_by += request.length();
        request.passed.push_back(one->id);
      }
      prompts.add(request, former_.missing_tokens(request));
      admitted = true;
      break;
    }
  }
}

// --- giving way ---

void Core::State::enqueue(CoreRequest& request) {
  queue_.push(request.tenant, request.weight, request.arrival, request.id, request.arrived_at,
              request.was_admitted());
  queue_needs_.queue_changed(request.arrival, request.id);
}

void Core::State::take_off_queue(CoreRequest& request) {
  queue_.erase(request.tenant, request.arrival);
  queue_needs_.queue_changed(request.arrival, request.id);
  distances_.forget(request);
}

void Core::State::leave_queue(CoreRequest& request) {
  take_off_queue(request);
  if (room_.is_blocked(request.id)) room_.changed();
}

// The queue asks again for distances that have changed.
void Core::State::take_distances() {
  for (const CoreRequest* moved : distances_.take_changes())
    queue_.distance_moved(moved->tenant, moved->arrival);
}

// Its tenant was given so many tokens.
void Core::State::charge(const CoreRequest& request, std::uint64_t tokens) {
  if (const auto time = queue_.charge(request.tenant, tokens)) queue_needs_.served(request.tenant, *time);
  for (const RequestId id : request.passed) {
    const auto passed = requests_.find(id);
    if (passed != requests_.end()) passed->second->passed_by += tokens;
  }
}

void Core::State::suspend(CoreRequest& request) {
  if (request.paused)
    tables_.wish_save_tail(request);  // its client may be away for long
  else
    enqueue(request);
  stop_running(request);
  request.phase.become(RequestPhase::kSuspended);
  if (request.paused) return;
  ++request.suspensions;
  ++totals_.suspensions_total;
}

// Those at the front of the queue that lack room and let others pass, and the first of the others that does
// not, or may be admitted.
std::vector<CoreRequest*> Core::State::front_of_queue() {
  std::vector<CoreRequest*> front;
  for (const FairQueue::Head& head : queue_.heads(kPassedMost + 1)) {
    CoreRequest& request = *requests_.at(head.request);
    if (!giving_way_.may_pass(request, front)) continue;
    front.push_back(&request);
    if (!room_.is_blocked(head.request) || !giving_way_.lets_pass(request)) break;
  }
  return front;
}

// Who gives up its place in the full batch to the last of the front; null: nobody has to. (A place is of no
// use to one that lets others pass, as it lacks memory.)
CoreRequest* Core::State::gives_place(const std::vector<CoreRequest*>& front) const {
  const CoreRequest& last = *front.back();
  if (!batch_.full() || (room_.is_blocked(last.id) && giving_way_.lets_pass(last))) return nullptr;
  return giving_way_.for_place(last);
}

void Core::State::make_room() {
  if (queue_.empty() || batch_.empty()) return;
  const std::vector<CoreRequest*> front = front_of_queue();
  if (CoreRequest* victim = gives_place(front)) return give_way(*victim, *front.back());
  for (const CoreRequest* head : front) {
    if (!room_.is_blocked(head->id)) continue;
    for (std::uint32_t group = 0; group < group_count_; ++group) make_memory(*head, group);
  }
}

void Core::State::make_memory(const CoreRequest& head, std::uint32_t group) {
  GivingWay::Claim claim = giving_way_.claim(head, group);
  while (CoreRequest* victim = giving_way_.for_memory(head, claim)) {
    giving_way_.gave_way(*victim, claim);
    give_way(*victim, head);
  }
}

void Core::State::give_way(CoreRequest& request, const CoreRequest& head) {
  suspend(request);
  request.gave_way_to = head.id;
}

// What is to be suspended must be in no pass in flight.
bool Core::State::someone_gives_way() {
  if (std::ranges::any_of(batch_, [](const auto* request) { return request->gives_way(); })) return true;
  if (queue_.empty() || batch_.empty()) return false;
  const std::vector<CoreRequest*> front = front_of_queue();
  if (gives_place(front) != nullptr) return true;
  for (const CoreRequest* head : front) {
    for (std::uint32_t group = 0; group < group_count_ && room_.is_blocked(head->id); ++group) {
      if (giving_way_.for_memory(*head, giving_way_.claim(*head, group)) != nullptr) return true;
    }
  }
  return false;
}

}  // namespace loci
