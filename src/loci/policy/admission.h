// In which order requests that wait are admitted: fair among tenants, first come, first served inside one.
//
// Start-time fair queuing (Goyal, Vin, Cheng, 1996) over what tenants were given, as in the virtual token
// counter of "Fairness in Serving Large Language Models" (Sheng et al., 2024, §4.1): each tenant has a
// virtual time, the tokens computed for it divided by its weight, and the one that is furthest behind comes
// first. A tenant that had nothing here begins at the virtual time of the one that is furthest behind, so
// nobody saves up credit by being idle; and as whoever is served moves on, nobody waits for ever.
//
// Of the places in the batch each tenant has a share by weight among those who are active. Who is below it
// comes before who is not, whatever their virtual times.
//
// A request that was suspended keeps the place inside its tenant that its arrival gave it, so it returns
// before all that came later. Integers alone: the same calls give the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "loci/base/ids.h"

namespace loci {

// Tokens of weight 1 in units of virtual time.
inline constexpr std::uint64_t kVirtualToken = std::uint64_t{1} << 20;

// Thread-compatible. O(active tenants) where not said otherwise; tenants that have nothing here are
// forgotten once the others have caught up with them.
class FairQueue {
 public:
  // `slots`: places in the batch.
  explicit FairQueue(std::uint32_t slots) : slots_(slots) {}

  // A request waits. `arrival`: counts arrivals; unique. `weight`: at least 1; the tenant's from now on.
  void push(const std::string& tenant, std::uint32_t weight, std::uint64_t arrival, RequestId request);
  void erase(const std::string& tenant, std::uint64_t arrival);
  // One more, or one fewer, of the tenant's requests runs. (Whoever goes from one to the other is pushed
  // or begun first, then erased or ended, so that the tenant stays active.)
  void begin_running(const std::string& tenant);
  void end_running(const std::string& tenant);
  // The tenant, which is active, was given so many tokens. O(log tenants).
  void charge(const std::string& tenant, std::uint64_t tokens);

  struct Head {
    const std::string* tenant = nullptr;  // valid until the tenant's last request is gone
    RequestId request;
  };
  // The first request of each tenant that has one waiting, the next to be admitted first.
  std::vector<Head> heads() const;
  bool empty() const { return waiting_ == 0; }
  std::size_t size() const { return waiting_; }

  // --- of one tenant; O(log tenants) ---

  std::size_t waiting(const std::string& tenant) const;
  std::uint32_t running(const std::string& tenant) const;
  std::uint64_t virtual_time(const std::string& tenant) const;
  std::uint32_t weight(const std::string& tenant) const;
  // The last of its requests that wait; there is one.
  RequestId newest(const std::string& tenant) const;

  // --- shares ---

  // The sum of the weights of those who wait or run.
  std::uint64_t active_weight() const;
  // One more place in the batch is within its share. Everyone's share is at least one.
  bool below_slot_share(const std::string& tenant) const;
  // It has more places than its share, and more than one.
  bool above_slot_share(const std::string& tenant) const;
  // The tenant with the most that waits for its weight; the queue is not empty.
  const std::string& most_waiting() const;

  // Aborts on a broken invariant.
  void check_invariants() const;

 private:
  struct Account {
    std::uint64_t virtual_time = 0;
    std::uint32_t weight = 1;
    std::uint32_t running = 0;
    std::map<std::uint64_t, RequestId> waiting;  // by arrival
    bool active() const { return running > 0 || !waiting.empty(); }
  };
  const Account* find(const std::string& tenant) const;
  Account& at(const std::string& tenant);
  void advance();
  bool below_slot_share(const Account& account, std::uint64_t active_weight) const;

  std::uint32_t slots_;
  std::map<std::string, Account> accounts_;
  std::size_t waiting_ = 0;
  std::uint64_t virtual_now_ = 0;  // of the active tenant that is furthest behind; never goes back
};

// How `budget` is divided by weight among those who want some of it: nobody gets more than they want, and
// whoever gets less than they want gets no less for their weight than anybody else (but for rounding).
// What rounding leaves goes to the first. `wanted` and `weights` are parallel; O(n log n).
std::vector<std::uint64_t> divide_fairly(std::uint64_t budget, const std::vector<std::uint64_t>& wanted,
                                         const std::vector<std::uint32_t>& weights);

}  // namespace loci
