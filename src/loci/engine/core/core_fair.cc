// SPDX-License-Identifier: Apache-2.0
// Shares between tenants (policy/admission.h): whose prompts a pass takes, and what happens to those who give
// way (giving_way.h). With one tenant all of it is first come, first served.
//
// A pass's tokens that decodes leave are divided among the tenants who have prompts to compute, by weight;
// what one does not want is the others'. So another's prompts, however many and long, cost a tenant that is
// within its share at most the rest of its share of each pass.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {

// The tokens that the request is to compute before it decodes; at least one.
std::uint64_t Core::State::missing_tokens(const CoreRequest& request) const {
  const bool behind = request.in_passes > 0;  // what the passes in flight compute
  const std::uint32_t first = behind ? request.computes_to / kBlockTokens : request.whole_blocks;
  std::uint64_t missing = 0;
  for (std::uint32_t i = first; i < request.blocks.size(); ++i) {
    if (transfers_.loading(request.blocks[i].block())) continue;
    const std::uint32_t begin = i * kBlockTokens;
    const std::uint32_t wanted = std::min(kBlockTokens, request.length() - begin);
    std::uint32_t there = index_.block(request.blocks[i].block()).filled;
    if (behind && request.computes_to > begin) there = std::max(there, request.computes_to - begin);
    missing += wanted - std::min(wanted, there);
  }
  return missing;
}

// --- prompts ---

CorePrompts Core::State::prompts() const {
  CorePrompts out;
  for (CoreRequest* request : batch_) {
    if (!request->phase.is(RequestPhase::kPrompt) || (request->in_passes > 0 && !flights_.goes_on(*request)))
      continue;
    out.add(*request, missing_tokens(*request));
  }
  return out;
}

// Admits what waits while the pass has tokens left for it: prompts that could not start pin no blocks.
void Core::State::admit_waiting(CorePrompts& prompts, CorePass& pass, Plan& plan) {
  if (pass.budget == 0) return;
  const auto has_enough = [&](const std::string& tenant, std::uint64_t weights) {
    if (prompts.total < pass.budget) return false;
    const auto found = prompts.wanted.find(tenant);
    return found != prompts.wanted.end() &&
           found->second * weights >= std::uint64_t{pass.budget} * queue_.weight(tenant);
  };
  for (bool admitted = true; admitted;) {
    admitted = false;
    // Of all who have prompts that run or wait.
    std::uint64_t weights = queue_.waiting_weight();
    for (const auto& [tenant, wanted] : prompts.wanted) {
      if (queue_.waiting(tenant) == 0) weights += queue_.weight(tenant);
    }
    // Only who has prompts that run may have enough.
    for (const FairQueue::Head& head : queue_.heads(prompts.wanted.size() + 1)) {
      if (has_enough(*head.tenant, weights)) continue;
      CoreRequest& request = *requests_.at(head.request);
      if (!try_admit(request, pass, plan)) return;
      prompts.add(request, missing_tokens(request));
      admitted = true;
      break;
    }
  }
}

// Gives each tenant its part of the pass, whoever is furthest behind first; what one cannot use (another
// request fills the block that it lacks) is the next one's.
void Core::State::add_prompts(const CorePrompts& prompts, CorePass& pass) {
  std::vector<std::string> tenants;
  for (const auto& [tenant, wanted] : prompts.wanted) tenants.push_back(tenant);
  std::stable_sort(tenants.begin(), tenants.end(), [this](const std::string& a, const std::string& b) {
    return queue_.virtual_time(a) < queue_.virtual_time(b);
  });
  std::vector<std::uint64_t> wanted;
  std::vector<std::uint32_t> weights;
  for (const std::string& tenant : tenants) {
    wanted.push_back(prompts.wanted.at(tenant));
    weights.push_back(queue_.weight(tenant));
  }
  const std::vector<std::uint64_t> given = divide_fairly(pass.budget, wanted, weights);
  std::uint64_t left = 0;
  for (std::size_t i = 0; i < tenants.size(); ++i) {
    left += given[i];
    for (CoreRequest* request : batch_) {
      if (left == 0) break;
      if (!request->phase.is(RequestPhase::kPrompt) || request->group != tenants[i]) continue;
      if (request->in_passes > 0 && !flights_.goes_on(*request)) continue;
      const auto limit = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, pass.budget));
      const std::uint32_t others = pass.budget - limit;
      pass.budget = limit;
      add_spans(*request, pass);
      left -= limit - pass.budget;
      pass.budget += others;
    }
  }
}

// --- giving way ---

void Core::State::enqueue(CoreRequest& request) {
  queue_.push(request.group, request.weight, request.arrival, request.id, request.arrived_at,
              request.was_admitted());
  queue_needs_.queue_changed(request.arrival, request.id);
}

void Core::State::take_off_queue(CoreRequest& request) {
  queue_.erase(request.group, request.arrival);
  queue_needs_.queue_changed(request.arrival, request.id);
  distances_.forget(request);
}

void Core::State::leave_queue(CoreRequest& request) {
  take_off_queue(request);
  if (blocked_head_ == request.id) room_changed();
}

// Its tenant was given so many tokens.
void Core::State::charge(const CoreRequest& request, std::uint64_t tokens) {
  queue_.charge(request.group, tokens);
  queue_needs_.served(request.group);
}

void Core::State::suspend(CoreRequest& request) {
  if (!request.paused) enqueue(request);
  stop_running(request);
  request.phase.become(RequestPhase::kSuspended);
  if (request.paused) return;
  ++request.suspensions;
  ++totals_.suspensions_total;
}

void Core::State::make_room() {
  if (queue_.empty() || batch_.empty()) return;
  const CoreRequest& head = *requests_.at(queue_.heads(1).front().request);
  if (batch_.full()) {
    if (CoreRequest* victim = giving_way_.for_place(head)) suspend(*victim);
  } else if (blocked_head_ == head.id) {
    for (std::uint32_t group = 0; group < group_count_; ++group) make_memory(head, group);
  }
}

void Core::State::make_memory(const CoreRequest& head, std::uint32_t group) {
  GivingWay::Claim claim = giving_way_.claim(head, group);
  while (CoreRequest* victim = giving_way_.for_memory(head, claim)) {
    giving_way_.gave_way(*victim, claim);
    suspend(*victim);
  }
}

// What is to be suspended must be in no pass in flight.
bool Core::State::someone_gives_way() {
  if (std::ranges::any_of(batch_, [](const auto* request) { return request->gives_way(); })) return true;
  if (queue_.empty() || batch_.empty()) return false;
  const CoreRequest& head = *requests_.at(queue_.heads(1).front().request);
  if (batch_.full()) return giving_way_.for_place(head) != nullptr;
  for (std::uint32_t group = 0; group < group_count_ && blocked_head_ == head.id; ++group) {
    if (giving_way_.for_memory(head, giving_way_.claim(head, group)) != nullptr) return true;
  }
  return false;
}

}  // namespace loci
