// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/admission_forecast.h"

#include <algorithm>
#include <iterator>
#include <queue>
#include <tuple>

#include "loci/base/check.h"

namespace loci {

// --- one tenant ---

std::uint64_t AdmissionForecast::last_turn(const Tenant& tenant) {
  return tenant.time + tenant.inside_cost - std::prev(tenant.outside)->second;
}

AdmissionForecast::TenantPlace AdmissionForecast::first_place(const Tenant& tenant) {
  return {tenant.time, tenant.order.begin()->first.second};
}

AdmissionForecast::TenantPlace AdmissionForecast::last_place(const Tenant& tenant) {
  return {last_turn(tenant), std::prev(tenant.outside)->first.second};
}

AdmissionForecast::TenantPlace AdmissionForecast::outside_place(const Tenant& tenant) {
  return {tenant.time + tenant.inside_cost, tenant.outside->first.second};
}

// Where the tenant stands among the others; and no more, while it changes.
void AdmissionForecast::enter(Entry& entry) {
  Tenant& tenant = entry.second;
  if (tenant.order.empty()) {
    if (tenant.is_charged) std::erase(charged_, &entry);
    tenants_.erase(tenants_.find(entry.first));
    return;
  }
  if (tenant.outside != tenant.order.begin()) {
    tenant.in_heads = heads_.insert({first_place(tenant), &entry}).first;
    tenant.in_lasts = lasts_.insert({last_place(tenant), &entry}).first;
  }
  if (tenant.outside != tenant.order.end())
    tenant.in_outside = outside_.insert({outside_place(tenant), &entry}).first;
}

void AdmissionForecast::leave(const Entry& entry) {
  const Tenant& tenant = entry.second;
  if (tenant.order.empty()) return;  // it is new
  if (tenant.outside != tenant.order.begin()) {
    heads_.erase(tenant.in_heads);
    lasts_.erase(tenant.in_lasts);
  }
  if (tenant.outside != tenant.order.end()) outside_.erase(tenant.in_outside);
}

// In the window if somebody behind it in the tenant's order is.
void AdmissionForecast::insert(Entry& entry, Key key, std::uint64_t cost) {
  Tenant& tenant = entry.second;
  const bool any_inside = tenant.outside != tenant.order.begin();
  const bool inside = any_inside && key < std::prev(tenant.outside)->first;
  const std::size_t before = tenant.order.size();
  const auto place = tenant.order.emplace_hint(tenant.order.end(), key, cost);  // mostly the latest arrival
  LOCI_CHECK(tenant.order.size() > before, "a request waits once");
  requests_.insert_or_assign(key.second, Place{&entry, key});
  if (inside) {
    tenant.inside_cost += cost;
    ++window_size_;
    changed_.push_back(key.second);
  } else if (std::next(place) == tenant.outside) {
    tenant.outside = place;
  }
}

std::uint64_t AdmissionForecast::remove(Entry& entry, Key key) {
  Tenant& tenant = entry.second;
  const auto place = tenant.order.find(key);
  LOCI_CHECK(place != tenant.order.end(), "only what waits leaves the queue");
  const std::uint64_t cost = place->second;
  if (tenant.outside == tenant.order.end() || key < tenant.outside->first) {
    tenant.inside_cost -= cost;
    --window_size_;
    changed_.push_back(key.second);
  } else if (place == tenant.outside) {
    ++tenant.outside;
  }
  tenant.order.erase(place);
  requests_.erase(key.second);
  return cost;
}

void AdmissionForecast::reserve(std::size_t requests) {
  requests_.reserve(requests);
  tenants_.reserve(requests);
}

void AdmissionForecast::push(const std::string& tenant, std::uint64_t time, std::uint64_t arrival,
                             std::uint64_t cost) {
  const auto [found, is_new] = tenants_.try_emplace(tenant);
  Entry& entry = *found;
  if (is_new) entry.second.outside = entry.second.order.end();
  set_time(entry.second, time);
  const Key key{kBehindFront, arrival};
  const bool behind = is_behind(entry.second, key);
  if (!behind) leave(entry);
  insert(entry, key, cost);
  if (!behind) enter(entry);
}

void AdmissionForecast::erase(std::uint64_t arrival) {
  const Place place = requests_.at(arrival);
  const bool behind = is_behind(place.tenant->second, place.key);
  if (!behind) leave(*place.tenant);
  if (place.key.first != kBehindFront) {
    Tenant& tenant = place.tenant->second;
    const auto at = std::ranges::find(tenant.front, arrival);
    tenant.front_in_place =
        std::min(tenant.front_in_place, static_cast<std::size_t>(at - tenant.front.begin()));
    tenant.front.erase(at);
  }
  remove(*place.tenant, place.key);
  if (!behind) enter(*place.tenant);
}

void AdmissionForecast::set_time(const std::string& tenant, std::uint64_t time) {
  const auto found = tenants_.find(tenant);
  if (found != tenants_.end()) set_time(found->second, time);
}

void AdmissionForecast::charge(const std::string& tenant, std::uint64_t time) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end()) return;
  Tenant& moves = found->second;
  moves.charged_to = time;
  if (std::exchange(moves.is_charged, true)) return;
  charged_.push_back(&*found);
  if (moves.outside != moves.order.begin()) {
    __builtin_prefetch(&*moves.order.begin());
    __builtin_prefetch(&*moves.in_heads);
    __builtin_prefetch(&*moves.in_lasts);
  }
  if (moves.outside != moves.order.end()) {
    __builtin_prefetch(&*moves.outside);
    __builtin_prefetch(&*moves.in_outside);
  }
}

void AdmissionForecast::settle() {
  for (Entry* entry : charged_) {
    entry->second.is_charged = false;
    set_time(entry->second, entry->second.charged_to);
  }
  charged_.clear();
}

// Mostly it stands where it did.
void AdmissionForecast::move(ByTurn& order, ByTurn::iterator& at, const TenantPlace& place) {
  const auto behind = std::next(at);
  const bool stays = (at == order.begin() || std::prev(at)->place < place) &&
                     (behind == order.end() || place < behind->place);
  if (stays) {
    at->place = place;
    return;
  }
  auto node = order.extract(at);
  node.value().place = place;
  at = order.insert(behind, std::move(node));
}

void AdmissionForecast::set_time(Tenant& moved, std::uint64_t time) {
  moved.charged_to = time;
  if (std::exchange(moved.time, time) == time || moved.order.empty()) return;
  if (moved.outside != moved.order.begin()) {
    move(heads_, moved.in_heads, first_place(moved));
    move(lasts_, moved.in_lasts, last_place(moved));
  }
  if (moved.outside != moved.order.end()) move(outside_, moved.in_outside, outside_place(moved));
}

bool AdmissionForecast::set_front(const std::string& tenant, std::vector<std::uint64_t> front) {
  const auto found = tenants_.find(tenant);
  if (found == tenants_.end() || found->second.front == front) return false;
  Entry& entry = *found;
  leave(entry);
  const std::size_t inside = window_size_;
  // Those between the first and the last place that has changed.
  const std::vector<std::uint64_t>& before = entry.second.front;
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(before, front).in2 - front.begin());
  const std::size_t from = std::min(same, entry.second.front_in_place);
  std::size_t same_end = 0;
  while (before.size() == front.size() && entry.second.front_in_place == before.size() &&
         before[front.size() - 1 - same_end] == front[front.size() - 1 - same_end])
    ++same_end;
  const std::size_t to = front.size() - same_end;
  Order moved;  // by arrival alone
  const auto take_out = [&](std::uint64_t arrival) {
    if (moved.contains({kBehindFront, arrival})) return;
    moved.emplace(Key{kBehindFront, arrival}, remove(entry, requests_.at(arrival).key));
  };
  std::for_each(before.begin() + from, before.end() - same_end, take_out);
  std::for_each(front.begin() + from, front.begin() + to, take_out);
  for (std::size_t i = from; i < to; ++i) {
    const auto place = moved.find({kBehindFront, front[i]});
    insert(entry, {i, front[i]}, place->second);
    moved.erase(place);
  }
  for (const auto& [key, cost] : moved) insert(entry, key, cost);
  while (window_size_ < inside) advance(entry.second);  // as many of it as before
  while (window_size_ > inside) retreat(entry.second);
  entry.second.front_in_place = front.size();
  entry.second.front = std::move(front);
  enter(entry);
  return true;
}

// --- the window ---

bool AdmissionForecast::in_window(std::uint64_t arrival) const {
  const Place& place = requests_.at(arrival);
  const Tenant& tenant = place.tenant->second;
  return tenant.outside == tenant.order.end() || place.key < tenant.outside->first;
}

void AdmissionForecast::advance(Tenant& tenant) {
  changed_.push_back(tenant.outside->first.second);
  tenant.inside_cost += tenant.outside->second;
  ++tenant.outside;
  ++window_size_;
}

void AdmissionForecast::take_in(Entry& entry) {
  leave(entry);
  advance(entry.second);
  enter(entry);
}

void AdmissionForecast::retreat(Tenant& tenant) {
  --tenant.outside;
  changed_.push_back(tenant.outside->first.second);
  tenant.inside_cost -= tenant.outside->second;
  --window_size_;
}

void AdmissionForecast::let_go(Entry& entry) {
  leave(entry);
  retreat(entry.second);
  enter(entry);
}

std::optional<std::uint64_t> AdmissionForecast::grow() {
  if (outside_.empty()) return std::nullopt;
  const std::uint64_t arrival = outside_.begin()->place.second;
  take_in(*outside_.begin()->entry);
  return arrival;
}

std::optional<std::uint64_t> AdmissionForecast::shrink() {
  if (lasts_.empty()) return std::nullopt;
  const std::uint64_t arrival = std::prev(lasts_.end())->place.second;
  let_go(*std::prev(lasts_.end())->entry);
  return arrival;
}

bool AdmissionForecast::exchange() {
  if (outside_.empty() || lasts_.empty()) return false;
  Entry &comes = *outside_.begin()->entry, &goes = *std::prev(lasts_.end())->entry;
  if (&comes == &goes) return false;  // of one tenant the first are inside
  const std::uint64_t ends = outside_.begin()->place.first + comes.second.outside->second;
  if (last_turn(goes.second) < ends) return false;
  let_go(goes);
  take_in(comes);
  return true;
}

std::vector<std::uint64_t> AdmissionForecast::take_changed() {
  std::vector<std::uint64_t> changed = std::exchange(changed_, {});
  std::erase_if(changed, [this](std::uint64_t arrival) { return !contains(arrival); });
  return changed;
}

std::vector<AdmissionForecast::Turn> AdmissionForecast::first(std::size_t most) const {
  struct Next {
    std::uint64_t turn;
    Order::const_iterator request;
    const Tenant* tenant;
    bool operator<(const Next& other) const {  // the top of a heap comes first
      return std::tie(turn, request->first.second) > std::tie(other.turn, other.request->first.second);
    }
  };
  std::vector<Turn> out;
  out.reserve(most);
  std::vector<Next> room;
  room.reserve(most);
  std::priority_queue<Next> begun({}, std::move(room));  // tenants of which the first has been taken
  auto head = heads_.begin();
  while (out.size() < most) {
    Next next{};
    const bool heads_left = head != heads_.end();
    if (heads_left) next = {head->place.first, head->entry->second.order.begin(), &head->entry->second};
    if (!begun.empty() && (!heads_left || next < begun.top())) {
      next = begun.top();
      begun.pop();
    } else if (heads_left) {
      ++head;
    } else {
      break;
    }
    const std::uint64_t ends = next.turn + next.request->second;
    out.push_back({next.request->first.second, next.turn, ends});
    next.turn = ends;
    if (++next.request != next.tenant->outside) begun.push(next);
  }
  return out;
}

AdmissionForecast::Neighbours AdmissionForecast::neighbours(std::uint64_t arrival) const {
  const Place& at = requests_.at(arrival);
  const Tenant& tenant = at.tenant->second;
  const auto place = tenant.order.find(at.key);
  Neighbours out;
  if (place != tenant.order.begin()) out.before = std::prev(place)->first.second;
  if (const auto next = std::next(place); next != tenant.outside) out.after = next->first.second;
  if (!out.before)
    out.turn = tenant.time;
  else if (!out.after)
    out.turn = last_turn(tenant);
  return out;
}

void AdmissionForecast::check_invariants() const {
  std::size_t requests = 0, inside = 0, lasts = 0, outsides = 0;
  const auto stands = [](const ByTurn& order, ByTurn::const_iterator at, const TenantPlace& place,
                         const Tenant& tenant) {
    return order.find({place, nullptr}) == at && &at->entry->second == &tenant;
  };
  const auto tenant_in = [](const Entry* entry) { return &entry->second; };
  for (const auto& [name, tenant] : tenants_) {
    LOCI_CHECK(!tenant.order.empty(), "invariant 10: a tenant has someone who waits");
    LOCI_CHECK(tenant.is_charged == (std::ranges::count(charged_, &tenant, tenant_in) == 1),
               "invariant 10: who is charged is known");
    requests += tenant.order.size();
    std::uint64_t cost = 0;
    for (auto next = tenant.order.begin(); next != tenant.outside; ++next) {
      cost += next->second;
      ++inside;
    }
    LOCI_CHECK(cost == tenant.inside_cost, "invariant 10: costs are summed");
    for (const auto& [key, its_cost] : tenant.order) {
      const auto found = requests_.find(key.second);
      LOCI_CHECK(
          found != requests_.end() && found->second.key == key && &found->second.tenant->second == &tenant,
          "invariant 10: a request knows its place");
    }
    if (tenant.outside != tenant.order.begin()) {
      ++lasts;
      LOCI_CHECK(stands(heads_, tenant.in_heads, first_place(tenant), tenant), "invariant 10: its first");
      LOCI_CHECK(stands(lasts_, tenant.in_lasts, last_place(tenant), tenant),
                 "invariant 10: its last in the window");
    }
    if (tenant.outside != tenant.order.end()) {
      ++outsides;
      LOCI_CHECK(stands(outside_, tenant.in_outside, outside_place(tenant), tenant),
                 "invariant 10: its first outside");
    }
  }
  LOCI_CHECK(requests == requests_.size() && inside == window_size_, "invariant 10: all are counted");
  LOCI_CHECK(heads_.size() == lasts && lasts_.size() == lasts && outside_.size() == outsides,
             "invariant 10: no tenant stands anywhere else");
}

}  // namespace loci
