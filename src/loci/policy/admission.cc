// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/admission.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "loci/base/check.h"

namespace loci {

FairQueue::FairQueue(std::uint32_t slots) : FairQueue(slots, make_admission_order("fcfs").value(), nullptr) {}

FairQueue::FairQueue(std::uint32_t slots, std::unique_ptr<const AdmissionOrder> order, DistanceOf distance)
    : slots_(slots), order_(std::move(order)), distance_(std::move(distance)) {
  LOCI_CHECK(!order_->looks_at_distance() || distance_, "who orders by distances is told them");
}

void FairQueue::begin_step(Nanos now) {
  now_ = now;
  ++step_;
}

const FairQueue::Account* FairQueue::find(const std::string& tenant) const {
  const auto found = accounts_.find(tenant);
  return found == accounts_.end() ? nullptr : &found->second;
}

FairQueue::Account& FairQueue::at(const std::string& tenant) {
  const auto found = accounts_.find(tenant);
  LOCI_CHECK(found != accounts_.end() && found->second.active(), "a tenant that has something here");
  return found->second;
}

void FairQueue::push(const std::string& tenant, std::uint32_t weight, std::uint64_t arrival,
                     RequestId request, Nanos since, bool begun) {
  LOCI_CHECK(weight > 0, "everyone has some weight");
  Account& account = accounts_[tenant];
  if (!account.active()) account.virtual_time = std::max(account.virtual_time, virtual_now_);
  account.weight = weight;
  const bool fresh = account.waiting.emplace(arrival, Waiting{request, since, begun}).second;
  LOCI_CHECK(fresh, "a request waits once");
  account.begun += begun ? 1 : 0;
  ++waiting_;
}

void FairQueue::erase(const std::string& tenant, std::uint64_t arrival) {
  Account& account = at(tenant);
  const auto found = account.waiting.find(arrival);
  LOCI_CHECK(found != account.waiting.end(), "only what waits leaves the queue");
  account.begun -= found->second.begun ? 1 : 0;
  account.waiting.erase(found);
  --waiting_;
  advance();
}

void FairQueue::begin_running(const std::string& tenant) { ++at(tenant).running; }

void FairQueue::end_running(const std::string& tenant) {
  Account& account = at(tenant);
  LOCI_CHECK(account.running > 0, "only what runs ends");
  --account.running;
  advance();
}

void FairQueue::charge(const std::string& tenant, std::uint64_t tokens) {
  Account& account = at(tenant);
  account.virtual_time += tokens * kVirtualToken / account.weight;
  advance();
}

void FairQueue::advance() {
  std::uint64_t behind = UINT64_MAX, ahead = virtual_now_;
  for (const auto& [name, account] : accounts_) {
    ahead = std::max(ahead, account.virtual_time);
    if (account.active()) behind = std::min(behind, account.virtual_time);
  }
  // When nobody is left all begin anew.
  virtual_now_ = std::max(virtual_now_, behind == UINT64_MAX ? ahead : behind);
  std::erase_if(accounts_, [this](const auto& entry) {
    return !entry.second.active() && entry.second.virtual_time <= virtual_now_;
  });
}

FairQueue::WaitingByArrival::const_iterator FairQueue::first_of(Account& account) const {
  auto first = account.waiting.begin();
  if (!order_->looks_at_distance()) return first;
  if (account.begun > 0) {
    return std::find_if(first, account.waiting.end(), [](const auto& entry) { return entry.second.begun; });
  }
  WaitingRequest best;
  std::size_t looked_at = 0;
  for (auto next = first; next != account.waiting.end() && looked_at < kLookedAt; ++next) {
    auto& [arrival, waiting] = *next;
    if (std::exchange(waiting.looked_at_in, step_) != step_) waiting.distance = distance_(waiting.request);
    const WaitingRequest request{arrival, waiting.since, waiting.distance};
    if (looked_at++ == 0 || order_->comes_first(request, best, now_)) {
      best = request;
      first = next;
    }
  }
  return first;
}

std::vector<FairQueue::Head> FairQueue::heads() {
  struct Place {
    bool at_share;
    std::uint64_t virtual_time;
    std::uint64_t arrival;
    Head head;
  };
  const std::uint64_t total = active_weight();
  std::vector<Place> places;
  for (auto& [name, account] : accounts_) {
    if (account.waiting.empty()) continue;
    const auto& [arrival, waiting] = *first_of(account);
    places.push_back(
        {!below_slot_share(account, total), account.virtual_time, arrival, {&name, waiting.request}});
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.at_share, a.virtual_time, a.arrival) < std::tie(b.at_share, b.virtual_time, b.arrival);
  });
  std::vector<Head> heads;
  for (const Place& place : places) heads.push_back(place.head);
  return heads;
}

std::size_t FairQueue::waiting(const std::string& tenant) const {
  const Account* account = find(tenant);
  return account == nullptr ? 0 : account->waiting.size();
}

std::uint32_t FairQueue::running(const std::string& tenant) const {
  const Account* account = find(tenant);
  return account == nullptr ? 0 : account->running;
}

std::uint64_t FairQueue::virtual_time(const std::string& tenant) const {
  const Account* account = find(tenant);
  return account == nullptr ? virtual_now_ : account->virtual_time;
}

std::uint32_t FairQueue::weight(const std::string& tenant) const {
  const Account* account = find(tenant);
  LOCI_CHECK(account != nullptr, "a tenant that has something here");
  return account->weight;
}

RequestId FairQueue::newest(const std::string& tenant) const {
  const Account* account = find(tenant);
  LOCI_CHECK(account != nullptr && !account->waiting.empty(), "the tenant has a request that waits");
  return account->waiting.rbegin()->second.request;
}

std::uint64_t FairQueue::active_weight() const {
  return std::accumulate(accounts_.begin(), accounts_.end(), std::uint64_t{0},
                         [](std::uint64_t sum, const auto& entry) {
                           return sum + (entry.second.active() ? entry.second.weight : 0);
                         });
}

bool FairQueue::below_slot_share(const Account& account, std::uint64_t active_weight) const {
  return account.running == 0 ||
         (account.running + std::uint64_t{1}) * active_weight <= std::uint64_t{slots_} * account.weight;
}

bool FairQueue::below_slot_share(const std::string& tenant) const {
  const Account* account = find(tenant);
  return account == nullptr || below_slot_share(*account, active_weight());
}

bool FairQueue::above_slot_share(const std::string& tenant) const {
  const Account* account = find(tenant);
  return account != nullptr && account->running > 1 &&
         account->running * active_weight() > std::uint64_t{slots_} * account->weight;
}

const std::string& FairQueue::most_waiting() const {
  LOCI_CHECK(waiting_ > 0, "the queue is not empty");
  const std::string* most = nullptr;
  const Account* of = nullptr;
  for (const auto& [name, account] : accounts_) {
    // waiting / weight, by cross-multiplication; the first name where they are equal
    if (of == nullptr || account.waiting.size() * of->weight > of->waiting.size() * account.weight) {
      most = &name;
      of = &account;
    }
  }
  return *most;
}

void FairQueue::check_invariants() const {
  std::size_t waiting = 0;
  for (const auto& [name, account] : accounts_) {
    waiting += account.waiting.size();
    const auto begun = std::count_if(account.waiting.begin(), account.waiting.end(),
                                     [](const auto& entry) { return entry.second.begun; });
    LOCI_CHECK(account.begun == static_cast<std::size_t>(begun), "what has begun is counted");
    LOCI_CHECK(account.weight > 0, "everyone has some weight");
    LOCI_CHECK(account.active() || account.virtual_time > virtual_now_, "who has nothing here is forgotten");
    LOCI_CHECK(!account.active() || account.virtual_time >= virtual_now_, "nobody has credit");
  }
  LOCI_CHECK(waiting == waiting_, "what waits is counted");
}

std::vector<std::uint64_t> divide_fairly(std::uint64_t budget, const std::vector<std::uint64_t>& wanted,
                                         const std::vector<std::uint32_t>& weights) {
  LOCI_CHECK(wanted.size() == weights.size(), "a weight for each");
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // Who wants least for its weight is satisfied first; what it leaves is the others'.
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return wanted[a] * weights[b] < wanted[b] * weights[a];
  });
  std::uint64_t left = budget;
  std::uint64_t weight = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::vector<std::uint64_t> given(wanted.size(), 0);
  for (const std::size_t i : order) {
    given[i] = std::min(wanted[i], left * weights[i] / weight);
    left -= given[i];
    weight -= weights[i];
  }
  for (std::size_t i = 0; i < given.size() && left > 0; ++i) {
    const std::uint64_t more = std::min(left, wanted[i] - given[i]);
    given[i] += more;
    left -= more;
  }
  return given;
}

}  // namespace loci
