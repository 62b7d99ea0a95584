// SPDX-License-Identifier: Apache-2.0
// Launchers of simt_warpgroup_test.cu: one product of a warpgroup for each form and layout that kernels
// use.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/tile_map.h"

namespace loci::cuda {

// Where a comes from, and how b lies.
enum class WarpgroupForm : std::uint8_t {
  kShared,        // a[64][64] and b[128][64] in shared memory; c[64][128] = a * b^T
  kRegisters64,   // a[64][64] as fragments, b[64][64] in shared memory; c[64][64] = a * b
  kRegisters128,  // the same with b[64][128]; c[64][128]
  kByRows64,      // a[64][64] as fragments, b[64][64] written by threads; c[64][64] = a * b^T
  kByRows128,     // the same with b[128][64]; c[64][128]
};
// Mistakes that the simulated device must find.
enum class WarpgroupFault : std::uint8_t {
  kNone,
  kNoPublish,   // operands that threads copied are not published
  kNoFence,     // begin_products() is missing
  kNoWait,      // sums are used before their wait
  kEarlyReuse,  // an operand in shared memory is written before the wait
  kEarlyTile,   // the tile's bytes are not waited for
};

struct WarpgroupTestParams {
  TileMap map;    // of b: x columns, y rows, z alternatives (1 is b)
  const void* a;  // [64][64]
  const void* b;  // what is copied as the map says, and written by threads for kByRows
  float* c;
  WarpgroupFault fault;
};
void launch_warpgroup_product(const WarpgroupTestParams& params, WarpgroupForm form, ElementType type,
                              Stream& stream);

}  // namespace loci::cuda
