// SPDX-License-Identifier: Apache-2.0
// How many blocks of state the device's pool holds, and how large the host tier is. Pure functions of what
// the operator asked for and of what is available; the caller has asked the machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/policy/pool_split.h"

namespace loci {

// Host memory is touched page by page as it fills; a device's is the pool's alone, taken at once.
enum class PoolMemory : std::uint8_t { kHost, kDevice };

struct PoolRequest {
  std::optional<std::uint64_t> wanted_bytes;  // as the operator asked; absent: the defaults below
  std::uint64_t available_bytes = 0;          // after the weights were loaded
  std::vector<PoolGroup> groups;
  std::uint32_t context_tokens = 0;
  std::uint32_t max_running = 0;
  PoolMemory memory = PoolMemory::kHost;
};

struct PoolSize {
  std::vector<std::uint32_t> blocks;  // by group
  std::string reason;                 // for people: where the size comes from
};

// How many blocks the pool gets, split over the groups (policy/pool_split.h). Where the operator gave a size:
// as many whole blocks as it holds. Where nobody did, on a GPU: nine tenths of the memory available, since
// the server has the GPU to itself. On a CPU: half of the memory available, since others use the machine too,
// and at most four times what all running requests can hold. Memory of the pool is taken page by page as it
// fills. Errors: kInvalidArgument naming device_memory where not even two blocks of each group fit,
// or where a size was given that holds more than kPoolSlotsMax.
Result<PoolSize> size_pool(const PoolRequest& request);

// The host tier's size where nobody gave one: none where the pool is of the same memory, else half of what is
// available.
std::uint64_t default_host_tier(PoolMemory pool, std::uint64_t available_bytes);

// Both at once.
struct PoolsRequest {
  PoolMemory memory = PoolMemory::kHost;                  // of the device's pool
  std::optional<std::uint64_t> device_bytes, host_bytes;  // as the operator asked
  std::uint64_t device_available_bytes = 0;               // of a device with memory of its own
  std::optional<std::uint64_t> host_available_bytes;      // absent: the machine does not tell
  std::vector<PoolGroup> groups;
  std::uint32_t context_tokens = 0;
  std::uint32_t max_running = 0;
};

struct PoolSizes {
  PoolSize device;
  std::uint64_t host_bytes = 0;  // of the host tier; 0: none
  std::string host_reason;       // for people; empty: the operator asked for it
};

// The host tier first: on a CPU the device's pool gets its share of what that leaves. Errors: size_pool()'s;
// kInvalidArgument naming host_memory, where it leaves nothing;
// kUnavailable naming device_memory or host_memory, where that has no size and the machine does not tell.
Result<PoolSizes> size_pools(const PoolsRequest& request);

}  // namespace loci
