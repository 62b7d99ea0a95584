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

// Wanted: as many whole blocks as fit, split over the groups (policy/pool_split.h). Otherwise half of what is
// available, as the server is a guest on the machine, but no more than four times what the most running
// requests could hold at once: a pool is touched page by page as it fills, so its size costs nothing until
// then. Of a device's memory, which is the server's alone: nine tenths of what is available.
// Errors: kInvalidArgument where not even two blocks of each group fit.
Result<PoolSize> size_pool(const PoolRequest& request);

// The host tier's size where nobody gave one: none where the pool is of the same memory, else half of what is
// available.
std::uint64_t default_host_tier(PoolMemory pool, std::uint64_t available_bytes);

}  // namespace loci
