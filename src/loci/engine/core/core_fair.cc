// SPDX-License-Identifier: Apache-2.0
// Shares between tenants (policy/admission.h): whose prompts a pass takes, and who gives way when the batch
// or the memory is full. With one tenant all of it is first come, first served.
//
// A pass's tokens that decodes leave are divided among the tenants who have prompts to compute, by weight;
// what one does not want is the others'. So another's prompts, however many and long, cost a tenant that is
// within its share at most the rest of its share of each pass.
//
// Where the batch is full and the next request is of a tenant below its share of the places, the latest
// arrival of the tenant that is furthest above its own is suspended. Where memory is full the same goes by
// the blocks that tenants hold, but only once whoever gives way was given as many tokens more than whoever
// waits as it may have to compute again: so at least half of what is computed is never thrown away.
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
  for (CoreRequest* request : running_) {
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
    for (CoreRequest* request : running_) {
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

// What it keeps others from in a group's pool.
std::uint32_t Core::State::blocks_held(const CoreRequest& request, std::uint32_t group) const {
  return windowed(group) ? request.promised[group] : static_cast<std::uint32_t>(request.blocks.size());
}

std::map<std::string, std::uint64_t> Core::State::blocks_by_tenant(std::uint32_t group) const {
  std::map<std::string, std::uint64_t> held;
  for (const CoreRequest* request : running_) held[request->group] += blocks_held(*request, group);
  return held;
}

CoreRequest* Core::State::latest_of(const std::string& tenant) const {
  for (auto request = running_.rbegin(); request != running_.rend(); ++request) {
    if ((*request)->group == tenant) return *request;
  }
  return nullptr;
}

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

// A decode needs a block and there is none: the latest arrival of the tenant that holds most for its weight
// gives up its own (Pensieve §4.3.5).
void Core::State::suspend_for_growth() {
  LOCI_CHECK(running_.size() > 1, "a request that is alone has the whole pool");
  const std::string* most = nullptr;
  std::uint64_t most_held = 0;
  const auto held = blocks_by_tenant(0);
  for (const auto& [tenant, blocks] : held) {
    if (most == nullptr || blocks * queue_.weight(*most) > most_held * queue_.weight(tenant)) {
      most = &tenant;
      most_held = blocks;
    }
  }
  suspend(*latest_of(*most));
}

void Core::State::make_room() {
  if (queue_.empty() || running_.empty()) return;
  const CoreRequest& head = *requests_.at(queue_.heads(1).front().request);
  if (running_.size() >= running_max_) {
    if (CoreRequest* victim = slot_victim(head)) suspend(*victim);
  } else if (blocked_head_ == head.id) {
    for (std::uint32_t group = 0; group < group_count_; ++group) make_memory(head, group);
  }
}

// What is to be suspended must be in no pass in flight.
bool Core::State::someone_gives_way() {
  if (std::any_of(running_.begin(), running_.end(), [](const auto* request) { return request->gives_way(); }))
    return true;
  if (queue_.empty() || running_.empty()) return false;
  const CoreRequest& head = *requests_.at(queue_.heads(1).front().request);
  if (running_.size() >= running_max_) return slot_victim(head) != nullptr;
  for (std::uint32_t group = 0; group < group_count_ && blocked_head_ == head.id; ++group) {
    const auto held = blocks_by_tenant(group);
    if (!asks_for_memory(head, group, held)) continue;
    if (memory_victim(head, group, held, queue_.active_weight()) != nullptr) return true;
  }
  return false;
}

CoreRequest* Core::State::slot_victim(const CoreRequest& head) const {
  if (!queue_.below_slot_share(head.group)) return nullptr;
  CoreRequest* victim = nullptr;
  for (CoreRequest* request : running_) {  // the latest arrival of the tenant furthest above its share
    if (request->group == head.group || !queue_.above_slot_share(request->group)) continue;
    if (victim == nullptr || std::uint64_t{queue_.running(request->group)} * victim->weight >=
                                 std::uint64_t{queue_.running(victim->group)} * request->weight) {
      victim = request;
    }
  }
  return victim;
}

std::uint64_t Core::State::blocks_needed(const CoreRequest& head, std::uint32_t group) const {
  const std::uint64_t blocks = (head.length() + kBlockTokens - 1) / kBlockTokens;
  return windows_.blocks_needed(group, blocks);
}

// Its tenant would not be above its share with it.
bool Core::State::asks_for_memory(const CoreRequest& head, std::uint32_t group,
                                  const std::map<std::string, std::uint64_t>& held) const {
  const auto own = held.find(head.group);
  return own == held.end() || (own->second + blocks_needed(head, group)) * queue_.active_weight() <=
                                  std::uint64_t{config_.groups[group].block_count} * head.weight;
}

// Who gives up memory next for it; null: there is enough, or nobody has to. `held`: by tenant.
// `weights`: of all tenants that have requests.
CoreRequest* Core::State::memory_victim(const CoreRequest& head, std::uint32_t group,
                                        const std::map<std::string, std::uint64_t>& held,
                                        std::uint64_t weights) const {
  const std::uint64_t total = config_.groups[group].block_count;
  const std::uint64_t available =
      windowed(group) ? total - windows_.promised(group) : std::uint64_t{index_.available(group)};
  if (available >= blocks_needed(head, group) + admission_.reserve(group)) return nullptr;
  CoreRequest* victim = nullptr;
  for (const auto& [tenant, has] : held) {
    if (tenant == head.group || has * weights <= total * queue_.weight(tenant)) continue;
    CoreRequest* latest = latest_of(tenant);
    // What it was given more than the one that waits pays for what it may have to compute again.
    const std::uint64_t again = latest->length() * kVirtualToken / latest->weight;
    if (queue_.virtual_time(tenant) < queue_.virtual_time(head.group) + again) continue;
    if (victim == nullptr || has * victim->weight > held.at(victim->group) * latest->weight) victim = latest;
  }
  return victim;
}

void Core::State::make_memory(const CoreRequest& head, std::uint32_t group) {
  auto held = blocks_by_tenant(group);
  if (!asks_for_memory(head, group, held)) return;
  const std::uint64_t weights = queue_.active_weight();
  while (CoreRequest* victim = memory_victim(head, group, held, weights)) {
    held[victim->group] -= blocks_held(*victim, group);
    suspend(*victim);
  }
}

}  // namespace loci
