// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/admission.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "loci/base/check.h"

namespace loci {

FairQueue::FairQueue(std::uint32_t slots)
    : FairQueue(slots, make_admission_order("fcfs").value(), nullptr, 1) {}

FairQueue::FairQueue(std::uint32_t slots, std::unique_ptr<const AdmissionOrder> order, DistanceOf distance,
                     std::size_t looks)
    : slots_(slots), order_(std::move(order)), distance_(std::move(distance)), looks_(looks) {
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

FairQueue::Entry& FairQueue::at(const std::string& tenant) {
  const auto found = accounts_.find(tenant);
  LOCI_CHECK(found != accounts_.end() && found->second.active(), "a tenant that has something here");
  return *found;
}

void FairQueue::enter(Entry& entry) {
  Account& account = entry.second;
  account.stands_at = account.virtual_time;
  (account.active() ? active_ : idle_).emplace(std::pair{account.stands_at, account.id}, &entry);
  if (account.active()) active_weight_ += account.weight;
  if (account.waiting.empty()) return;
  waiting_weight_ += account.weight;
  by_waiting_.insert(&entry);
  if (account.running > 0)
    waiting_beside_.emplace(account.id, &entry);
  else
    waiting_alone_.emplace(std::tuple{account.virtual_time, account.first_arrival(), account.id}, &entry);
}

void FairQueue::leave(const Entry& entry) {
  const Account& account = entry.second;
  (account.active() ? active_ : idle_).erase({account.stands_at, account.id});
  if (account.active()) active_weight_ -= account.weight;
  if (account.waiting.empty()) return;
  waiting_weight_ -= account.weight;
  by_waiting_.erase(&entry);
  if (account.running > 0)
    waiting_beside_.erase(account.id);
  else
    waiting_alone_.erase(std::tuple{account.virtual_time, account.first_arrival(), account.id});
}

void FairQueue::push(const std::string& tenant, std::uint32_t weight, std::uint64_t arrival,
                     RequestId request, Nanos since, bool begun) {
  LOCI_CHECK(weight > 0, "everyone has some weight");
  const auto [found, is_new] = accounts_.try_emplace(tenant);
  Entry& entry = *found;
  Account& account = entry.second;
  // Behind others of its tenant, which stays where it is but for how much waits.
  const bool behind =
      !account.waiting.empty() && account.first_arrival() < arrival && account.weight == weight;
  if (is_new)
    account.id = ++accounts_made_;
  else if (behind)
    by_waiting_.erase(&entry);
  else
    leave(entry);
  if (!account.active()) account.virtual_time = std::max(account.virtual_time, virtual_now_);
  account.weight = weight;
  account.first_found_in = 0;
  const std::size_t before = account.waiting.size();
  account.waiting.emplace_hint(account.waiting.end(), arrival, Waiting{request, since, begun});
  LOCI_CHECK(account.waiting.size() > before, "a request waits once");
  if (begun) account.begun.insert(arrival);
  ++waiting_;
  if (behind)
    by_waiting_.insert(&entry);
  else
    enter(entry);
}

void FairQueue::erase(const std::string& tenant, std::uint64_t arrival) {
  Entry& entry = at(tenant);
  Account& account = entry.second;
  const auto found = account.waiting.find(arrival);
  LOCI_CHECK(found != account.waiting.end(), "only what waits leaves the queue");
  const bool behind = found != account.waiting.begin();  // as in push()
  if (behind)
    by_waiting_.erase(&entry);
  else
    leave(entry);
  account.begun.erase(arrival);
  account.first_found_in = 0;
  account.waiting.erase(found);
  --waiting_;
  if (behind)
    by_waiting_.insert(&entry);
  else
    enter(entry);
  advance();
}

void FairQueue::begin_running(const std::string& tenant) {
  Entry& entry = at(tenant);
  leave(entry);
  if (++entry.second.running == 2) ++running_several_;
  enter(entry);
}

void FairQueue::end_running(const std::string& tenant) {
  Entry& entry = at(tenant);
  LOCI_CHECK(entry.second.running > 0, "only what runs ends");
  leave(entry);
  if (--entry.second.running == 1) --running_several_;
  enter(entry);
  advance();
}

std::optional<std::uint64_t> FairQueue::charge(const std::string& tenant, std::uint64_t tokens) {
  Entry& entry = at(tenant);
  Account& account = entry.second;
  const std::tuple before{account.virtual_time, account.first_arrival(), account.id};
  account.virtual_time += tokens * kVirtualToken / account.weight;
  const bool waits = !account.waiting.empty();
  if (waits && account.running == 0) {
    auto node = waiting_alone_.extract(before);
    std::get<0>(node.key()) = account.virtual_time;
    waiting_alone_.insert(std::move(node));
  }
  advance();
  return waits ? std::optional(account.virtual_time) : std::nullopt;
}

// The first of those that are active stands at its time, so that nobody's is earlier.
void FairQueue::settle_first() {
  while (!active_.empty()) {
    Account& first = active_.begin()->second->second;
    if (first.stands_at == first.virtual_time) return;
    auto node = active_.extract(active_.begin());
    node.key().first = first.stands_at = first.virtual_time;
    active_.insert(std::move(node));
  }
}

void FairQueue::advance() {
  settle_first();
  // When nobody is left all begin anew.
  if (!active_.empty()) {
    virtual_now_ = std::max(virtual_now_, active_.begin()->first.first);
  } else if (!idle_.empty()) {
    virtual_now_ = std::max(virtual_now_, idle_.rbegin()->first.first);
  }
  while (!idle_.empty() && idle_.begin()->first.first <= virtual_now_) {
    accounts_.erase(accounts_.find(idle_.begin()->second->first));
    idle_.erase(idle_.begin());
  }
}

FairQueue::WaitingByArrival::const_iterator FairQueue::first_of(Entry& of) {
  Account& account = of.second;
  if (!account.begun.empty()) return account.waiting.find(*account.begun.begin());
  if (!order_->looks_at_distance()) return account.waiting.begin();
  const bool is_known =
      account.first_found_in != 0 && (account.first_stays || account.first_found_in == step_);
  if (!is_known) look_at(of);
  return account.first_found;
}

// Finds the account's first by distances, which it asks for where they may have changed.
void FairQueue::look_at(Entry& of) {
  Account& account = of.second;
  account.first_found_in = step_;
  account.first_stays = !order_->changes_with_time();
  account.first_found = account.waiting.begin();
  WaitingRequest best;
  bool moved = order_->changes_with_time();
  std::size_t looked_at = 0;
  for (auto next = account.waiting.begin(); next != account.waiting.end() && looked_at < looks_; ++next) {
    auto& [arrival, waiting] = *next;
    if (!waiting.distance_known && waiting.looked_at_in != step_) {
      const std::uint32_t before = waiting.distance.value;
      ask(waiting);
      moved = moved || before != waiting.distance.value;
    }
    account.first_stays = account.first_stays && waiting.distance_known;
    const WaitingRequest request{arrival, waiting.since, waiting.distance.value};
    if (looked_at++ == 0 || order_->comes_first(request, best, now_)) {
      best = request;
      account.first_found = next;
    }
  }
  if (moved) moved_.insert(of.first);
}

void FairQueue::ask(Waiting& waiting) {
  waiting.looked_at_in = step_;
  waiting.distance = distance_(waiting.request);
  waiting.distance_known = waiting.distance.is_told;
}

void FairQueue::distance_moved(const std::string& tenant, std::uint64_t arrival) {
  const auto entry = accounts_.find(tenant);
  if (entry == accounts_.end()) return;
  const auto found = entry->second.waiting.find(arrival);
  if (found == entry->second.waiting.end()) return;
  found->second.distance_known = false;
  entry->second.first_stays = false;
}

std::vector<FairQueue::Head> FairQueue::heads(std::size_t most) {
  struct Place {
    bool at_share;
    std::uint64_t virtual_time;
    std::uint64_t arrival;
    Entry* entry;
  };
  std::vector<Place> places;
  places.reserve(std::min(most, waiting_alone_.size()) + waiting_beside_.size());
  const auto add = [&](Entry& entry) {
    const Account& account = entry.second;
    places.push_back(
        {!below_slot_share(account, active_weight_), account.virtual_time, account.first_arrival(), &entry});
  };
  // Who runs nothing is below its share; of those the first are enough.
  for (auto next = waiting_alone_.begin(); next != waiting_alone_.end() && places.size() < most; ++next)
    add(*next->second);
  for (const auto& [id, entry] : waiting_beside_) add(*entry);
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
    return std::tie(a.at_share, a.virtual_time, a.arrival) < std::tie(b.at_share, b.virtual_time, b.arrival);
  });
  if (places.size() > most) places.resize(most);
  std::vector<Head> heads;
  heads.reserve(places.size());
  for (const Place& place : places)
    heads.push_back({&place.entry->first, first_of(*place.entry)->second.request});
  return heads;
}

std::vector<std::uint64_t> FairQueue::front(const std::string& tenant) {
  const auto entry = accounts_.find(tenant);
  if (entry == accounts_.end()) return {};
  Account& account = entry->second;
  std::vector<std::uint64_t> arrivals(account.begun.begin(), account.begun.end());
  if (!order_->looks_at_distance()) return arrivals;
  std::vector<WaitingRequest> looked_at;
  for (auto& [arrival, waiting] : account.waiting) {
    if (looked_at.size() >= looks_) break;
    if (waiting.begun) continue;
    if (waiting.looked_at_in == 0) ask(waiting);
    looked_at.push_back({arrival, waiting.since, waiting.distance.value});
  }
  std::sort(looked_at.begin(), looked_at.end(), [this](const WaitingRequest& a, const WaitingRequest& b) {
    return order_->comes_first(a, b, now_);
  });
  for (const WaitingRequest& request : looked_at) arrivals.push_back(request.arrival);
  return arrivals;
}

bool FairQueue::is_behind_front(const std::string& tenant, std::uint64_t arrival) const {
  const Account* account = find(tenant);
  if (account == nullptr || account->begun.contains(arrival) || order_->changes_with_time()) return false;
  if (!order_->looks_at_distance()) return true;
  const std::size_t fresh = account->waiting.size() - account->begun.size();
  return fresh > looks_ && account->waiting.rbegin()->first == arrival;
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

std::optional<RequestId> FairQueue::newest(const std::string& tenant) const {
  const Account* account = find(tenant);
  LOCI_CHECK(account != nullptr && !account->waiting.empty(), "the tenant has a request that waits");
  const auto newest = std::find_if(account->waiting.rbegin(), account->waiting.rend(),
                                   [](const auto& entry) { return !entry.second.begun; });
  return newest == account->waiting.rend() ? std::nullopt : std::optional(newest->second.request);
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

bool FairQueue::MoreWaiting::operator()(const Entry* a, const Entry* b) const {
  const std::uint64_t more = a->second.waiting.size() * b->second.weight;
  const std::uint64_t less = b->second.waiting.size() * a->second.weight;
  return more != less ? more > less : a->first < b->first;
}

const std::string& FairQueue::most_waiting() const {
  LOCI_CHECK(waiting_ > 0, "the queue is not empty");
  return (*by_waiting_.begin())->first;
}

// The first by distances is remembered while nobody comes or leaves; and for longer than a step, while no
// distance changes and it is the first at any time.
void FairQueue::check_first(const Account& account) const {
  if (account.first_found_in == 0) return;
  LOCI_CHECK(account.begun.empty() && account.first_found_in <= step_,
             "invariant 10: a first is remembered where no request has begun");
  bool waits = false;
  std::size_t looked_at = 0;
  WaitingRequest best;
  auto first = account.waiting.end();
  for (auto next = account.waiting.begin(); next != account.waiting.end() && looked_at < looks_; ++next) {
    const auto& [arrival, waiting] = *next;
    waits = waits || next == account.first_found;
    LOCI_CHECK(!account.first_stays || waiting.distance_known,
               "invariant 10: a first stays by what is known");
    const WaitingRequest request{arrival, waiting.since, waiting.distance.value};
    if (looked_at++ > 0 && !order_->comes_first(request, best, now_)) continue;
    best = request;
    first = next;
  }
  LOCI_CHECK(waits, "invariant 10: the first that is remembered waits");
  LOCI_CHECK(!account.first_stays || first == account.first_found,
             "invariant 10: the first that is remembered is the first");
}

void FairQueue::check_invariants() const {
  std::size_t waiting = 0;
  for (const auto& [name, account] : accounts_) {
    waiting += account.waiting.size();
    const auto begun = std::count_if(account.waiting.begin(), account.waiting.end(),
                                     [](const auto& entry) { return entry.second.begun; });
    LOCI_CHECK(std::cmp_equal(account.begun.size(), begun), "invariant 10: what has begun is known");
    check_first(account);
    LOCI_CHECK(account.weight > 0, "invariant 7: everyone has some weight");
    LOCI_CHECK(account.active() || account.virtual_time > virtual_now_,
               "invariant 10: who has nothing here is forgotten");
    LOCI_CHECK(!account.active() || account.virtual_time >= virtual_now_, "invariant 7: nobody has credit");
  }
  LOCI_CHECK(waiting == waiting_, "invariant 10: what waits is counted");
  std::uint64_t active_weight = 0, waiting_weight = 0;
  std::size_t active = 0, alone = 0, beside = 0, several = 0;
  for (const Entry& entry : accounts_) {
    const Account& account = entry.second;
    several += account.running > 1 ? 1 : 0;
    const auto under = [&entry](const auto& index, const auto& key) {
      const auto found = index.find(key);
      return found != index.end() && found->second == &entry;
    };
    const std::pair time{account.stands_at, account.id};
    const std::tuple place{account.virtual_time, account.first_arrival(), account.id};
    LOCI_CHECK(under(account.active() ? active_ : idle_, time),
               "invariant 10: every account stands at its virtual time, or at one before");
    LOCI_CHECK(account.stands_at <= account.virtual_time, "invariant 10: no account stands behind its time");
    active += account.active() ? 1 : 0;
    active_weight += account.active() ? account.weight : 0;
    if (account.waiting.empty()) continue;
    LOCI_CHECK(account.running > 0 ? under(waiting_beside_, account.id) : under(waiting_alone_, place),
               "invariant 10: who waits stands at its place");
    LOCI_CHECK(by_waiting_.contains(&entry), "invariant 10: who waits is compared with others");
    waiting_weight += account.weight;
    ++(account.running > 0 ? beside : alone);
  }
  LOCI_CHECK(active_weight == active_weight_ && waiting_weight == waiting_weight_,
             "invariant 10: weights are summed");
  LOCI_CHECK(several == running_several_, "invariant 10: who runs several requests is counted");
  LOCI_CHECK(active_.empty() || active_.begin()->first.first == active_.begin()->second->second.virtual_time,
             "invariant 10: the first stands at its time");
  LOCI_CHECK(active == active_.size() && accounts_.size() - active == idle_.size() &&
                 alone == waiting_alone_.size() && beside == waiting_beside_.size() &&
                 alone + beside == by_waiting_.size(),
             "invariant 10: no account stands anywhere else");
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
