// SPDX-License-Identifier: Apache-2.0
// Products of many rows on tensor cores. A block multiplies 128 outputs with kRows rows: weights and
// activations of a unit of columns (64 or 128) are copied to shared memory, kStages units in flight; four
// warps share the outputs (32 each), and with 128 rows two share the rows. Packed weights stay packed in
// shared memory and are decoded in registers by the warp that multiplies with them, once for its 64 rows.
//
// Shared memory. A panel holds 32 columns of rows of 64 bytes; a fragment is 16 bytes of a row a lane, so
// that 8 lanes read two whole rows: no bank conflicts. Panels are 64 bytes longer than their rows: 8 lanes
// that write 64 columns of one row meet no conflict either.
//
// Segments. A block computes one segment after the other and adds up their sums. If there would be too few
// blocks for the GPU, each segment has a block of its own, and another kernel adds them up in order
// (segments.h).
//
// Grid: (tiles of rows, tiles of outputs, 1 or segments). Blocks that run at the same time share weights,
// which are read from memory once, and the activations of all rows, which stay in the second-level cache.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/few_rows.h"
#include "loci/compute/cuda/products/product_blocks.h"

namespace loci::cuda {

// Shared memory of a block, in bytes.
template <MatrixFormat F, std::uint32_t kRows>
struct ManyRowsShape {
  static constexpr std::uint32_t kOutputs = kBigTileRows;
  static constexpr std::uint32_t kColumns = unit_columns(F);
  static constexpr std::uint32_t kPanels = kColumns / kBlockColumns;
  static constexpr std::uint32_t kThreads = kRows == 128 ? 256 : 128;
  static constexpr std::uint32_t kWarpRows = kRows < 64 ? kRows : 64;
  static constexpr std::uint32_t kBlocks = kRows == 128  ? 1
                                           : kRows == 64 ? 2
                                                         : 3;  // blocks of a multiprocessor, at least
  static constexpr std::uint32_t panel_bytes(std::uint32_t rows) { return rows * 64 + 64; }
  static constexpr std::uint32_t kWeightBytes =
      is_packed(F) ? kBigTileRows / kTileRows * unit_bytes(F) : kPanels * panel_bytes(kBigTileRows);
  static constexpr std::uint32_t kStageBytes = kWeightBytes + kPanels * panel_bytes(kRows);
  // Two blocks of 64 rows fit a multiprocessor of an A100, one block of 128 rows that of an L40S.
  static constexpr std::uint32_t kBudget = kRows == 128 ? 99 * 1024 : 80 * 1024;
  static constexpr std::uint32_t kStages = kBudget / kStageBytes < 4 ? kBudget / kStageBytes : 4;
  // Sums in shared memory before they are stored: [row][output]; neighbouring rows are 4 banks apart.
  static constexpr std::uint32_t kSumStride = kBigTileRows + 4;
  static constexpr std::uint32_t kSumBytes = kRows * kSumStride * 4;
  static constexpr std::uint32_t kSharedBytes =
      kStages * kStageBytes > kSumBytes ? kStages* kStageBytes : kSumBytes;
  static_assert(kStages >= 2 && kSharedBytes <= 99 * 1024);
};

// Offset of chunk number `chunk` (16 bytes, 8 columns) of a row in panels of `rows` rows.
LOCI_HOST_DEVICE std::uint32_t panel_place(std::uint32_t rows, std::uint32_t row, std::uint32_t chunk) {
  return chunk / 4 * (rows * 64 + 64) + row * 64 + chunk % 4 * 16;
}

// A thread's share of copying rows of 16-bit values to panels: one chunk of 8 columns of every kStepRows-th
// row. Missing rows, and columns beyond the matrix, become zeros.
template <class T, std::uint32_t kColumns, std::uint32_t kThreads, std::uint32_t kRows>
struct PanelCopy {
  static constexpr std::uint32_t kChunks = kColumns / 8;
  static constexpr std::uint32_t kStepRows = kThreads / kChunks;
  static constexpr std::uint32_t kSteps = kRows / kStepRows;
  static_assert(kThreads % kChunks == 0 && kRows % kStepRows == 0);
  const T* from;        // of the first row, column 0 of its chunk
  std::uint64_t step;   // elements between its rows
  std::uint32_t there;  // bit i is set if its row i exists

  LOCI_DEVICE PanelCopy(const T* rows, std::uint64_t stride, std::uint32_t count) {
    const std::uint32_t row = threadIdx.x / kChunks;
    from = rows + row * stride + threadIdx.x % kChunks * 8;
    step = kStepRows * stride;
    there = 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kSteps; ++i) there |= row + i * kStepRows < count ? 1u << i : 0u;
  }
  LOCI_DEVICE void copy(std::byte* panels, std::uint32_t first_column, std::uint32_t columns) const {
    const std::uint32_t chunk = threadIdx.x % kChunks;
    std::byte* to = panels + panel_place(kRows, threadIdx.x / kChunks, chunk);
    const std::uint32_t valid = first_column + chunk * 8 < columns ? there : 0;
#pragma unroll
    for (std::uint32_t i = 0; i < kSteps; ++i) {
      copy_async_16(to + i * kStepRows * 64, from + first_column + i * step, (valid >> i & 1) != 0);
    }
  }
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

template <MatrixFormat F, class T, std::uint32_t kRows>
struct StageCopy {
  using Shape = ManyRowsShape<F, kRows>;
  PanelCopy<T, Shape::kColumns, Shape::kThreads, kRows> input;
  TileCopy<F, Shape::kThreads> weights;

  LOCI_DEVICE StageCopy(const ProductParams& p, const BlockWork& work)
      : input(static_cast<const T*>(p.input) + std::uint64_t{work.rows.first} * p.input_stride,
              p.input_stride, work.rows.count),
        weights(p.weights +
                    (std::uint64_t{work.rows.expert} * p.outputs + work.output) / kTileRows * p.tile_bytes,
                p.tile_bytes, (work.outputs + kTileRows - 1) / kTileRows) {}
  LOCI_DEVICE void copy(const ProductParams& p, std::uint32_t unit, std::byte* stage) const {
    weights.copy(stage, unit);
    input.copy(stage + Shape::kWeightBytes, unit * Shape::kColumns, p.columns);
  }
};
template <class T, std::uint32_t kRows>
struct PlainStageCopy {
  using Shape = ManyRowsShape<MatrixFormat::kHalf, kRows>;
  PanelCopy<T, Shape::kColumns, Shape::kThreads, kRows> input;
  PanelCopy<T, Shape::kColumns, Shape::kThreads, kBigTileRows> weights;

  LOCI_DEVICE PlainStageCopy(const ProductParams& p, const BlockWork& work)
      : input(static_cast<const T*>(p.input) + std::uint64_t{work.rows.first} * p.input_stride,
              p.input_stride, work.rows.count),
        weights(reinterpret_cast<const T*>(p.weights) +
                    (std::uint64_t{work.rows.expert} * p.outputs + work.output) * p.columns,
                p.columns, work.outputs) {}
  LOCI_DEVICE void copy(const ProductParams& p, std::uint32_t unit, std::byte* stage) const {
    weights.copy(stage, unit * Shape::kColumns, p.columns);
    input.copy(stage + Shape::kWeightBytes, unit * Shape::kColumns, p.columns);
  }
};

// The weights of a warp's tile of 16 outputs, from shared memory.
template <MatrixFormat F, class T>
struct StagedWeights {
  PackedUnit<F> unit;
  LOCI_DEVICE void load(const std::byte* stage, std::uint32_t tile) {
    unit.load(stage + tile * unit_bytes(F), lane_id(), read_shared);
  }
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const { unit.template fragments<T>(block, to); }
};
// Tensor cores take four registers that alternate between two rows, while four loaded registers belong to one
// row. The compiler would move them before each product (4 moves a product). An operation that it cannot
// analyse makes it move them once.
LOCI_DEVICE void keep_in_order(std::uint32_t nothing, BlockFragments& fragments) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    fragments.first[i] ^= nothing;
    fragments.second[i] ^= nothing;
  }
}

template <class T>
struct StagedPlainWeights {
  PlainUnit<2> unit;
  LOCI_DEVICE void load(const std::byte* stage, std::uint32_t tile) {
    const std::uint32_t row = tile * kTileRows + lane_id() / 4, t = lane_id() % 4;
#pragma unroll
    for (std::uint32_t block = 0; block < 2; ++block) {
      unit.rows[block][0] = read_shared(stage + panel_place(kBigTileRows, row, block * 4 + t));
      unit.rows[block][1] = read_shared(stage + panel_place(kBigTileRows, row + 8, block * 4 + t));
    }
  }
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const {
    unit.fragments(block, to);
    keep_in_order(blockDim.z - 1, to);  // 0, but the compiler does not know it
  }
};
template <MatrixFormat F, class T, std::uint32_t kRows>
struct Staged {
  using Weights = StagedWeights<F, T>;
  using Copy = StageCopy<F, T, kRows>;
};
template <class T, std::uint32_t kRows>
struct Staged<MatrixFormat::kHalf, T, kRows> {
  using Weights = StagedPlainWeights<T>;
  using Copy = PlainStageCopy<T, kRows>;
};
template <class T, std::uint32_t kRows>
struct Staged<MatrixFormat::kBFloat16, T, kRows> {
  using Weights = StagedPlainWeights<T>;
  using Copy = PlainStageCopy<T, kRows>;
};

// A warp's sums: [tile of 16 outputs][8 rows][fragment].
template <std::uint32_t kWarpRows>
struct WarpSums {
  static constexpr int kRowTiles = kWarpRows / 8;
  float at[2][kRowTiles][4];
  LOCI_DEVICE void clear() {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) at[m][n][0] = at[m][n][1] = at[m][n][2] = at[m][n][3] = 0;
    }
  }
  LOCI_DEVICE void add(const WarpSums& other) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
      for (int n = 0; n < kRowTiles; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) at[m][n][i] += other.at[m][n][i];
      }
    }
  }
};

// Adds the products of one staged unit. Missing rows are zeros and are multiplied too: a branch would keep
// the compiler from mixing loads and products of neighbouring rows.
template <MatrixFormat F, class T, std::uint32_t kRows>
LOCI_DEVICE void multiply_stage(const std::byte* stage, std::uint32_t first_row,
                                WarpSums<ManyRowsShape<F, kRows>::kWarpRows>& sums) {
  using Shape = ManyRowsShape<F, kRows>;
  const std::uint32_t g = lane_id() / 4, t = lane_id() % 4;
  typename Staged<F, T, kRows>::Weights weights[2];
  weights[0].load(stage, warp_id() % 4 * 2);
  weights[1].load(stage, warp_id() % 4 * 2 + 1);
#pragma unroll
  for (int block = 0; block < static_cast<int>(Shape::kPanels); ++block) {
    BlockFragments fragments[2];
    weights[0].fragments(block, fragments[0]);
    weights[1].fragments(block, fragments[1]);
#pragma unroll
    for (int n = 0; n < WarpSums<Shape::kWarpRows>::kRowTiles; ++n) {
      const std::uint32_t row = first_row + static_cast<std::uint32_t>(n) * 8 + g;
      const uint4 input = read_shared(stage + Shape::kWeightBytes +
                                      panel_place(kRows, row, static_cast<std::uint32_t>(block) * 4 + t));
      const std::uint32_t first[2] = {input.x, input.y}, second[2] = {input.z, input.w};
#pragma unroll
      for (int m = 0; m < 2; ++m) mma_16x8x16<T>(sums.at[m][n], fragments[m].first, first);
#pragma unroll
      for (int m = 0; m < 2; ++m) mma_16x8x16<T>(sums.at[m][n], fragments[m].second, second);
    }
  }
}

// Sums of segments [first, last), each added to `total` when it is complete.
template <MatrixFormat F, class T, std::uint32_t kRows>
LOCI_DEVICE void sum_segments(const ProductParams& p, const BlockWork& work, std::uint32_t first,
                              std::uint32_t last, WarpSums<ManyRowsShape<F, kRows>::kWarpRows>& total) {
  using Shape = ManyRowsShape<F, kRows>;
  auto* shared = shared_memory<std::byte>();
  const std::uint32_t begin = segment_begin(p, first) / Shape::kColumns;
  const std::uint32_t end = segment_begin(p, last) / Shape::kColumns;
  const std::uint32_t first_row = warp_id() / 4 * Shape::kWarpRows;
  const typename Staged<F, T, kRows>::Copy copy(p, work);
  WarpSums<Shape::kWarpRows> sums;
  sums.clear();
  total.clear();
#pragma unroll
  for (std::uint32_t s = 0; s + 1 < Shape::kStages; ++s) {
    if (begin + s < end) copy.copy(p, begin + s, shared + s * Shape::kStageBytes);
    copy_async_commit();
  }
  std::uint32_t segment = first;
  std::uint32_t segment_end = segment_begin(p, first + 1) / Shape::kColumns;
  std::uint32_t reading = 0, writing = Shape::kStages - 1;  // stages
  for (std::uint32_t unit = begin; unit < end; ++unit) {
    copy_async_wait<Shape::kStages - 2>();
    __syncthreads();  // the unit has arrived for all threads, and all are done with the stage that is
                      // overwritten next
    const std::uint32_t next = unit + Shape::kStages - 1;
    if (next < end) copy.copy(p, next, shared + writing * Shape::kStageBytes);
    copy_async_commit();
    if (first_row < work.rows.count) {
      multiply_stage<F, T, kRows>(shared + reading * Shape::kStageBytes, first_row, sums);
    }
    reading = reading + 1 == Shape::kStages ? 0 : reading + 1;
    writing = writing + 1 == Shape::kStages ? 0 : writing + 1;
    if (unit + 1 == segment_end) {
      total.add(sums);
      sums.clear();
      ++segment;
      segment_end = segment_begin(p, min(segment + 1, last)) / Shape::kColumns;
    }
  }
  copy_async_wait<0>();
  __syncthreads();
}

// Writes the lanes' sums to shared memory as [row][output] of the block.
template <std::uint32_t kWarpRows, std::uint32_t kStride>
LOCI_DEVICE void place_sums(const WarpSums<kWarpRows>& sums, float* to) {
  const std::uint32_t g = lane_id() / 4, t = lane_id() % 4;
#pragma unroll
  for (int n = 0; n < WarpSums<kWarpRows>::kRowTiles; ++n) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const std::uint32_t row = warp_id() / 4 * kWarpRows + static_cast<std::uint32_t>(n) * 8 + 2 * t;
      const std::uint32_t output = warp_id() % 4 * 32 + static_cast<std::uint32_t>(m) * 16 + g;
      to[row * kStride + output] = sums.at[m][n][0];
      to[(row + 1) * kStride + output] = sums.at[m][n][1];
      to[row * kStride + output + 8] = sums.at[m][n][2];
      to[(row + 1) * kStride + output + 8] = sums.at[m][n][3];
    }
  }
  __syncthreads();
}

template <MatrixFormat F, class T, std::uint32_t kRows>
__global__ void __launch_bounds__((ManyRowsShape<F, kRows>::kThreads), (ManyRowsShape<F, kRows>::kBlocks))
    many_rows(ProductParams p) {
  follow_previous();
  using Shape = ManyRowsShape<F, kRows>;
  BlockWork work;
  work.rows = find_rows(p, kRows, blockIdx.x);
  if (work.rows.count == 0) return;
  work.output = blockIdx.y * kBigTileRows;
  work.outputs = min(kBigTileRows, p.outputs - work.output);
  const bool spread = p.partials != nullptr;
  const std::uint32_t first = spread ? blockIdx.z : 0;
  auto* sums = shared_memory<float>();
  {
    WarpSums<Shape::kWarpRows> total;
    sum_segments<F, T, kRows>(p, work, first, spread ? first + 1 : p.segments, total);
    place_sums<Shape::kWarpRows, Shape::kSumStride>(total, sums);
  }
  store_block<Shape, T, kRows>(p, work, sums);
}

template <MatrixFormat F, class T, std::uint32_t kRows>
void launch_many_rows(const ProductParams& p, Stream& stream) {
  launch_blocks<ManyRowsShape<F, kRows>, T, kRows>("many_rows", many_rows<F, T, kRows>, p, stream);
}

}  // namespace loci::cuda
