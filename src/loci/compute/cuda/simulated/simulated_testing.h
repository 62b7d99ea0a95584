// SPDX-License-Identifier: Apache-2.0
// Launchers of simulated_test.cu. Pointers are to device memory.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

struct IntegersParams {
  int* values;
  std::uint32_t count;
};
struct FloatsParams {
  float* values;
};
struct TileParams {
  const void* a;
  const void* b;
  float* c;
};

void launch_reverse(const IntegersParams& params, bool ordered, Stream& stream,
                    std::uint32_t shared_bytes = 512);
void launch_sum_warp(const FloatsParams& params, Stream& stream);
void launch_multiply_tile(const TileParams& params, ElementType type, Stream& stream);
void launch_read_before_arrival(const FloatsParams& params, Stream& stream);
void launch_add_one(const IntegersParams& params, Stream& stream);
// For a kernel that sets values[count + i] = values[i]: it waits for the kernel before it reads, or (wrongly)
// after it has read, or (wrongly) never.
enum class Waits : std::uint8_t { kBeforeReading, kAfterReading, kNever };
void launch_copy(const IntegersParams& params, Waits waits, Stream& stream);

}  // namespace loci::cuda
