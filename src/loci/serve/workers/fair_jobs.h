// SPDX-License-Identifier: Apache-2.0
// Jobs of many tenants, and whose is next. Pure: the time that jobs take is an argument.
//
// Example: a has 50 jobs that take 20 ms each, b brings one of 1 ms. b has used nothing, so its job is the
// next, behind the one that runs and before all of a's. Once both have used the same, they take turns, in
// time and not in jobs: for each of a's, b has twenty.
//
// Invariants:
// 1. A tenant is in `ready_` where it has a job that may run now, in `idle_` where it has none that waits or
//    runs, else in neither; it stands there under what it has used.
// 2. Whoever is in `idle_` has used more than `floor_`: others are forgotten.
// 3. `waiting_` and `running_` are the sums over all tenants.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "loci/base/clock.h"

namespace loci {

// Thread-compatible. Each call is O(log n) of the n tenants that are known, on average over calls: each
// tenant that is forgotten was added by one of them.
class FairJobs {
 public:
  using Job = std::function<void()>;
  struct Next {
    std::string tenant;
    Job job;
  };

  // One tenant runs at most `running_max` jobs at once, however many threads are idle: the next one's is
  // never behind jobs of one other tenant alone.
  explicit FairJobs(unsigned running_max) : running_max_(running_max) {}

  void add(std::string_view tenant, Job job);
  // The first job of the tenant that has used the least; of those that have used the same, the first by name.
  // Absent: there is none that may run now.
  std::optional<Next> take();
  // A job of the tenant's that take() gave has ended.
  void ended(std::string_view tenant, Nanos took);

  std::size_t waiting() const { return waiting_; }
  std::size_t waiting_of(std::string_view tenant) const;
  std::size_t tenants() const { return tenants_.size(); }  // that are known
  void check_invariants() const;

 private:
  struct Tenant {
    std::deque<Job> jobs;
    unsigned running = 0;
    Nanos used = 0;  // of the threads' time; no less than `floor_` when it begins to wait
  };
  using Tenants = std::map<std::string, Tenant, std::less<>>;
  using Order = std::set<std::pair<Nanos, std::string_view>>;  // what a tenant has used, and its name

  // The set in which the tenant belongs; null: none.
  Order* order_of(const Tenant& tenant);
  void take_out(const Tenants::value_type& tenant);
  void put_back(const Tenants::value_type& tenant);
  void forget_idle();

  unsigned running_max_;
  Tenants tenants_;  // that have jobs, or have used more than floor_
  Order ready_, idle_;
  std::size_t waiting_ = 0;
  std::size_t running_ = 0;
  Nanos floor_ = 0;  // what the tenant of the latest job had used: who was away does not catch up
};

}  // namespace loci
