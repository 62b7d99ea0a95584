// SPDX-License-Identifier: Apache-2.0
// Runs a kernel's grid on the calling thread.
#pragma once

#include <cstdint>
#include <functional>

#include "loci/compute/cuda/runtime.h"

namespace loci::cuda::simulated {

// Calls `thread` in every thread of every block. `seed` draws the order. A kernel that breaks CUDA's rules
// (threads that wait for ones which have ended, shared memory out of bounds) aborts, naming it.
//
// `previous`, if given, runs the kernel before this one in its stream. It is called only when all threads of
// the first block wait for it (await_previous()), as if the device had begun this kernel early.
void run_grid(const char* name, const LaunchShape& shape, std::uint64_t seed,
              const std::function<void()>& thread, const std::function<void()>& previous = nullptr);

}  // namespace loci::cuda::simulated
