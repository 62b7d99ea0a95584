// SPDX-License-Identifier: Apache-2.0
// Launchers of runtime_test.cu. Pointers are to device memory.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"

namespace loci::cuda {

struct CountParams {
  std::uint32_t* values;
  std::uint32_t count;
  std::uint32_t rounds;  // that each thread computes before it writes, to take time
};

// values[i] += 1.
void launch_count(const CountParams& params, Stream& stream);
// Writes to invalid addresses, so that the device is lost. Only for real hardware.
void launch_write_nowhere(const CountParams& params, Stream& stream);

}  // namespace loci::cuda
