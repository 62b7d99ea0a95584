// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/products/segments.h"

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_parts.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;

// Grid: (tiles, pieces of a tile). A thread has four neighbouring outputs of a row; it asks for all segments'
// before it uses one.
template <class T>
__global__ void __launch_bounds__(kThreads) add_up(SegmentsParams all) {
  follow_previous();
  const ProductParams& p = all.p;
  const std::uint32_t size = all.tile_rows * all.tile_outputs;
  const std::uint32_t at = (blockIdx.y * kThreads + threadIdx.x) * 4;
  if (at >= size) return;
  const std::uint32_t row =
      (p.first_tile + blockIdx.x % all.row_tiles) * all.tile_rows + at / all.tile_outputs;
  const std::uint32_t output = blockIdx.x / all.row_tiles * all.tile_outputs + at % all.tile_outputs;
  if (row >= p.rows || output >= p.outputs) return;
  const float* from = p.partials + std::uint64_t{blockIdx.x} * p.segments * size + at;
  float4 parts[kSegmentsMax];
#pragma unroll
  for (std::uint32_t s = 0; s < kSegmentsMax; ++s) {
    if (s < p.segments) parts[s] = *reinterpret_cast<const float4*>(from + s * size);
  }
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
  for (std::uint32_t s = 0; s < kSegmentsMax; ++s) {
    if (s < p.segments) sum.x += parts[s].x, sum.y += parts[s].y, sum.z += parts[s].z, sum.w += parts[s].w;
  }
  const StoreFour<T> store(p);
  store(0, row, output, min(4u, p.outputs - output), sum);
}

}  // namespace

void add_segments(const SegmentsParams& params, ElementType type, Stream& stream) {
  const std::uint32_t tiles = params.row_tiles * ceil_div(params.p.outputs, params.tile_outputs);
  launch("add_segments", type == ElementType::kHalf ? add_up<Half> : add_up<BFloat16>,
         {.grid = {tiles, ceil_div(params.tile_rows * params.tile_outputs, 4 * kThreads)},
          .block = {kThreads},
          .shared_bytes = 0},
         params, stream);
}

}  // namespace loci::cuda
