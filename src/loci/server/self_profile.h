// SPDX-License-Identifier: Apache-2.0
// What a server does on slots that hold nobody's state. Before it is ready it warms the backend up. If costs
// were never measured, it measures them roughly once no request runs (profile_rough.h).
#pragma once

#include <spdlog/logger.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "loci/compute/backend.h"
#include "loci/engine/run/engine.h"
#include "loci/server/profile/profile_file.h"
#include "loci/server/profile/profile_timing.h"

namespace loci {

// How many slots each group's pool has for measuring, beside those for state: a 64th of the pool, at least 4
// and at most 32.
std::uint32_t spare_slots(const std::vector<std::uint32_t>& blocks);
// The spare slots, which follow the slots for state in each pool.
SpareSlots spare_slots_behind(const std::vector<std::uint32_t>& blocks);

// Pays in advance for what the first request would have to wait for. It runs a full pass through a few
// layers, which allocates buffers, and a pass of one row through all layers, which reads all weights. It also
// touches the memory of the first slots, up to a context and kTouchedBytes. Call it before the engine starts.
inline constexpr std::uint64_t kTouchedBytes = std::uint64_t{128} << 20;
void warm_up(Backend& backend, const std::vector<std::uint32_t>& blocks, std::uint32_t batch_tokens,
             std::uint32_t context_tokens);

// The costs with the disk's rates limited to `io_limit` bytes a second; 0: no limit.
CostCurves limited_costs(CostCurves costs, std::uint64_t io_limit);

struct SelfProfile {
  CostProfile profile;  // complete but for the measured curves; it holds the assumed ones
  std::string path;     // where the profile is written; empty: nowhere
  SpareSlots slots;
  std::uint32_t batch_tokens = 512;
  std::uint32_t context_tokens = 0;
  bool only_disk = false;      // the rest was measured before, and stays
  std::uint64_t io_limit = 0;  // bytes a second; with a limit the disk is not measured and counts as this
                               // fast
};

// Measures when the engine is idle, and gives it the results. `backend` is the engine's. Both, and the log,
// must outlive the engine's threads.
void profile_when_idle(SelfProfile wanted, Backend& backend, Engine& engine,
                       std::shared_ptr<spdlog::logger> log);

}  // namespace loci
