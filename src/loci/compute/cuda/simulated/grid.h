// Runs a kernel's grid on the calling thread.
#pragma once

#include <cstdint>
#include <functional>

#include "loci/compute/cuda/runtime.h"

namespace loci::cuda::simulated {

// Calls `thread` in every thread of every block. `seed` draws the order. A kernel that breaks CUDA's rules
// (threads that wait for ones which have ended, shared memory out of bounds) aborts, naming it.
void run_grid(const char* name, const LaunchShape& shape, std::uint64_t seed,
              const std::function<void()>& thread);

}  // namespace loci::cuda::simulated
