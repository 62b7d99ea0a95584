// SPDX-License-Identifier: Apache-2.0
// How much each tenant may keep in the store, and of whom something is deleted when it holds too much. Pure.
//
// Example: the store may hold 100; a has 70, b 40, c 10. 20 of a's are deleted, which leaves it 50 (the
// level); b and c have less than that and keep all. Had b 50, a and b would both be taken down to 45.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace loci {

// What one tenant may keep. Absent: no limit of its own.
struct StoreQuota {
  std::optional<std::uint64_t> bytes_max;
  std::optional<std::uint64_t> threads_max;  // conversations; a chain of responses is one
  friend bool operator==(const StoreQuota&, const StoreQuota&) = default;
};
// Called for each write, on the threads of the store.
using QuotaOf = std::function<StoreQuota(std::string_view tenant)>;

// What the store holds of a tenant.
struct StoreUsage {
  std::string tenant;
  std::uint64_t threads = 0;
  std::uint64_t bytes = 0;
};

// How much of a tenant's is to be deleted: as many threads and as many bytes.
struct StoreSurplus {
  std::uint64_t threads = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const StoreSurplus&, const StoreSurplus&) = default;
};

StoreSurplus surplus_over(const StoreUsage& usage, const StoreQuota& quota);

// The most that each tenant may keep so that all together keep at most `bytes_max`. A tenant that has less
// keeps all of it; one that has more is taken down to this. UINT64_MAX: all fits. O(n log n).
std::uint64_t share_level(const std::vector<StoreUsage>& usages, std::uint64_t bytes_max);

}  // namespace loci
