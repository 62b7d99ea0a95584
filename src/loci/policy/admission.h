// SPDX-License-Identifier: Apache-2.0
// In which order requests that wait are admitted: fair among tenants, by an AdmissionOrder inside one.
//
// Start-time fair queuing (Goyal, Vin, Cheng, 1996) over what tenants were given, as in the virtual token
// counter of "Fairness in Serving Large Language Models" (Sheng et al., 2024, §4.1): each tenant has a
// virtual time, the tokens computed for it divided by its weight, and the one that was given least comes
// first. A tenant that had nothing here begins at the virtual time of the one that was given least, so no
// tenant saves up credit by being idle. The virtual time of a tenant that is served goes on, so no other
// waits for ever.
//
// Each active tenant has a share of the places in the batch, by its weight. A tenant below its share comes
// before one that is not, whatever their virtual times.
//
// Inside a tenant a request that was suspended comes before all that have not begun, whatever the order: its
// reply has begun, and its client waits in the middle of it. It is suspended again only for others that have
// begun or for other tenants, and every reply ends, so those that have not begun still get their turn.
//
// An order that looks at distances sees a bounded number of each tenant's earliest arrivals; later ones are
// seen as those leave. Integers alone: the same calls give the same order.
//
// Invariants, which check_invariants() tests, numbered as in engine/core/core.h:
//   7. Everyone has some weight, and nobody has credit: whoever waits gets its turn.
//   10. What waits and what has begun is counted, and weights are summed. Every account stands at its place
//       in each order, and nowhere else. The first by distances that is remembered is the first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/policy/admission_order.h"

namespace loci {

// Tokens of weight 1 in units of virtual time.
inline constexpr std::uint64_t kVirtualToken = std::uint64_t{1} << 20;

// Thread-compatible. O(log tenants) where not said otherwise; one tenant is looked up in O(1) expected.
// Tenants that have nothing here are forgotten once the others have caught up with them.
class FairQueue {
 public:
  // How far the state of a waiting request's prompt is now (WaitingRequest::distance).
  struct Distance {
    std::uint32_t value = kNowhere;
    bool is_told = false;  // distance_moved() is called when it changes; else it is asked for in each step
  };
  using DistanceOf = std::function<Distance(RequestId)>;
  // `slots`: places in the batch. First come, first served inside a tenant.
  explicit FairQueue(std::uint32_t slots);
  // `looks`: of each tenant, so many waiting requests' distances are asked for, each once in a step at most.
  FairQueue(std::uint32_t slots, std::unique_ptr<const AdmissionOrder> order, DistanceOf distance,
            std::size_t looks);

  // Makes room for so many tenants: a table that grew would move all of them in one call. O(tenants).
  void reserve(std::size_t tenants) { accounts_.reserve(tenants); }
  // It is `now` until the next call, and distances that are not told may have changed.
  void begin_step(Nanos now);
  // The distance of a request, which may have ceased to wait, has changed. O(log requests).
  void distance_moved(const std::string& tenant, std::uint64_t arrival);

  // A request waits. `arrival`: counts arrivals; unique. `weight`: at least 1; the tenant's from now on.
  // `since`: when it arrived. `begun`: it was admitted before.
  void push(const std::string& tenant, std::uint32_t weight, std::uint64_t arrival, RequestId request,
            Nanos since = 0, bool begun = false);
  void erase(const std::string& tenant, std::uint64_t arrival);
  // One more, or one fewer, of the tenant's requests runs. (Whoever goes from one to the other is pushed
  // or begun first, then erased or ended, so that the tenant stays active.)
  void begin_running(const std::string& tenant);
  void end_running(const std::string& tenant);
  // The tenant, which is active, was given so many tokens. Its virtual time, if some of its requests wait.
  std::optional<std::uint64_t> charge(const std::string& tenant, std::uint64_t tokens);

  struct Head {
    const std::string* tenant = nullptr;  // valid until the tenant's last request is gone
    RequestId request;
  };
  // The first request of each tenant that has one waiting, the next to be admitted first; at most so many.
  // O((most + slots) · log).
  std::vector<Head> heads(std::size_t most = std::numeric_limits<std::size_t>::max());
  bool empty() const { return waiting_ == 0; }
  std::size_t size() const { return waiting_; }

  // The arrivals of those of the tenant's requests that come first: those that have begun, then, where the
  // order looks at distances, those that it looks at, in their order. The others follow as they arrived.
  // Empty: all do. A distance is as it was last asked for, and asked for where it never was. O(looks · log +
  // begun).
  std::vector<std::uint64_t> front(const std::string& tenant);
  // True: the request, which waits, stands behind all that front() says of its tenant, so that front() says
  // what it said before it came. O(1).
  bool is_behind_front(const std::string& tenant, std::uint64_t arrival) const;
  // True: what front() says may change while no distance does and nobody comes or leaves.
  bool order_changes_with_time() const { return order_->changes_with_time(); }
  // The tenants of which a distance or the time since the last call has changed what front() says.
  std::set<std::string> take_moved() { return std::exchange(moved_, {}); }

  // --- of one tenant ---

  std::size_t waiting(const std::string& tenant) const;
  std::uint32_t running(const std::string& tenant) const;
  std::uint64_t virtual_time(const std::string& tenant) const;
  std::uint32_t weight(const std::string& tenant) const;
  // The last of its requests that wait and have not begun; absent: all have. O(those that began after it).
  std::optional<RequestId> newest(const std::string& tenant) const;

  // --- shares ---

  // The sum of the weights of those who wait or run, and of those who wait. O(1).
  std::uint64_t active_weight() const { return active_weight_; }
  std::uint64_t waiting_weight() const { return waiting_weight_; }
  // One more place in the batch is within its share. Everyone's share is at least one.
  bool below_slot_share(const std::string& tenant) const;
  // It has more places than its share, and more than one.
  bool above_slot_share(const std::string& tenant) const;
  // Some tenant has more than one: else none is above its share. O(1).
  bool any_runs_several() const { return running_several_ > 0; }
  // The tenant with the most that waits for its weight; the queue is not empty. O(1).
  const std::string& most_waiting() const;

  // Aborts on a broken invariant.
  void check_invariants() const;

 private:
  struct Waiting {
    RequestId request;
    Nanos since = 0;
    bool begun = false;
    Distance distance;
    bool distance_known = false;     // as it is now, if it is told
    std::uint64_t looked_at_in = 0;  // the step in which the distance was asked for; 0: never
  };
  using WaitingByArrival = std::map<std::uint64_t, Waiting>;
  struct Account {
    std::uint64_t id = 0;  // unique
    std::uint64_t virtual_time = 0;
    std::uint64_t stands_at = 0;  // in active_ or idle_: its virtual time, or an earlier one that it had
    std::uint32_t weight = 1;
    std::uint32_t running = 0;
    WaitingByArrival waiting;
    std::set<std::uint64_t> begun;  // of those that wait
    // The first by distances, found in a step (0: none is known), and whether it is the first in later ones.
    std::uint64_t first_found_in = 0;
    bool first_stays = false;
    WaitingByArrival::const_iterator first_found;
    bool active() const { return running > 0 || !waiting.empty(); }
    // Of those that wait; 0: none does.
    std::uint64_t first_arrival() const { return waiting.empty() ? 0 : waiting.begin()->first; }
  };
  // By name; nothing goes through it in its order, which is anybody's. Accounts stay where they are.
  using Accounts = std::unordered_map<std::string, Account>;
  using Entry = Accounts::value_type;
  // (Virtual time, id), and for those who wait the earliest arrival between them.
  using ByTime = std::map<std::pair<std::uint64_t, std::uint64_t>, Entry*>;
  using ByPlace = std::map<std::tuple<std::uint64_t, std::uint64_t, std::uint64_t>, Entry*>;
  // Who has more waiting for its weight comes first, then the first name.
  struct MoreWaiting {
    bool operator()(const Entry* a, const Entry* b) const;
  };

  const Account* find(const std::string& tenant) const;
  Entry& at(const std::string& tenant);
  // Where the account stands in what is ordered by it; and no more, while it changes.
  void enter(Entry& entry);
  void leave(const Entry& entry);
  void settle_first();
  void advance();
  WaitingByArrival::const_iterator first_of(Entry& entry);
  void look_at(Entry& entry);
  void ask(Waiting& waiting);
  bool below_slot_share(const Account& account, std::uint64_t active_weight) const;
  void check_first(const Account& account) const;

  std::uint32_t slots_;
  std::unique_ptr<const AdmissionOrder> order_;
  DistanceOf distance_;
  std::size_t looks_;
  Nanos now_ = 0;
  std::uint64_t step_ = 1;
  Accounts accounts_;
  // All accounts. A tenant is charged for each token: in active_ only the first one's time is always as it is
  // now, the others' may be from before, and is set right when they are the first.
  ByTime active_, idle_;
  ByPlace waiting_alone_;  // that wait, and run nothing
  // That wait, and run something, by id: as many as there are slots at most.
  std::map<std::uint64_t, Entry*> waiting_beside_;
  std::set<const Entry*, MoreWaiting> by_waiting_;  // that wait
  std::uint64_t active_weight_ = 0, waiting_weight_ = 0;
  std::size_t running_several_ = 0;  // accounts
  std::set<std::string> moved_;      // take_moved()
  std::uint64_t accounts_made_ = 0;
  std::size_t waiting_ = 0;
  std::uint64_t virtual_now_ = 0;  // of the active tenant that was given least; never goes back
};

// How `budget` is divided by weight among those who want some of it. Nobody gets more than they want; one who
// gets less than they want gets at least as much for their weight as anybody else, except for rounding. The
// first get what rounding leaves. `wanted` and `weights` are parallel; O(n log n).
std::vector<std::uint64_t> divide_fairly(std::uint64_t budget, const std::vector<std::uint64_t>& wanted,
                                         const std::vector<std::uint32_t>& weights);

}  // namespace loci
