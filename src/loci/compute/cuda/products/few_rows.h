// Products of up to 8 rows: at the memory's rate. A warp multiplies 16 outputs with one segment of the
// columns; weights come from memory to registers 16 bytes a lane, kDepth units ahead of their use, each used
// once. The activations' 8 rows are the second operand (absent ones are the last one again): they are small
// and found in the first-level cache. Warps of one tile leave their sums in shared memory, where they are
// added in order.
//
// A block is 8 warps: 8 / segments tiles. Grid: (tiles of rows, tiles).
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_parts.h"

namespace loci::cuda {

inline constexpr std::uint32_t kFewRowsWarps = 8;

// Where a lane reads weights: its place in the segment's first unit, and how it reads unit after unit.
template <MatrixFormat F, class T>
struct PackedSource {
  static constexpr int kDepth = F == MatrixFormat::kQ8_0 ? 4 : 3;
  static constexpr std::uint32_t kColumns = unit_columns(F);
  static constexpr std::uint32_t kUnitBytes = unit_bytes(F);
  using Unit = PackedUnit<F>;
  const std::byte* at;

  LOCI_DEVICE PackedSource(const ProductParams& p, std::uint32_t first_row, std::uint32_t, std::uint32_t unit)
      : at(p.weights + first_row / kTileRows * p.tile_bytes + std::uint64_t{unit} * kUnitBytes) {}
  LOCI_DEVICE void load(std::uint32_t ahead, Unit& to) const {
    to.load(at + ahead * kUnitBytes, lane_id(), read_once);
  }
  // Columns beyond the matrix are zeros in a packed one.
  LOCI_DEVICE void load_end(std::uint32_t, Unit& to) const { load(0, to); }
  LOCI_DEVICE void advance(std::int32_t units) { at += units * static_cast<std::int32_t>(kUnitBytes); }
  LOCI_DEVICE static void fragments(const Unit& unit, int block, BlockFragments& to) {
    unit.template fragments<T>(block, to);
  }
};

template <class T>
struct PlainSource {
  static constexpr int kDepth = 4;
  static constexpr std::uint32_t kColumns = 64;
  using Unit = PlainUnit;
  const T*
      rows[2];  // g and g + 8, or the last one where the matrix ends before: what is multiplied is left out

  LOCI_DEVICE PlainSource(const ProductParams& p, std::uint32_t first_row, std::uint32_t rows_left,
                          std::uint32_t unit) {
    const std::uint32_t g = lane_id() / 4, t = lane_id() % 4;
    const T* from = reinterpret_cast<const T*>(p.weights) + std::uint64_t{first_row} * p.columns;
    from += unit * kColumns + t * 8;
    rows[0] = from + std::uint64_t{min(g, rows_left - 1)} * p.columns;
    rows[1] = from + std::uint64_t{min(g + 8, rows_left - 1)} * p.columns;
  }
  LOCI_DEVICE uint4 read(std::uint32_t ahead, int block, int half) const {
    return read_once(reinterpret_cast<const std::byte*>(rows[half] + ahead * kColumns + block * 32));
  }
  LOCI_DEVICE void load(std::uint32_t ahead, Unit& to) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) to.rows[i / 2][i % 2] = read(ahead, i / 2, i % 2);
  }
  // `columns_left`: of the lane's begin in this unit, not more than 0 where nothing is there.
  LOCI_DEVICE void load_end(std::uint32_t columns_left, Unit& to) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool there = static_cast<std::uint32_t>(i / 2) * kBlockColumns < columns_left;
      to.rows[i / 2][i % 2] = there ? read(0, i / 2, i % 2) : make_uint4(0, 0, 0, 0);
    }
  }
  LOCI_DEVICE void advance(std::int32_t units) {
    rows[0] += units * static_cast<std::int32_t>(kColumns);
    rows[1] += units * static_cast<std::int32_t>(kColumns);
  }
  LOCI_DEVICE static void fragments(const Unit& unit, int block, BlockFragments& to) {
    unit.fragments(block, to);
  }
};

template <MatrixFormat F, class T>
struct SourceOf {
  using Type = PackedSource<F, T>;
};
template <class T>
struct SourceOf<MatrixFormat::kHalf, T> {
  using Type = PlainSource<T>;
};
template <class T>
struct SourceOf<MatrixFormat::kBFloat16, T> {
  using Type = PlainSource<T>;
};

template <class Source, class T>
LOCI_DEVICE void multiply_unit(const typename Source::Unit& weights,
                               const uint4 (&input)[Source::kColumns / kBlockColumns], float (&sums)[4]) {
#pragma unroll
  for (int block = 0; block < static_cast<int>(Source::kColumns / kBlockColumns); ++block) {
    BlockFragments of;
    Source::fragments(weights, block, of);
    const std::uint32_t first[2] = {input[block].x, input[block].y};
    const std::uint32_t second[2] = {input[block].z, input[block].w};
    mma_16x8x16<T>(sums, of.first, first);
    mma_16x8x16<T>(sums, of.second, second);
  }
}

// One warp's sums of 16 outputs, from `first_row` of the matrix on, and 8 rows over one segment: lane 4 g + t
// has outputs g, g + 8 of rows 2 t, 2 t + 1. Units that lie in the matrix are loaded kDepth ahead, without
// any question; what is left of the columns is looked at one by one.
template <MatrixFormat F, class T>
LOCI_DEVICE void sum_segment(const ProductParams& p, const RowTile& rows, std::uint32_t first_row,
                             std::uint32_t rows_left, std::uint32_t segment, float (&sums)[4]) {
  using Source = typename SourceOf<F, T>::Type;
  constexpr std::uint32_t kColumns = Source::kColumns, kDepth = Source::kDepth;
  constexpr std::uint32_t kBlocks = kColumns / kBlockColumns;
  const std::uint32_t begin = segment_begin(p, segment) / kColumns,
                      end = segment_begin(p, segment + 1) / kColumns;
  const std::uint32_t whole = min(end, p.columns / kColumns);
  Source source(p, first_row, rows_left, begin);
  // Rows that are not there are the last one: their sums are left out.
  const std::uint32_t row = rows.first + min(lane_id() / 4, rows.count - 1);
  const T* input_at = static_cast<const T*>(p.input) + std::uint64_t{row} * p.input_stride +
                      begin * kColumns + lane_id() % 4 * 8;
  typename Source::Unit weights[kDepth];
  uint4 input[kDepth][kBlocks];
  const auto load = [&](std::uint32_t slot, std::uint32_t ahead) {
    source.load(ahead, weights[slot]);
#pragma unroll
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      input[slot][block] =
          *reinterpret_cast<const uint4*>(input_at + ahead * kColumns + block * kBlockColumns);
    }
  };
#pragma unroll
  for (std::uint32_t d = 0; d < kDepth; ++d) {
    if (begin + d < whole) load(d, d);
  }
  std::uint32_t unit = begin;
  for (; unit < whole; unit += kDepth) {
#pragma unroll
    for (std::uint32_t d = 0; d < kDepth; ++d) {
      if (unit + d < whole) multiply_unit<Source, T>(weights[d], input[d], sums);
      if (unit + d + kDepth < whole) load(d, d + kDepth);
    }
    source.advance(kDepth);
    input_at += kDepth * kColumns;
  }
  // Back, where the last round was not full.
  const auto beyond = static_cast<std::int32_t>(whole - unit);
  source.advance(beyond);
  input_at += beyond * static_cast<std::int32_t>(kColumns);
  for (unit = whole; unit < end; ++unit) {
    const std::uint32_t begins = unit * kColumns + lane_id() % 4 * 8;
    const std::uint32_t left = begins < p.columns ? p.columns - begins : 0;
    source.load_end(left, weights[0]);
#pragma unroll
    for (std::uint32_t block = 0; block < kBlocks; ++block) {
      const bool there = block * kBlockColumns < left;
      input[0][block] =
          there ? *reinterpret_cast<const uint4*>(input_at + block * kBlockColumns) : make_uint4(0, 0, 0, 0);
    }
    multiply_unit<Source, T>(weights[0], input[0], sums);
    source.advance(1);
    input_at += kColumns;
  }
}

template <MatrixFormat F, class T>
__global__ void __launch_bounds__(kFewRowsWarps * 32, 2) few_rows(ProductParams p) {
  constexpr std::uint32_t kTileSums = kTileRows * kFewRows;
  auto* sums_of_warps = shared_memory<float>();  // [warp][row][output]
  const RowTile rows = find_rows(p, kFewRows, blockIdx.x);
  if (rows.count == 0) return;
  const std::uint32_t tiles_each = kFewRowsWarps / p.segments;
  const std::uint32_t tile = blockIdx.y * tiles_each + warp_id() / p.segments;  // of the expert
  const std::uint32_t segment = warp_id() % p.segments;
  const std::uint32_t output = tile * kTileRows;
  float sums[4] = {0, 0, 0, 0};
  if (output < p.outputs) {
    sum_segment<F, T>(p, rows, rows.expert * p.outputs + output, p.outputs - output, segment, sums);
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
    if (blockIdx.y * outputs_each + o >= p.outputs) continue;
    const float* from =
        sums_of_warps + o / kTileRows * p.segments * kTileSums + row * kTileRows + o % kTileRows;
    float sum = 0;
    for (std::uint32_t s = 0; s < p.segments; ++s) sum += from[s * kTileSums];
    store_sum<T>(p, rows.expert, rows.first + row, blockIdx.y * outputs_each + o, sum);
  }
}

template <MatrixFormat F, class T>
void launch_few_rows(const ProductParams& p, Stream& stream) {
  LaunchShape shape;
  shape.grid = {row_tiles(p, kFewRows), ceil_div(p.outputs, kTileRows * (kFewRowsWarps / p.segments)), 1};
  shape.block = {kFewRowsWarps * 32, 1, 1};
  shape.shared_bytes = kFewRowsWarps * kTileRows * kFewRows * sizeof(float);
  launch("few_rows", few_rows<F, T>, shape, p, stream);
}

}  // namespace loci::cuda
