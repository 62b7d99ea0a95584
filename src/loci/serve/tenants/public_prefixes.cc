// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/public_prefixes.h"

#include <utility>

namespace loci {

bool PublicPrefixes::begin(const std::string& name) {
  const MutexLock lock(mutex_);
  return prefixes_.emplace(name, std::nullopt).second;
}

void PublicPrefixes::finish(NamedPrefix prefix) {
  const MutexLock lock(mutex_);
  const std::string name = prefix.name;
  prefixes_[name] = std::move(prefix);
}

void PublicPrefixes::abandon(const std::string& name) {
  const MutexLock lock(mutex_);
  prefixes_.erase(name);
}

std::optional<NamedPrefix> PublicPrefixes::take(const std::string& name) {
  const MutexLock lock(mutex_);
  const auto found = prefixes_.find(name);
  if (found == prefixes_.end() || !found->second) return std::nullopt;
  std::optional<NamedPrefix> prefix = std::move(found->second);
  prefixes_.erase(found);
  return prefix;
}

std::vector<NamedPrefix> PublicPrefixes::list() const {
  const MutexLock lock(mutex_);
  std::vector<NamedPrefix> out;
  for (const auto& [name, prefix] : prefixes_) {
    if (prefix) out.push_back(*prefix);
  }
  return out;
}

}  // namespace loci
