// SPDX-License-Identifier: Apache-2.0
// Shared by the kernels for many rows: what a block computes, and how sums of its outputs (shared memory,
// [row][output]) are stored.
#pragma once

#include <cstdint>
#include <type_traits>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_parts.h"
#include "loci/compute/cuda/products/segments.h"

namespace loci::cuda {

// The rows and outputs that a block computes.
struct BlockWork {
  RowTile rows;
  std::uint32_t output = 0;  // the block's first output, counted in the expert
  std::uint32_t outputs = 0;
};

// Stores the outputs of the block, whose sums are in `sums`. Where segments are spread over blocks, they are
// a segment's, and add_segments() stores outputs.
template <class Shape, class T, std::uint32_t kRows>
LOCI_DEVICE void store_block(const ProductParams& p, const BlockWork& work, const float* sums) {
  const StoreFour<T> store(p);
  float* partial = nullptr;
  if (p.partials != nullptr) {
    const std::uint64_t tile = blockIdx.y * gridDim.x + blockIdx.x;
    partial = p.partials + (tile * p.segments + blockIdx.z) * kRows * Shape::kOutputs;
  }
  for (std::uint32_t i = threadIdx.x * 4; i < work.rows.count * Shape::kOutputs; i += Shape::kThreads * 4) {
    const std::uint32_t row = i / Shape::kOutputs, o = i % Shape::kOutputs;
    if (o >= work.outputs) continue;
    const float4 four = *reinterpret_cast<const float4*>(sums + row * Shape::kSumStride + o);
    if (partial != nullptr) {
      *reinterpret_cast<float4*>(partial + i) = four;
    } else {
      store(work.rows.expert, work.rows.first + row, work.output + o, min(4u, work.outputs - o), four);
    }
  }
}

// A block for each tile of rows and of outputs, and for each segment if these are spread.
template <class Shape, class T, std::uint32_t kRows>
void launch_blocks(const char* name, void (*kernel)(ProductParams), const ProductParams& p, Stream& stream) {
  LaunchShape shape;
  shape.grid = {p.tiles > 0 ? p.tiles : row_tiles(p, kRows), ceil_div(p.outputs, Shape::kOutputs),
                p.partials != nullptr ? p.segments : 1};
  shape.block = {Shape::kThreads, 1, 1};
  shape.shared_bytes = Shape::kSharedBytes;
  launch(name, kernel, shape, p, stream);
  if (p.partials == nullptr) return;
  constexpr ElementType kType = std::is_same_v<T, Half> ? ElementType::kHalf : ElementType::kBFloat16;
  add_segments({p, kRows, Shape::kOutputs, shape.grid.x}, kType, stream);
}

}  // namespace loci::cuda
