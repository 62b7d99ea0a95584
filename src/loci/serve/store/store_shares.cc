// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_shares.h"

#include <algorithm>

namespace loci {

StoreSurplus surplus_over(const StoreUsage& usage, const StoreQuota& quota) {
  StoreSurplus surplus;
  if (quota.bytes_max) surplus.bytes = usage.bytes - std::min(usage.bytes, *quota.bytes_max);
  if (quota.threads_max) surplus.threads = usage.threads - std::min(usage.threads, *quota.threads_max);
  return surplus;
}

std::uint64_t share_level(const std::vector<StoreUsage>& usages, std::uint64_t bytes_max) {
  std::vector<std::uint64_t> sizes;
  sizes.reserve(usages.size());
  for (const StoreUsage& usage : usages) sizes.push_back(usage.bytes);
  std::sort(sizes.begin(), sizes.end());
  std::uint64_t left = bytes_max;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::uint64_t share = left / (sizes.size() - i);
    if (sizes[i] > share) return share;
    left -= sizes[i];
  }
  return UINT64_MAX;
}

}  // namespace loci
