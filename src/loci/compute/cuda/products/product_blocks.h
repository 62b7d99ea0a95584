// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels for many rows: what a block computes, how it copies packed weights, and how sums of
// its outputs (shared memory, [row][output]) are stored, added up over segments where these are spread over
// blocks.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_parts.h"

namespace loci::cuda {

// The rows and outputs that a block computes.
struct BlockWork {
  RowTile rows;
  std::uint32_t output = 0;  // the block's first output, counted in the expert
  std::uint32_t outputs = 0;
};

// A warp's share of copying packed weights: whole units of its tiles.
template <MatrixFormat F, std::uint32_t kThreads>
struct TileCopy {
  static constexpr std::uint32_t kTiles = kBigTileRows / kTileRows / (kThreads / 32);
  static constexpr std::uint32_t kChunks = unit_bytes(F) / 16;
  const std::byte* from;  // of its first tile, the lane's first chunk
  std::uint64_t tile_bytes;
  std::uint32_t there;  // how many of its tiles exist

  LOCI_DEVICE TileCopy(const std::byte* tiles, std::uint64_t bytes, std::uint32_t count) {
    const std::uint32_t first = warp_id() * kTiles;
    from = tiles + first * bytes + lane_id() * 16;
    tile_bytes = bytes;
    there = count > first ? count - first : 0;
  }
  LOCI_DEVICE void copy(std::byte* stage, std::uint32_t unit) const {
    std::byte* to = stage + warp_id() * kTiles * unit_bytes(F) + lane_id() * 16;
    const std::byte* unit_from = from + std::uint64_t{unit} * unit_bytes(F);
#pragma unroll
    for (std::uint32_t tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (std::uint32_t chunk = 0; chunk < kChunks; chunk += 32) {
        if (chunk + 32 > kChunks && chunk + lane_id() >= kChunks) continue;
        copy_async_16(to + tile * unit_bytes(F) + chunk * 16, unit_from + tile * tile_bytes + chunk * 16,
                      tile < there);
      }
    }
  }
};

// Writes the block's sums of its segment to `partials`. True in the last block of its tile to do so.
template <class Shape, std::uint32_t kRows>
LOCI_DEVICE bool leave_partial(const ProductParams& p, const BlockWork& work, std::uint32_t tile,
                               float* sums) {
  float* to = p.partials + (std::uint64_t{tile} * p.segments + blockIdx.z) * kRows * kBigTileRows;
  for (std::uint32_t i = threadIdx.x * 4; i < work.rows.count * kBigTileRows; i += Shape::kThreads * 4) {
    *reinterpret_cast<float4*>(to + i) =
        *reinterpret_cast<const float4*>(sums + i / kBigTileRows * Shape::kSumStride + i % kBigTileRows);
  }
  __threadfence();
  __syncthreads();  // all threads have written, and `sums` may be overwritten
  auto* arrived = reinterpret_cast<std::uint32_t*>(sums);
  if (threadIdx.x == 0) *arrived = atomicAdd(&p.arrivals[tile], 1u);
  __syncthreads();
  const bool last = *arrived + 1 == p.segments;
  if (last && threadIdx.x == 0) p.arrivals[tile] = 0;  // for the next launch
  __threadfence();
  __syncthreads();  // all have read `arrived`
  return last;
}

// Adds up the segments' sums of a tile, in their order, and leaves them in `sums`. One block does this while
// others have nothing left to do, so it asks for all that a few outputs need at once.
template <class Shape, std::uint32_t kRows>
LOCI_DEVICE void add_partials(const ProductParams& p, const BlockWork& work, std::uint32_t tile,
                              float* sums) {
  const float* from = p.partials + std::uint64_t{tile} * p.segments * kRows * kBigTileRows;
#pragma unroll 2
  for (std::uint32_t i = threadIdx.x * 4; i < work.rows.count * kBigTileRows; i += Shape::kThreads * 4) {
    float4 parts[kSegmentsMax];
#pragma unroll
    for (std::uint32_t s = 0; s < kSegmentsMax; ++s) {
      if (s < p.segments) parts[s] = *reinterpret_cast<const float4*>(from + s * kRows * kBigTileRows + i);
    }
    float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll
    for (std::uint32_t s = 0; s < kSegmentsMax; ++s) {
      if (s < p.segments) sum.x += parts[s].x, sum.y += parts[s].y, sum.z += parts[s].z, sum.w += parts[s].w;
    }
    *reinterpret_cast<float4*>(sums + i / kBigTileRows * Shape::kSumStride + i % kBigTileRows) = sum;
  }
  __syncthreads();
}

// Stores the outputs of the block, whose sums are in `sums`. Where segments are spread over blocks, the last
// one of a tile stores those of all.
template <class Shape, class T, std::uint32_t kRows>
LOCI_DEVICE void store_block(const ProductParams& p, const BlockWork& work, float* sums) {
  if (p.partials != nullptr) {
    const std::uint32_t tile = blockIdx.y * gridDim.x + blockIdx.x;
    if (!leave_partial<Shape, kRows>(p, work, tile, sums)) return;
    add_partials<Shape, kRows>(p, work, tile, sums);
  }
  for (std::uint32_t i = threadIdx.x; i < work.rows.count * kBigTileRows; i += Shape::kThreads) {
    const std::uint32_t row = i / kBigTileRows, o = i % kBigTileRows;
    if (o >= work.outputs) continue;
    store_sum<T>(p, work.rows.expert, work.rows.first + row, work.output + o,
                 sums[row * Shape::kSumStride + o]);
  }
}

// A block for each tile of rows and of outputs, and for each segment if these are spread.
template <class Shape, std::uint32_t kRows>
void launch_blocks(const char* name, void (*kernel)(ProductParams), const ProductParams& p, Stream& stream) {
  LaunchShape shape;
  shape.grid = {row_tiles(p, kRows), ceil_div(p.outputs, kBigTileRows),
                p.partials != nullptr ? p.segments : 1};
  shape.block = {Shape::kThreads, 1, 1};
  shape.shared_bytes = Shape::kSharedBytes;
  launch(name, kernel, shape, p, stream);
}

}  // namespace loci::cuda
