// SPDX-License-Identifier: Apache-2.0
// What a server does on slots that nobody's state is in: it warms the backend up before it is ready, and
// where costs were never measured it measures them roughly by itself, once nobody asks anything of it
// (profile_rough.h).
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

// Slots of each group's pool beside those that hold state, for measuring: a 64th of the pool, from 4 to 32.
std::uint32_t spare_slots(const std::vector<std::uint32_t>& blocks);
// The spare slots behind those.
SpareSlots spare_slots_behind(const std::vector<std::uint32_t>& blocks);

// Pays before the first request what it would pay: a full pass through a few layers (buffers of so many
// rows), a pass of one row through all of them (the weights, the output), and the memory of the first slots,
// up to a context's and kTouchedBytes. Before the engine starts.
inline constexpr std::uint64_t kTouchedBytes = std::uint64_t{128} << 20;
void warm_up(Backend& backend, const std::vector<std::uint32_t>& blocks, std::uint32_t batch_tokens,
             std::uint32_t context_tokens);

// A disk that is read and written at most so fast is believed to be no faster; 0: no limit.
CostCurves limited_costs(CostCurves costs, std::uint64_t io_limit);

struct SelfProfile {
  CostProfile profile;  // all but what is measured; its curves are those that are assumed
  std::string path;     // where it is kept; empty: nowhere
  SpareSlots slots;
  std::uint32_t batch_tokens = 512;
  std::uint32_t context_tokens = 0;
  std::uint64_t io_limit = 0;  // where there is one the disk is not measured: it is the limit's speed
};

// Measures when the engine is idle, and gives it what was found. `backend` is the engine's; both, and what
// the log writes to, must outlive the engine's threads.
void profile_when_idle(SelfProfile wanted, Backend& backend, Engine& engine,
                       std::shared_ptr<spdlog::logger> log);

}  // namespace loci
