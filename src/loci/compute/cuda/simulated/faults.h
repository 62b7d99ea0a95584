// SPDX-License-Identifier: Apache-2.0
// What tests may ask of the simulated device. Of a whole program: LOCI_SIMULATED_LOST_AFTER, _MEMORY and
// _SEED.
#pragma once

#include <cstdint>
#include <string>

namespace loci::cuda::simulated {

struct Options {
  std::uint64_t memory_bytes = std::uint64_t{8} << 30;  // of the device: allocations beyond fail
  std::uint64_t pinned_bytes = std::uint64_t{8} << 30;  // of the host
  std::uint64_t lost_after = UINT64_MAX;  // operations: the one after them fails, and all that follow
  std::uint64_t seed = 1;                 // draws the order of what streams leave open, and of threads
  std::string refused_kernel{};           // launches of this name are refused; the device is well
  bool captures_fail = false;             // likewise all captures, at their end
  bool capture_begins_fail = false;
  std::uint32_t capability = 90;
  std::uint32_t multiprocessors = 4;
};
// For devices that are opened from here on (one at a time). Also makes what was lost whole again.
void set_options(const Options& options);

struct Counters {
  std::uint64_t operations = 0;  // done
  std::uint64_t kernels = 0;
  std::uint64_t graphs = 0;  // launches
  std::uint64_t copied_bytes = 0;
  std::uint64_t allocations = 0;  // of device and pinned memory: each waits for the device
};
Counters counters();

}  // namespace loci::cuda::simulated
