// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/workers/fair_jobs.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {

FairJobs::Order* FairJobs::order_of(const Tenant& tenant) {
  if (!tenant.jobs.empty()) return tenant.running < running_max_ ? &ready_ : nullptr;
  return tenant.running == 0 ? &idle_ : nullptr;
}

void FairJobs::take_out(const Tenants::value_type& tenant) {
  if (Order* order = order_of(tenant.second)) order->erase({tenant.second.used, tenant.first});
}

void FairJobs::put_back(const Tenants::value_type& tenant) {
  if (Order* order = order_of(tenant.second)) order->emplace(tenant.second.used, tenant.first);
}

void FairJobs::add(std::string_view name, Job job) {
  auto found = tenants_.find(name);
  if (found == tenants_.end())
    found = tenants_.emplace(std::string(name), Tenant()).first;
  else
    take_out(*found);
  Tenant& tenant = found->second;
  if (tenant.jobs.empty() && tenant.running == 0) tenant.used = std::max(tenant.used, floor_);
  tenant.jobs.push_back(std::move(job));
  ++waiting_;
  put_back(*found);
}

std::optional<FairJobs::Next> FairJobs::take() {
  if (ready_.empty()) return std::nullopt;
  const auto least = tenants_.find(ready_.begin()->second);
  take_out(*least);
  Tenant& tenant = least->second;
  Next next{.tenant = least->first, .job = std::move(tenant.jobs.front())};
  tenant.jobs.pop_front();
  ++tenant.running;
  --waiting_;
  ++running_;
  put_back(*least);
  floor_ = std::max(floor_, tenant.used);
  forget_idle();
  return next;
}

void FairJobs::ended(std::string_view name, Nanos took) {
  const auto found = tenants_.find(name);
  LOCI_CHECK(found != tenants_.end() && found->second.running > 0, "only what was taken ends");
  take_out(*found);
  --found->second.running;
  --running_;
  found->second.used += took;
  put_back(*found);
  forget_idle();
}

std::size_t FairJobs::waiting_of(std::string_view name) const {
  const auto found = tenants_.find(name);
  return found == tenants_.end() ? 0 : found->second.jobs.size();
}

// Who is idle and ahead of nobody is forgotten.
void FairJobs::forget_idle() {
  while (!idle_.empty() && idle_.begin()->first <= floor_) {
    const auto gone = tenants_.find(idle_.begin()->second);
    idle_.erase(idle_.begin());
    tenants_.erase(gone);
  }
}

void FairJobs::check_invariants() const {
  std::size_t ready = 0, idle = 0, waiting = 0, running = 0;
  for (const auto& [name, tenant] : tenants_) {
    const bool may_run = !tenant.jobs.empty() && tenant.running < running_max_;
    const bool rests = tenant.jobs.empty() && tenant.running == 0;
    LOCI_CHECK(ready_.contains({tenant.used, name}) == may_run, "who may run is ready");        // 1
    LOCI_CHECK(idle_.contains({tenant.used, name}) == rests, "who has nothing to do is idle");  // 1
    ready += may_run ? 1 : 0;
    idle += rests ? 1 : 0;
    waiting += tenant.jobs.size();
    running += tenant.running;
  }
  LOCI_CHECK(ready == ready_.size() && idle == idle_.size(), "each is in its order once");            // 1
  LOCI_CHECK(idle_.empty() || idle_.begin()->first > floor_, "who is ahead of nobody is forgotten");  // 2
  LOCI_CHECK(waiting == waiting_ && running == running_, "the sums are what tenants have");           // 3
}

}  // namespace loci
