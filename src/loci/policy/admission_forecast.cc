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

std::pair<std::uint64_t, std::uint64_t> AdmissionForecast::first_place(const Tenant& tenant) {
  return {tenant.time, tenant.order.begin()->first.second};
}

std::pair<std::uint64_t, std::uint64_t> AdmissionForecast::last_place(const Tenant& tenant) {
  return {last_turn(tenant), std::prev(tenant.outside)->first.second};
}

std::pair<std::uint64_t, std::uint64_t> AdmissionForecast::outside_place(const Tenant& tenant) {
  return {tenant.time + tenant.inside_cost, tenant.outside->first.second};
}

// Where the tenant stands among the others; and no more, while it changes.
void AdmissionForecast::enter(Tenants::iterator entry) {
  Tenant& tenant = entry->second;
  if (tenant.order.empty()) {
    tenants_.erase(entry);
    return;
  }
  if (tenant.outside != tenant.order.begin()) {
    heads_.emplace(first_place(tenant), entry);
    lasts_.emplace(last_place(tenant), entry);
  }
  if (tenant.outside != tenant.order.end()) outside_.emplace(outside_place(tenant), entry);
}

void AdmissionForecast::leave(Tenants::iterator entry) {
  Tenant& tenant = entry->second;
  if (tenant.order.empty()) return;  // it is new
  if (tenant.outside != tenant.order.begin()) {
    heads_.erase(first_place(tenant));
    lasts_.erase(last_place(tenant));
  }
  if (tenant.outside != tenant.order.end()) outside_.erase(outside_place(tenant));
}

// In the window if somebody behind it in the tenant's order is.
void AdmissionForecast::insert(Tenants::iterator entry, Key key, std::uint64_t cost) {
  Tenant& tenant = entry->second;
  const bool any_inside = tenant.outside != tenant.order.begin();
  const bool inside = any_inside && key < std::prev(tenant.outside)->first;
  const auto [place, fresh] = tenant.order.emplace(key, cost);
  LOCI_CHECK(fresh, "a request waits once");
  requests_.insert_or_assign(key.second, Place{entry, key});
  if (inside) {
    tenant.inside_cost += cost;
    ++window_size_;
    changed_.push_back(key.second);
  } else if (std::next(place) == tenant.outside) {
    tenant.outside = place;
  }
}

std::uint64_t AdmissionForecast::remove(Tenants::iterator entry, Key key) {
  Tenant& tenant = entry->second;
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

void AdmissionForecast::push(const std::string& tenant, std::uint64_t time, std::uint64_t arrival,
                             std::uint64_t cost) {
  const auto [entry, is_new] = tenants_.try_emplace(tenant);
  if (is_new) entry->second.outside = entry->second.order.end();
  leave(entry);
  entry->second.time = time;
  insert(entry, {kBehindFront, arrival}, cost);
  enter(entry);
}

void AdmissionForecast::erase(std::uint64_t arrival) {
  const Place place = requests_.at(arrival);
  leave(place.tenant);
  if (place.key.first != kBehindFront) {
    Tenant& tenant = place.tenant->second;
    const auto at = std::ranges::find(tenant.front, arrival);
    tenant.front_in_place =
        std::min(tenant.front_in_place, static_cast<std::size_t>(at - tenant.front.begin()));
    tenant.front.erase(at);
  }
  remove(place.tenant, place.key);
  enter(place.tenant);
}

void AdmissionForecast::set_time(const std::string& tenant, std::uint64_t time) {
  const auto entry = tenants_.find(tenant);
  if (entry == tenants_.end() || entry->second.time == time) return;
  Tenant& moved = entry->second;
  const std::uint64_t before = std::exchange(moved.time, time);
  // Each of its places moves by as much.
  const auto move = [&](ByTurn& order, const std::pair<std::uint64_t, std::uint64_t>& place) {
    auto node = order.extract({place.first - time + before, place.second});
    node.key() = place;
    order.insert(std::move(node));
  };
  if (moved.outside != moved.order.begin()) {
    move(heads_, first_place(moved));
    move(lasts_, last_place(moved));
  }
  if (moved.outside != moved.order.end()) move(outside_, outside_place(moved));
}

bool AdmissionForecast::set_front(const std::string& tenant, std::vector<std::uint64_t> front) {
  const auto entry = tenants_.find(tenant);
  if (entry == tenants_.end() || entry->second.front == front) return false;
  leave(entry);
  const std::size_t inside = window_size_;
  // Those between the first and the last place that has changed.
  const std::vector<std::uint64_t>& before = entry->second.front;
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(before, front).in2 - front.begin());
  const std::size_t from = std::min(same, entry->second.front_in_place);
  std::size_t same_end = 0;
  while (before.size() == front.size() && entry->second.front_in_place == before.size() &&
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
  while (window_size_ < inside) advance(entry->second);  // as many of it as before
  while (window_size_ > inside) retreat(entry->second);
  entry->second.front_in_place = front.size();
  entry->second.front = std::move(front);
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

void AdmissionForecast::take_in(Tenants::iterator entry) {
  leave(entry);
  advance(entry->second);
  enter(entry);
}

void AdmissionForecast::retreat(Tenant& tenant) {
  --tenant.outside;
  changed_.push_back(tenant.outside->first.second);
  tenant.inside_cost -= tenant.outside->second;
  --window_size_;
}

void AdmissionForecast::let_go(Tenants::iterator entry) {
  leave(entry);
  retreat(entry->second);
  enter(entry);
}

std::optional<std::uint64_t> AdmissionForecast::grow() {
  if (outside_.empty()) return std::nullopt;
  const std::uint64_t arrival = outside_.begin()->first.second;
  take_in(outside_.begin()->second);
  return arrival;
}

std::optional<std::uint64_t> AdmissionForecast::shrink() {
  if (lasts_.empty()) return std::nullopt;
  const std::uint64_t arrival = std::prev(lasts_.end())->first.second;
  let_go(std::prev(lasts_.end())->second);
  return arrival;
}

bool AdmissionForecast::exchange() {
  if (outside_.empty() || lasts_.empty()) return false;
  const auto comes = outside_.begin()->second, goes = std::prev(lasts_.end())->second;
  if (comes == goes) return false;  // of one tenant the first are inside
  const std::uint64_t ends = outside_.begin()->first.first + comes->second.outside->second;
  if (last_turn(goes->second) < ends) return false;
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
  std::priority_queue<Next> begun;  // tenants of which the first has been taken
  auto head = heads_.begin();
  while (out.size() < most) {
    Next next{};
    const bool heads_left = head != heads_.end();
    if (heads_left) next = {head->first.first, head->second->second.order.begin(), &head->second->second};
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
  const auto stands = [](const ByTurn& order, const auto& place, const auto& name) {
    const auto found = order.find(place);
    return found != order.end() && found->second->first == name;
  };
  for (const auto& [name, tenant] : tenants_) {
    LOCI_CHECK(!tenant.order.empty(), "invariant 10: a tenant has someone who waits");
    requests += tenant.order.size();
    std::uint64_t cost = 0;
    for (auto next = tenant.order.begin(); next != tenant.outside; ++next) {
      cost += next->second;
      ++inside;
    }
    LOCI_CHECK(cost == tenant.inside_cost, "invariant 10: costs are summed");
    for (const auto& [key, its_cost] : tenant.order) {
      const auto found = requests_.find(key.second);
      LOCI_CHECK(found != requests_.end() && found->second.key == key && found->second.tenant->first == name,
                 "invariant 10: a request knows its place");
    }
    if (tenant.outside != tenant.order.begin()) {
      ++lasts;
      LOCI_CHECK(stands(heads_, first_place(tenant), name), "invariant 10: its first");
      LOCI_CHECK(stands(lasts_, last_place(tenant), name), "invariant 10: its last in the window");
    }
    if (tenant.outside != tenant.order.end()) {
      ++outsides;
      LOCI_CHECK(stands(outside_, outside_place(tenant), name), "invariant 10: its first outside");
    }
  }
  LOCI_CHECK(requests == requests_.size() && inside == window_size_, "invariant 10: all are counted");
  LOCI_CHECK(heads_.size() == lasts && lasts_.size() == lasts && outside_.size() == outsides,
             "invariant 10: no tenant stands anywhere else");
}

}  // namespace loci
