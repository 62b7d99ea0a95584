// Products of up to 8 rows: at the memory's rate. A warp multiplies 16 outputs with one segment of the
// columns; weights come from memory to registers 16 bytes a lane, kDepth units ahead of their use, each used
// once. The activations' 8 rows are the second operand (absent ones are zeros): they are small and found in
// the first-level cache. Warps of one tile leave their sums in shared memory, where they are added in order.
//
// A block is 8 warps: 8 / segments tiles. Grid: (tiles, tiles of rows).
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_parts.h"

namespace loci::cuda {

inline constexpr std::uint32_t kFewRowsWarps = 8;

// What a lane holds of a unit: weights of its two rows, and activations.
template <MatrixFormat F, class T>
struct FewRowsUnit {
  static constexpr std::uint32_t kColumns = unit_columns(F);
  static constexpr int kBlocks = kColumns / kBlockColumns;
  PackedUnit<F> weights;
  uint4 input[kBlocks];

  LOCI_DEVICE void load_weights(const ProductParams& p, std::uint32_t tile, std::uint32_t,
                                std::uint32_t unit) {
    weights.load(p.weights + tile * p.tile_bytes + std::uint64_t{unit} * unit_bytes(F), lane_id(), read_once);
  }
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const {
    weights.template fragments<T>(block, to);
  }
};

template <class T>
struct FewRowsPlainUnit {
  static constexpr std::uint32_t kColumns = 64;
  static constexpr int kBlocks = 2;
  PlainUnit weights;
  uint4 input[kBlocks];

  // `first`: output of the tile's first row; rows and columns beyond the matrix are zeros.
  LOCI_DEVICE void load_weights(const ProductParams& p, std::uint32_t tile, std::uint32_t rows_left,
                                std::uint32_t unit) {
    const std::uint32_t g = lane_id() / 4, t = lane_id() % 4;
    const T* from = reinterpret_cast<const T*>(p.weights);
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      const std::uint32_t column = unit * kColumns + block * kBlockColumns + t * 8;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::uint32_t row = g + 8 * half;
        const bool there = row < rows_left && column < p.columns;
        const T* at = from + (std::uint64_t{tile} + row) * p.columns + column;
        weights.rows[block][half] =
            there ? read_once(reinterpret_cast<const std::byte*>(at)) : make_uint4(0, 0, 0, 0);
      }
    }
  }
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const { weights.fragments(block, to); }
};

template <MatrixFormat F, class T>
struct FewRowsUnitOf {
  using Type = FewRowsUnit<F, T>;
  static constexpr int kDepth = F == MatrixFormat::kQ8_0 ? 4 : 3;
};
template <class T>
struct FewRowsUnitOf<MatrixFormat::kHalf, T> {
  using Type = FewRowsPlainUnit<T>;
  static constexpr int kDepth = 4;
};
template <class T>
struct FewRowsUnitOf<MatrixFormat::kBFloat16, T> {
  using Type = FewRowsPlainUnit<T>;
  static constexpr int kDepth = 4;
};

// The lane's activations of a unit: row g of the tile, 8 columns of each block.
template <class T, int kBlocks>
LOCI_DEVICE void load_input(const ProductParams& p, const RowTile& rows, std::uint32_t first_column,
                            uint4 (&input)[kBlocks]) {
  const std::uint32_t g = lane_id() / 4, t = lane_id() % 4;
  const T* from = static_cast<const T*>(p.input) + std::uint64_t{rows.first + g} * p.input_stride;
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    const std::uint32_t column = first_column + block * kBlockColumns + t * 8;
    const bool there = g < rows.count && column < p.columns;
    input[block] = there ? *reinterpret_cast<const uint4*>(from + column) : make_uint4(0, 0, 0, 0);
  }
}

// One warp's sums of 16 outputs and 8 rows over [begin, end) units: lane 4 g + t has outputs g, g + 8 of rows
// 2 t, 2 t + 1.
template <MatrixFormat F, class T>
LOCI_DEVICE void sum_segment(const ProductParams& p, const RowTile& rows, std::uint32_t tile,
                             std::uint32_t rows_left, std::uint32_t begin, std::uint32_t end,
                             float (&sums)[4]) {
  using Unit = typename FewRowsUnitOf<F, T>::Type;
  constexpr int kDepth = FewRowsUnitOf<F, T>::kDepth;
  Unit units[kDepth];
#pragma unroll
  for (int d = 0; d < kDepth; ++d) {
    if (begin + d < end) {
      units[d].load_weights(p, tile, rows_left, begin + d);
      load_input<T>(p, rows, (begin + d) * Unit::kColumns, units[d].input);
    }
  }
  for (std::uint32_t base = begin; base < end; base += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      const std::uint32_t unit = base + d;
      if (unit >= end) continue;
#pragma unroll
      for (int block = 0; block < Unit::kBlocks; ++block) {
        BlockFragments weights;
        units[d].fragments(block, weights);
        const uint4 input = units[d].input[block];
        const std::uint32_t first[2] = {input.x, input.y}, second[2] = {input.z, input.w};
        mma_16x8x16<T>(sums, weights.first, first);
        mma_16x8x16<T>(sums, weights.second, second);
      }
      if (unit + kDepth < end) {
        units[d].load_weights(p, tile, rows_left, unit + kDepth);
        load_input<T>(p, rows, (unit + kDepth) * Unit::kColumns, units[d].input);
      }
    }
  }
}

template <MatrixFormat F, class T>
__global__ void __launch_bounds__(kFewRowsWarps * 32, 2) few_rows(ProductParams p) {
  constexpr std::uint32_t kColumns = FewRowsUnitOf<F, T>::Type::kColumns;
  constexpr std::uint32_t kTileSums = kTileRows * kFewRows;
  auto* sums_of_warps = shared_memory<float>();  // [warp][row][output]
  const RowTile rows = find_rows(p, kFewRows, blockIdx.y);
  if (rows.count == 0) return;
  const std::uint32_t tiles_each = kFewRowsWarps / p.segments;
  const std::uint32_t tile = blockIdx.x * tiles_each + warp_id() / p.segments;  // of the expert
  const std::uint32_t segment = warp_id() % p.segments;
  const std::uint32_t output = tile * kTileRows;
  float sums[4] = {0, 0, 0, 0};
  if (output < p.outputs) {
    // A packed matrix counts tiles, a plain one rows.
    const std::uint32_t first_row = rows.expert * p.outputs + output;
    sum_segment<F, T>(p, rows, is_packed(F) ? first_row / kTileRows : first_row, p.outputs - output,
                      segment_begin(p, segment) / kColumns, segment_begin(p, segment + 1) / kColumns, sums);
  }
  const std::uint32_t g = lane_id() / 4, t = lane_id() % 4;
  float* mine = sums_of_warps + warp_id() * kTileSums;
  mine[(2 * t) * kTileRows + g] = sums[0];
  mine[(2 * t + 1) * kTileRows + g] = sums[1];
  mine[(2 * t) * kTileRows + g + 8] = sums[2];
  mine[(2 * t + 1) * kTileRows + g + 8] = sums[3];
  __syncthreads();
  // Outputs of a block lie side by side: neighbouring threads store neighbours.
  const std::uint32_t outputs_each = tiles_each * kTileRows;
  for (std::uint32_t i = threadIdx.x; i < outputs_each * rows.count; i += kFewRowsWarps * 32) {
    const std::uint32_t row = i / outputs_each, o = i % outputs_each;
    if (blockIdx.x * outputs_each + o >= p.outputs) continue;
    const float* from =
        sums_of_warps + o / kTileRows * p.segments * kTileSums + row * kTileRows + o % kTileRows;
    float sum = 0;
    for (std::uint32_t s = 0; s < p.segments; ++s) sum += from[s * kTileSums];
    store_sum<T>(p, rows.expert, rows.first + row, blockIdx.x * outputs_each + o, sum);
  }
}

template <MatrixFormat F, class T>
void launch_few_rows(const ProductParams& p, Stream& stream) {
  LaunchShape shape;
  shape.grid = {ceil_div(p.outputs, kTileRows * (kFewRowsWarps / p.segments)), row_tiles(p, kFewRows), 1};
  shape.block = {kFewRowsWarps * 32, 1, 1};
  shape.shared_bytes = kFewRowsWarps * kTileRows * kFewRows * sizeof(float);
  launch("few_rows", few_rows<F, T>, shape, p, stream);
}

}  // namespace loci::cuda
