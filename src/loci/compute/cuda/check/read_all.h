// SPDX-License-Identifier: Apache-2.0
// Reads device memory and drops the data, to clear the second-level cache of its earlier contents. After a
// fill, in contrast, the cache would hold bytes that must be written back.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {

// `bytes` a multiple of 16.
void read_all(const void* from, std::uint64_t bytes, Stream& stream);

}  // namespace loci::cuda
