// SPDX-License-Identifier: Apache-2.0
// Products of up to 8 rows, at the memory's rate. A warp multiplies 16 outputs with one segment of the
// columns. Asynchronous copies bring the weights into the warp's own ring of units in shared memory (4
// or 12 KB, so that a multiprocessor has room for two blocks; where a block may not have that, 8); from there
// each weight goes to registers once. (A ring in registers would not work: the machine tracks loads by six
// counters, and waiting for one load waits for all loads on its counter.) The 8 rows of activations are the
// second operand; they are small and stay in the first-level cache. If there are fewer rows, the last one is
// repeated. The warps of one tile write their sums to shared memory, where they are added in order.
//
// A block is 8 warps, which work on 8 / segments tiles at a time, a group. A block computes every
// gridDim.y-th group, and its copies continue across groups, so that memory is never idle between two of
// them. The first copies begin before the kernel that computes the activations has ended.
//
// Grid: (tiles of rows, the number of groups or, if less, of blocks that run at a time).
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_parts.h"

namespace loci::cuda {

inline constexpr std::uint32_t kFewRowsWarps = 8;

struct FewRowsParams : ProductParams {
  std::uint32_t depth = 2;  // stages of a warp's ring: all but one are on their way while one is multiplied
};

// Where a warp copies weights from: its place in the segment, and how it advances from unit to unit. A lane
// reads the copied bytes back with load().
template <MatrixFormat F, class T>
struct PackedSource {
  static constexpr std::uint32_t kColumns = unit_columns(F);
  static constexpr std::uint32_t kUnitBytes = unit_bytes(F);
  static constexpr std::uint32_t kDepthMax = 4096 / kUnitBytes;
  static constexpr std::uint32_t kChunks = kUnitBytes / 16;
  using Unit = PackedUnit<F>;
  const std::byte* at;  // the lane's first chunk

  LOCI_DEVICE PackedSource(const ProductParams& p, std::uint32_t first_row, std::uint32_t, std::uint32_t unit)
      : at(p.weights + first_row / kTileRows * p.tile_bytes + std::uint64_t{unit} * kUnitBytes +
           lane_id() * 16) {}
  // (Columns beyond the matrix are zeros in a packed matrix.)
  LOCI_DEVICE void copy(std::byte* stage, std::uint32_t) const {
    std::byte* to = stage + lane_id() * 16;
#pragma unroll
    for (std::uint32_t chunk = 0; chunk < kChunks; chunk += 32) {
      if (chunk + 32 > kChunks && chunk + lane_id() >= kChunks) continue;
      copy_async_16(to + chunk * 16, at + chunk * 16);
    }
  }
  LOCI_DEVICE void advance() { at += kUnitBytes; }
  LOCI_DEVICE static void load(const std::byte* stage, Unit& to) { to.load(stage, lane_id(), read_shared); }
  LOCI_DEVICE static void fragments(const Unit& unit, int block, BlockFragments& to) {
    unit.template fragments<T>(block, to);
  }
};

// A unit has 256 bytes of each of its rows, so that neighbouring bytes in memory are read together.
template <class T>
struct PlainSource {
  static constexpr std::uint32_t kColumns = 128;
  static constexpr std::uint32_t kBlocks = kColumns / kBlockColumns;
  static constexpr std::uint32_t kUnitBytes = kTileRows * kColumns * 2;
  static constexpr std::uint32_t kDepthMax = 3;
  using Unit = PlainUnit<kBlocks>;
  const T* rows[2];  // g and g + 8, or the matrix's last row if it ends before; its products are not used

  LOCI_DEVICE PlainSource(const ProductParams& p, std::uint32_t first_row, std::uint32_t rows_left,
                          std::uint32_t unit) {
    const std::uint32_t g = lane_id() / 4, t = lane_id() % 4;
    const T* from = reinterpret_cast<const T*>(p.weights) + std::uint64_t{first_row} * p.columns;
    from += unit * kColumns + t * 8;
    rows[0] = from + std::uint64_t{min(g, rows_left - 1)} * p.columns;
    rows[1] = from + std::uint64_t{min(g + 8, rows_left - 1)} * p.columns;
  }
  // `columns_left`: columns of the matrix from the lane's first one in this unit on. Columns beyond are
  // zeros.
  LOCI_DEVICE void copy(std::byte* stage, std::uint32_t columns_left) const {
#pragma unroll
    for (std::uint32_t i = 0; i < 2 * kBlocks; ++i) {
      const bool there = i / 2 * kBlockColumns < columns_left;
      copy_async_16(stage + (i * 32 + lane_id()) * 16,
                    there ? rows[i % 2] + i / 2 * kBlockColumns : rows[i % 2], there);
    }
  }
  LOCI_DEVICE void advance() {
    rows[0] += kColumns;
    rows[1] += kColumns;
  }
  LOCI_DEVICE static void load(const std::byte* stage, Unit& to) {
#pragma unroll
    for (std::uint32_t i = 0; i < 2 * kBlocks; ++i) {
      to.rows[i / 2][i % 2] = read_shared(stage + (i * 32 + lane_id()) * 16);
    }
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

// Two blocks of a unit: `half` 0 or, of units of four, 1.
template <class Source, class T>
LOCI_DEVICE void multiply_half(const typename Source::Unit& weights, int half, const uint4 (&input)[2],
                               float (&sums)[4]) {
#pragma unroll
  for (int block = 0; block < 2; ++block) {
    BlockFragments of;
    Source::fragments(weights, 2 * half + block, of);
    const std::uint32_t first[2] = {input[block].x, input[block].y};
    const std::uint32_t second[2] = {input[block].z, input[block].w};
    mma_16x8x16<T>(sums, of.first, first);
    mma_16x8x16<T>(sums, of.second, second);
  }
}

// One warp's work: the units of its segment in the block's first group, then those in the next one.
template <MatrixFormat F, class T>
class FewRowsWarp {
 public:
  using Source = typename SourceOf<F, T>::Type;
  using Unit = typename Source::Unit;
  static constexpr std::uint32_t kColumns = Source::kColumns;
  static constexpr std::uint32_t kHalfColumns = 2 * kBlockColumns;
  static constexpr int kHalves = kColumns / kHalfColumns;
  static constexpr std::uint32_t kWarpSums = kTileRows * kFewRows;
  static constexpr std::uint32_t kSums = kFewRowsWarps * kWarpSums;
  // Shared memory: [turn] sums, then [warp][unit] rings.
  static constexpr std::uint32_t kSumBytes = 2 * kSums * sizeof(float);
  static constexpr std::uint32_t shared_bytes(std::uint32_t depth) {
    return kSumBytes + kFewRowsWarps * depth * Source::kUnitBytes;
  }
  // As deep as it should be, or as `most` bytes of shared memory, which a block may have, let it be.
  static constexpr std::uint32_t depth_within(std::uint32_t most) {
    return shared_bytes(Source::kDepthMax) <= most ? Source::kDepthMax : 2;
  }
  static_assert(Source::kDepthMax == 2 || Source::kDepthMax == 3);
  static_assert(Source::kUnitBytes % 16 == 0);

  LOCI_DEVICE FewRowsWarp(const FewRowsParams& p, const RowTile& rows)
      : p_(p),
        rows_(rows),
        tiles_each_(kFewRowsWarps / p.segments),
        begin_(segment_begin(p, warp_id() % p.segments) / kColumns),
        end_(segment_begin(p, warp_id() % p.segments + 1) / kColumns),
        groups_((p.outputs + tiles_each_ * kTileRows - 1) / (tiles_each_ * kTileRows)),
        ring_(shared_memory<std::byte>() + kSumBytes + warp_id() * p.depth * Source::kUnitBytes),
        copying_(blockIdx.y),
        copying_unit_(begin_),
        source_(source_of(blockIdx.y)) {}

  // `await` is called when copies of weights have begun, before activations are read.
  template <class Await>
  LOCI_DEVICE void run(const Await& await) {
    for (std::uint32_t d = 0; d + 1 < p_.depth; ++d) copy(d);
    await();
    // Missing rows are the last row again; their sums are not used.
    const std::uint32_t row = rows_.first + min(lane_id() / 4, rows_.count - 1);
    const T* const inputs =
        static_cast<const T*>(p_.input) + std::uint64_t{row} * p_.input_stride + lane_id() % 4 * 8;
    uint4 input[2], next_input[2];  // of a half unit, and of the next one
    load_input(inputs, begin_ * kColumns, input);
    std::uint32_t group = blockIdx.y, unit = begin_, turn = 0, reading = 0, writing = p_.depth - 1;
    float sums[4] = {0, 0, 0, 0};
    while (group < groups_) {
      if (p_.depth == 2) {
        copy_async_wait<0>();
      } else {
        copy_async_wait<1>();
      }
      __syncwarp();  // the unit has arrived for all lanes, and all have read the one that is overwritten next
      Unit weights;
      Source::load(ring_ + reading * Source::kUnitBytes, weights);
      copy(writing);
      reading = reading + 1 == p_.depth ? 0 : reading + 1;
      writing = writing + 1 == p_.depth ? 0 : writing + 1;
      const bool ends = unit + 1 == end_;
      const std::uint32_t next = ends ? begin_ : unit + 1;
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const std::uint32_t column = half + 1 < kHalves ? unit * kColumns + kHalfColumns : next * kColumns;
        load_input(inputs, column, next_input);
        multiply_half<Source, T>(weights, half, input, sums);
        input[0] = next_input[0];
        input[1] = next_input[1];
      }
      unit = next;
      if (!ends) continue;
      leave(sums, turn);
      __syncthreads();
      store(group, turn);
      turn ^= 1;  // threads may still read the other sums until the next barrier
      group += gridDim.y;
    }
    copy_async_wait<0>();
  }

 private:
  // A tile beyond the outputs is the last tile again; its sums are not used.
  LOCI_DEVICE Source source_of(std::uint32_t group) const {
    const std::uint32_t tile = group * tiles_each_ + warp_id() / p_.segments;
    const std::uint32_t output = min(tile, (p_.outputs - 1) / kTileRows) * kTileRows;
    return Source(p_, rows_.expert * p_.outputs + output, p_.outputs - output, begin_);
  }

  // Copies the next unit, if there is one, to its place in the ring. It commits a group of copies in any
  // case, because groups are counted.
  LOCI_DEVICE void copy(std::uint32_t place) {
    if (copying_ < groups_) {
      const std::uint32_t lane_begin = copying_unit_ * kColumns + lane_id() % 4 * 8;
      source_.copy(ring_ + place * Source::kUnitBytes, lane_begin < p_.columns ? p_.columns - lane_begin : 0);
      if (++copying_unit_ < end_) {
        source_.advance();
      } else {
        copying_unit_ = begin_;
        copying_ += gridDim.y;
        source_ = source_of(copying_);
      }
    }
    copy_async_commit();
  }

  // Loads the lane's activations of the half unit at `first`.
  LOCI_DEVICE void load_input(const T* inputs, std::uint32_t first, uint4 (&to)[2]) const {
    const bool whole = first + kHalfColumns <= p_.columns;
#pragma unroll
    for (std::uint32_t block = 0; block < 2; ++block) {
      const std::uint32_t column = first + block * kBlockColumns;
      const bool there = whole || column + lane_id() % 4 * 8 < p_.columns;
      to[block] = there ? *reinterpret_cast<const uint4*>(inputs + column) : make_uint4(0, 0, 0, 0);
    }
  }

  // Writes sums to shared memory as [turn][warp][row][output]. Lane 4 g + t has outputs g, g + 8 of rows 2 t,
  // 2 t + 1.
  LOCI_DEVICE void leave(float (&sums)[4], std::uint32_t turn) const {
    const std::uint32_t g = lane_id() / 4, t = lane_id() % 4;
    float* mine = shared_memory<float>() + turn * kSums + warp_id() * kWarpSums;
    mine[(2 * t) * kTileRows + g] = sums[0];
    mine[(2 * t + 1) * kTileRows + g] = sums[1];
    mine[(2 * t) * kTileRows + g + 8] = sums[2];
    mine[(2 * t + 1) * kTileRows + g + 8] = sums[3];
    sums[0] = sums[1] = sums[2] = sums[3] = 0;
  }

  // Stores a group's outputs, which lie side by side, so neighbouring threads store neighbours.
  LOCI_DEVICE void store(std::uint32_t group, std::uint32_t turn) const {
    const std::uint32_t outputs_each = tiles_each_ * kTileRows;
    for (std::uint32_t i = threadIdx.x; i < outputs_each * rows_.count; i += kFewRowsWarps * 32) {
      const std::uint32_t row = i / outputs_each, o = i % outputs_each;
      const std::uint32_t output = group * outputs_each + o;
      if (output >= p_.outputs) continue;
      const float* from = shared_memory<float>() + turn * kSums + o / kTileRows * p_.segments * kWarpSums +
                          row * kTileRows + o % kTileRows;
      float sum = 0;
      for (std::uint32_t s = 0; s < p_.segments; ++s) sum += from[s * kWarpSums];
      store_sum<T>(p_, rows_.expert, rows_.first + row, output, sum);
    }
  }

  const FewRowsParams& p_;
  const RowTile& rows_;
  const std::uint32_t tiles_each_;
  const std::uint32_t begin_, end_;  // units of the segment
  const std::uint32_t groups_;
  std::byte* const ring_;
  std::uint32_t copying_, copying_unit_;  // group and unit that are copied next
  Source source_;                         // where they are copied from
};

template <MatrixFormat F, class T>
__global__ void __launch_bounds__(kFewRowsWarps * 32, 2) few_rows(FewRowsParams p) {
  release_next();
  if (p.offsets != nullptr) {  // the kernels before this one compute which rows belong to which expert
    await_previous();
    const RowTile rows = find_rows(p, kFewRows, blockIdx.x);
    if (rows.count > 0) FewRowsWarp<F, T>(p, rows).run([] {});
  } else {
    const RowTile rows = find_rows(p, kFewRows, blockIdx.x);
    FewRowsWarp<F, T>(p, rows).run([] { await_previous(); });
  }
}

template <MatrixFormat F, class T>
void launch_few_rows(const ProductParams& p, Stream& stream) {
  constexpr std::uint32_t kBlocks = 2;  // of a multiprocessor
  const std::uint32_t groups = ceil_div(p.outputs, kTileRows * (kFewRowsWarps / p.segments));
  const DeviceProperties& device = stream.device().properties();
  const std::uint32_t at_a_time = kBlocks * device.multiprocessors;
  const FewRowsParams params{p, FewRowsWarp<F, T>::depth_within(device.shared_bytes_max)};
  LaunchShape shape;
  shape.grid = {row_tiles(p, kFewRows), groups < at_a_time ? groups : at_a_time, 1};
  shape.block = {kFewRowsWarps * 32, 1, 1};
  shape.shared_bytes = FewRowsWarp<F, T>::shared_bytes(params.depth);
  launch("few_rows", few_rows<F, T>, shape, params, stream);
}

}  // namespace loci::cuda
