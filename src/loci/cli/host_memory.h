// SPDX-License-Identifier: Apache-2.0
// How much memory this process may still take, and how much of it the state's pool gets by default.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/policy/pool_split.h"

namespace loci {

struct HostMemoryReading {
  std::uint64_t available_bytes = 0;  // without swapping, within the limits of the control groups
  std::string limited_by;             // "the machine" or the control group that is narrower
};

// Reads /proc/meminfo and control groups (version 2) under `root` ("" but in tests).
// Errors: kUnavailable where the machine does not tell.
Result<HostMemoryReading> read_host_memory(const std::string& root);

// Host memory is touched page by page as it fills; a device's is the pool's alone, taken at once.
enum class PoolMemory : std::uint8_t { kHost, kDevice };

struct PoolRequest {
  std::optional<std::uint64_t> wanted_bytes;  // --device-memory
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
// fills. Errors: kInvalidArgument where not even two blocks of each group fit.
Result<PoolSize> size_pool(const PoolRequest& request);

// The host tier's size where nobody gave one: none where the pool is of the same memory, else half of what is
// available.
std::uint64_t default_host_tier(PoolMemory pool, std::uint64_t available_bytes);

}  // namespace loci
