// SPDX-License-Identifier: Apache-2.0
// Jobs of many tenants, and whose is next. Pure: the time that jobs take is an argument.
//
// Example: a has 50 jobs that take 20 ms each, b brings one of 1 ms. b has used nothing, so its job is the
// next, behind the one that runs and before all of a's. Once both have used the same, they take turns, in
// time and not in jobs: for each of a's, b has twenty.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/clock.h"

namespace loci {

// Thread-compatible. A job more, or the next one: O(log n) and O(n) of the n tenants that have jobs.
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
  // The first job of the tenant that has used the least. Absent: there is none that may run now.
  std::optional<Next> take();
  // A job of the tenant's that take() gave has ended.
  void ended(std::string_view tenant, Nanos took);

  std::size_t waiting() const { return waiting_; }

 private:
  struct Tenant {
    std::deque<Job> jobs;
    unsigned running = 0;
    Nanos used = 0;  // of the threads' time; no less than `floor_` when it begins to wait
  };

  unsigned running_max_;
  std::map<std::string, Tenant, std::less<>> tenants_;  // those that have jobs, or have used more than floor_
  std::size_t waiting_ = 0;
  Nanos floor_ = 0;  // what the tenant of the latest job had used: who was away does not catch up
};

}  // namespace loci
