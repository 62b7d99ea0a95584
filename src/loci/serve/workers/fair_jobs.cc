// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/workers/fair_jobs.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {

void FairJobs::add(std::string_view name, Job job) {
  auto found = tenants_.find(name);
  if (found == tenants_.end()) found = tenants_.emplace(std::string(name), Tenant()).first;
  Tenant& tenant = found->second;
  if (tenant.jobs.empty() && tenant.running == 0) tenant.used = std::max(tenant.used, floor_);
  tenant.jobs.push_back(std::move(job));
  ++waiting_;
}

std::optional<FairJobs::Next> FairJobs::take() {
  auto least = tenants_.end();
  for (auto one = tenants_.begin(); one != tenants_.end(); ++one) {
    if (one->second.jobs.empty() || one->second.running >= running_max_) continue;
    if (least == tenants_.end() || one->second.used < least->second.used) least = one;
  }
  if (least == tenants_.end()) return std::nullopt;
  Tenant& tenant = least->second;
  Next next{.tenant = least->first, .job = std::move(tenant.jobs.front())};
  tenant.jobs.pop_front();
  ++tenant.running;
  --waiting_;
  floor_ = std::max(floor_, tenant.used);
  // Who is idle and ahead of nobody is forgotten.
  std::erase_if(tenants_, [this](const auto& one) {
    return one.second.jobs.empty() && one.second.running == 0 && one.second.used <= floor_;
  });
  return next;
}

void FairJobs::ended(std::string_view name, Nanos took) {
  const auto found = tenants_.find(name);
  LOCI_CHECK(found != tenants_.end() && found->second.running > 0, "only what was taken ends");
  --found->second.running;
  found->second.used += took;
}

}  // namespace loci
