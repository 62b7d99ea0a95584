// SPDX-License-Identifier: Apache-2.0
// Keeps state within its share of the machine's memory (policy/memory_share.h) while a model is served on the
// CPU. It looks once a second, and whenever the kernel reports that programs wait for memory.
#pragma once

#include <spdlog/spdlog.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/memory_pressure.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/run/engine.h"
#include "loci/policy/memory_share.h"

namespace loci {

// Thread-safe: it has a thread of its own.
class MemoryKeeper {
 public:
  // `engine` outlives it.
  MemoryKeeper(Engine& engine, std::shared_ptr<spdlog::logger> log);
  // Stops looking; the engine keeps the last limit that it was given.
  ~MemoryKeeper();

 private:
  void run();
  void look(Nanos since_last);

  Engine& engine_;
  std::shared_ptr<spdlog::logger> log_;
  std::uint64_t pool_bytes_;
  MemoryShare share_;
  MemoryPressure pressure_;
  MemoryRoom told_;
  bool short_ = false;  // what the log was told last
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// `room`, out of `pool_bytes` bytes in all pools, as a number of slots of each group's pool.
MemoryRoom room_of(const std::vector<CoreGroup>& groups, std::uint64_t pool_bytes, std::uint64_t room);

}  // namespace loci
