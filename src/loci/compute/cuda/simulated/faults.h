// SPDX-License-Identifier: Apache-2.0
// Faults and sizes that tests choose for the simulated device. The environment variables
// LOCI_SIMULATED_LOST_AFTER, _MEMORY and _SEED choose them for a whole program.
#pragma once

#include <cstdint>
#include <string>

namespace loci::cuda::simulated {

struct Options {
  std::uint64_t memory_bytes = std::uint64_t{8} << 30;  // of the device; allocations beyond this fail
  std::uint64_t pinned_bytes = std::uint64_t{8} << 30;  // pinned memory of the host; likewise
  std::uint64_t lost_after = UINT64_MAX;                // operations that succeed; all later ones fail
  std::uint64_t seed = 1;           // draws the order of threads, and of operations that streams leave
                                    // unordered
  std::string refused_kernel{};     // launches of this kernel are refused; the device goes on
  std::uint64_t refused_after = 0;  // launches of it that succeed before
  std::uint64_t refused_times = UINT64_MAX;  // how many are refused then
  bool captures_fail = false;                // all captures are refused at their end; the device goes on
  bool capture_begins_fail = false;
  std::uint64_t library_failures = 0;  // products that the library fails next; the device goes on
  std::uint32_t devices = 1;           // that are listed; all are this one
  std::uint32_t capability = 90;
  std::uint32_t multiprocessors = 4;
};
// For devices that are opened later (one at a time). A lost device works again.
void set_options(const Options& options);

struct Counters {
  std::uint64_t operations = 0;  // operations done
  std::uint64_t kernels = 0;
  std::uint64_t graphs = 0;  // launches of graphs
  std::uint64_t copied_bytes = 0;
  std::uint64_t allocations = 0;  // of device and pinned memory; each waits for the device
  std::uint64_t opened = 0;       // devices: each has a context from then on, which takes memory
};
Counters counters();

}  // namespace loci::cuda::simulated
