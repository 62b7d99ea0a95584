// SPDX-License-Identifier: Apache-2.0
// Reads memory of the device and keeps nothing of it: what the second-level cache held before is gone then,
// and nothing waits to be written back, as after a fill.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

// `bytes` a multiple of 16.
void read_all(const void* from, std::uint64_t bytes, Stream& stream);

}  // namespace loci::cuda
