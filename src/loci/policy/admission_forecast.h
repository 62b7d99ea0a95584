// SPDX-License-Identifier: Apache-2.0
// The order in which requests that wait will be admitted, as far as it can be said now, and a window: the
// first of them, as many as its owner takes in. What the window has is looked ahead to (AttentionStore §3.3).
//
// A request's turn is the virtual time (admission.h) at which its tenant gets to it: the tenant's own and
// what those before it in the tenant's order are expected to cost. Of equal turns the earlier arrival comes
// first. Places in the batch are not looked at: a tenant that has its share of them comes again as soon as
// one of its requests ends. An example, of tenants a and b at the virtual times 0 and 100:
//
//     costs     a: 60 60 60    b: 10 10
//     turns     a1 0   a2 60   b1 100   b2 110   a3 120      a window of three has a1, a2 and b1
//
// What is served costs other than was expected, so tenants' times move against each other. Who is in the
// window stays while its turn begins before the next outside would end, so that two requests whose turns are
// about the same do not take each other's place again and again.
//
// Invariants, which check_invariants() tests, numbered as in engine/core/core.h:
//   10. Of each tenant the window has the first of its order, as many as it has. Each request stands once in
//       its tenant's order, and each tenant in the three orders over tenants as it stands now. Counts and
//       sums are right.
//
// Thread-compatible; nothing iterates over what has no order. O(log requests) where not said otherwise: a
// tenant whose time moves costs O(log tenants), however many requests it has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace loci {

class AdmissionForecast {
 public:
  // Makes room for so many requests that wait, and as many tenants: a table that grew would move all of them
  // in one call. O(requests).
  void reserve(std::size_t requests);
  // A request waits. `time`: its tenant's virtual time now. `cost`: how far serving the request will move it.
  void push(const std::string& tenant, std::uint64_t time, std::uint64_t arrival, std::uint64_t cost);
  // It waits no more.
  void erase(std::uint64_t arrival);
  // The tenant's virtual time now; nothing happens where none of it waits.
  void set_time(const std::string& tenant, std::uint64_t time);
  // The same, once settle() is called: a tenant that is charged several times moves once. O(1).
  void charge(const std::string& tenant, std::uint64_t time);
  bool any_charged() const { return !charged_.empty(); }
  void settle();
  // These of the tenant's requests come first, in this order; all others behind them by arrival. All of them
  // wait. False: nothing has changed. O(places of the front that have changed · log).
  bool set_front(const std::string& tenant, std::vector<std::uint64_t> front);

  bool contains(std::uint64_t arrival) const { return requests_.contains(arrival); }
  const std::string& tenant_of(std::uint64_t arrival) const { return requests_.at(arrival).tenant->first; }
  std::size_t size() const { return requests_.size(); }

  // --- the window ---

  bool in_window(std::uint64_t arrival) const;
  std::size_t window_size() const { return window_size_; }
  // The first outside comes in; none: there is none.
  std::optional<std::uint64_t> grow();
  // The last inside goes out; none: the window is empty.
  std::optional<std::uint64_t> shrink();
  // Where the last inside begins when the first outside would have ended, or later, they change places.
  // False: they do not.
  bool exchange();
  // Requests that came into the window or left it since the last call, and are still here; some of them did
  // both.
  std::vector<std::uint64_t> take_changed();

  struct Turn {
    std::uint64_t arrival = 0;
    std::uint64_t begins = 0, ends = 0;  // in virtual time
    friend bool operator==(const Turn&, const Turn&) = default;
  };
  // The first of the window, in the order of their turns; at most so many. O(most · log).
  std::vector<Turn> first(std::size_t most) const;
  struct Neighbours {
    std::optional<std::uint64_t> before, after;  // arrivals, in its tenant's order and in the window
    std::optional<std::uint64_t> turn;  // its own begins then: of its tenant's first and last in the window
  };
  // Of a request in the window.
  Neighbours neighbours(std::uint64_t arrival) const;

  // Aborts on a broken invariant. O(requests · log).
  void check_invariants() const;

 private:
  // Where in the tenant's order: the place in its front, or behind it, and the arrival.
  using Key = std::pair<std::uint64_t, std::uint64_t>;
  static constexpr std::uint64_t kBehindFront = UINT64_MAX;
  using Order = std::map<Key, std::uint64_t>;  // costs
  struct Tenant;
  using Entry = std::pair<const std::string, Tenant>;  // of tenants_; stays where it is
  // Turn and arrival of one request of each tenant.
  using TenantPlace = std::pair<std::uint64_t, std::uint64_t>;
  struct Stand {
    mutable TenantPlace place;  // changes while the stand is in an order only to one between its neighbours'
    Entry* entry;
    friend bool operator<(const Stand& a, const Stand& b) { return a.place < b.place; }
  };
  using ByTurn = std::set<Stand>;
  struct Tenant {
    std::uint64_t time = 0;
    std::uint64_t charged_to = 0;  // its time after settle(), if it is charged
    bool is_charged = false;
    Order order;
    Order::iterator outside;  // the first that the window does not have
    std::uint64_t inside_cost = 0;
    std::vector<std::uint64_t> front;
    std::size_t front_in_place =
        0;  // the first so many have their place as key; behind an erased one others do not
    // Where it stands in the orders of the same names, if it does.
    ByTurn::iterator in_heads, in_lasts, in_outside;
  };
  using Tenants = std::unordered_map<std::string, Tenant>;  // nothing goes through it in its order
  struct Place {
    Entry* tenant;
    Key key;
  };

  static std::uint64_t last_turn(const Tenant& tenant);
  static TenantPlace first_place(const Tenant& tenant);
  static TenantPlace last_place(const Tenant& tenant);
  static TenantPlace outside_place(const Tenant& tenant);
  // Whoever has this key is none of those by which its tenant stands among the others.
  static bool is_behind(const Tenant& tenant, const Key& key) {
    return tenant.outside != tenant.order.end() && tenant.outside->first < key;
  }
  static void move(ByTurn& order, ByTurn::iterator& at, const TenantPlace& place);
  void set_time(Tenant& moved, std::uint64_t time);
  void enter(Entry& entry);
  void leave(const Entry& entry);
  void insert(Entry& entry, Key key, std::uint64_t cost);
  std::uint64_t remove(Entry& entry, Key key);
  void advance(Tenant& tenant);
  void retreat(Tenant& tenant);
  void take_in(Entry& entry);
  void let_go(Entry& entry);

  Tenants tenants_;                                    // of which some request waits
  std::unordered_map<std::uint64_t, Place> requests_;  // by arrival; never iterated
  ByTurn heads_;                                       // each tenant's first, where the window has it
  ByTurn lasts_;                 // each tenant's last in the window, where it has one there
  ByTurn outside_;               // each tenant's first outside, where it has one there
  std::vector<Entry*> charged_;  // since settle(), each once
  std::size_t window_size_ = 0;
  std::vector<std::uint64_t> changed_;
};

}  // namespace loci
