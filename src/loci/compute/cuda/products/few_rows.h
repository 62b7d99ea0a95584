// SPDX-License-Identifier: Apache-2.0
// Products of up to 8 rows, at the memory's rate. A warp multiplies 16 outputs with one segment of the
// columns. Asynchronous copies bring the weights into the warp's own ring in shared memory (4 or 12 KB, so
// that a multiprocessor has room for two blocks), a unit at a time, and with each unit the activations of its
// columns: both are requested as early, as a read of a busy memory takes long from the second-level cache
// too. From the ring each weight goes to registers once. (A ring in registers would not work: the machine
// tracks loads by six counters, and waiting for one load waits for all loads on its counter.) The 8 rows of
// activations are the second operand. If there are fewer rows, the last one is repeated. The warps of one
// tile write their sums to shared memory, where they are added in order.
//
// A block is 8 warps, which work on 8 / segments tiles at a time, a group. A block computes every
// gridDim.y-th group, and its copies continue across groups, so that memory is never idle between two of
// them. The first copies of weights begin before the kernel that computes the activations has ended.
//
// Grid: (tiles of rows, the number of groups or, if less, of blocks that run at a time).
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_parts.h"

namespace loci::cuda {

inline constexpr std::uint32_t kFewRowsWarps = 8;
inline constexpr std::uint32_t kFewRowsBlocks = 2;  // of a multiprocessor

// How a launch uses shared memory.
struct FewRowsShape {
  std::uint32_t tile_rows = kFewRows;
  // A warp's ring: stages of a unit of weights and the activations of its columns for a tile of rows. All but
  // one are on their way while one is multiplied.
  std::uint32_t depth = 2;
  std::uint32_t stage_bytes = 0;
  std::uint32_t shared_bytes = 0;  // of a block
  LOCI_HOST_DEVICE constexpr std::uint32_t ring_bytes() const { return depth * stage_bytes; }
};

struct FewRowsParams : ProductParams {
  FewRowsShape shape;
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

// One warp's work: the units of its segment in the block's first group, then those in the next one.
template <MatrixFormat F, class T>
class FewRowsWarp {
 public:
  using Source = typename SourceOf<F, T>::Type;
  using Unit = typename Source::Unit;
  static constexpr std::uint32_t kColumns = Source::kColumns;
  static constexpr std::uint32_t kWarpSums = kTileRows * kFewRows;
  static constexpr std::uint32_t kSums = kFewRowsWarps * kWarpSums;
  // Activations in a stage: neighbouring rows are 64 bytes apart modulo the 128 of all banks, so that 8 lanes
  // read 16 bytes each of two rows without a conflict.
  static constexpr std::uint32_t kRowPitch = kColumns * 2 + 64;
  static constexpr std::uint32_t kRowChunks = kColumns / 8;
  // Shared memory: [turn] sums, then [warp][stage] rings.
  static constexpr std::uint32_t kSumBytes = 2 * kSums * sizeof(float);
  static_assert(Source::kDepthMax >= 2 && Source::kDepthMax <= 3 && Source::kUnitBytes % 16 == 0);

  // A ring is as deep as a multiprocessor has room for with kFewRowsBlocks blocks (each takes 1 KB more than
  // it asks for); where even two stages do not fit a block, tiles have fewer rows.
  static constexpr FewRowsShape shape_of(std::uint32_t rows, const DeviceProperties& device) {
    FewRowsShape shape{.tile_rows = std::min(rows, kFewRows), .depth = Source::kDepthMax};
    while (true) {
      shape.stage_bytes = Source::kUnitBytes + shape.tile_rows * kRowPitch;
      shape.shared_bytes = kSumBytes + kFewRowsWarps * shape.ring_bytes();
      if (shape.depth > 2 && kFewRowsBlocks * (shape.shared_bytes + 1024) > device.shared_bytes) {
        --shape.depth;
      } else if (shape.tile_rows > 1 && shape.shared_bytes > device.shared_bytes_max) {
        shape.tile_rows = (shape.tile_rows + 1) / 2;
      } else {
        return shape;
      }
    }
  }

  LOCI_DEVICE FewRowsWarp(const FewRowsParams& p, const RowTile& rows)
      : p_(p),
        rows_(rows),
        tiles_each_(kFewRowsWarps / p.segments),
        begin_(segment_begin(p, warp_id() % p.segments) / kColumns),
        end_(segment_begin(p, warp_id() % p.segments + 1) / kColumns),
        groups_((p.outputs + tiles_each_ * kTileRows - 1) / (tiles_each_ * kTileRows)),
        ring_(shared_memory<std::byte>() + kSumBytes + warp_id() * p.shape.ring_bytes()),
        copying_(blockIdx.y),
        copying_unit_(begin_),
        source_(source_of(blockIdx.y)) {}

  // `await` is called when copies of weights have begun, before activations are read.
  template <class Await>
  LOCI_DEVICE void run(const Await& await) {
    const std::uint32_t stage = p_.shape.stage_bytes, ring = p_.shape.ring_bytes();
    for (std::uint32_t at = 0; at + stage < ring; at += stage) {
      copy_weights(at);
      copy_async_commit();
    }
    await();
    std::uint32_t input_unit = begin_;
    for (std::uint32_t at = 0; at + stage < ring; at += stage) {
      copy_inputs(at, input_unit);
      copy_async_commit();
    }
    std::uint32_t group = blockIdx.y, unit = begin_, turn = 0, reading = 0, writing = ring - stage;
    float sums[4] = {0, 0, 0, 0};
    while (group < groups_) {
      if (p_.shape.depth == 2) {
        copy_async_wait<0>();
      } else {
        copy_async_wait<1>();
      }
      __syncwarp();  // the unit has arrived for all lanes, and all have read the one that is overwritten next
      Unit weights;
      Source::load(ring_ + reading, weights);
      copy_weights(writing);
      copy_inputs(writing, input_unit);
      copy_async_commit();
      multiply(weights, ring_ + reading + Source::kUnitBytes, sums);
      reading = reading + stage == ring ? 0 : reading + stage;
      writing = writing + stage == ring ? 0 : writing + stage;
      if (++unit < end_) continue;
      unit = begin_;
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

  // Copies the weights of the next unit, if there is one, to the stage at `at` of the ring.
  LOCI_DEVICE void copy_weights(std::uint32_t at) {
    if (copying_ >= groups_) return;
    const std::uint32_t lane_begin = copying_unit_ * kColumns + lane_id() % 4 * 8;
    source_.copy(ring_ + at, lane_begin < p_.columns ? p_.columns - lane_begin : 0);
    if (++copying_unit_ < end_) {
      source_.advance();
    } else {
      copying_unit_ = begin_;
      copying_ += gridDim.y;
      source_ = source_of(copying_);
    }
  }

  // Copies the activations of the unit, and goes on to the next one. Columns beyond the matrix are zeros.
  LOCI_DEVICE void copy_inputs(std::uint32_t at, std::uint32_t& unit) const {
    constexpr std::uint32_t kAtOnce = 32 / kRowChunks;  // rows
    const std::uint32_t chunk = lane_id() % kRowChunks, row = lane_id() / kRowChunks;
    const std::uint32_t column = unit * kColumns + chunk * 8;
    const bool there = column < p_.columns;
    const T* from = static_cast<const T*>(p_.input) + std::uint64_t{rows_.first + row} * p_.input_stride +
                    (there ? column : 0);
    std::byte* to = ring_ + at + Source::kUnitBytes + row * kRowPitch + chunk * 16;
#pragma unroll
    for (std::uint32_t i = 0; i < kFewRows; i += kAtOnce) {
      if (i + row >= rows_.count) break;
      copy_async_16(to + i * kRowPitch, from + i * std::uint64_t{p_.input_stride}, there);
    }
    unit = unit + 1 < end_ ? unit + 1 : begin_;
  }

  // Adds the products of a unit. Missing rows are the last row again; their sums are not used.
  LOCI_DEVICE void multiply(const Unit& weights, const std::byte* inputs, float (&sums)[4]) const {
    inputs += min(lane_id() / 4, rows_.count - 1) * kRowPitch + lane_id() % 4 * 16;
#pragma unroll
    for (int block = 0; block < static_cast<int>(kColumns / kBlockColumns); ++block) {
      BlockFragments of;
      Source::fragments(weights, block, of);
      const uint4 input = read_shared(inputs + block * kBlockColumns * 2);
      const std::uint32_t first[2] = {input.x, input.y}, second[2] = {input.z, input.w};
      mma_16x8x16<T>(sums, of.first, first);
      mma_16x8x16<T>(sums, of.second, second);
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
__global__ void __launch_bounds__(kFewRowsWarps * 32, kFewRowsBlocks) few_rows(FewRowsParams p) {
  release_next();
  if (p.offsets != nullptr) {  // the kernels before this one compute which rows belong to which expert
    await_previous();
    const RowTile rows = find_rows(p, p.shape.tile_rows, blockIdx.x);
    if (rows.count > 0) FewRowsWarp<F, T>(p, rows).run([] {});
  } else {
    const RowTile rows = find_rows(p, p.shape.tile_rows, blockIdx.x);
    FewRowsWarp<F, T>(p, rows).run([] { await_previous(); });
  }
}

template <MatrixFormat F, class T>
void launch_few_rows(const ProductParams& p, Stream& stream) {
  const DeviceProperties& device = stream.device().properties();
  const std::uint32_t groups = ceil_div(p.outputs, kTileRows * (kFewRowsWarps / p.segments));
  const std::uint32_t at_a_time = kFewRowsBlocks * device.multiprocessors;
  const FewRowsParams params{p, FewRowsWarp<F, T>::shape_of(p.rows, device)};
  LaunchShape shape;
  shape.grid = {row_tiles(p, params.shape.tile_rows), groups < at_a_time ? groups : at_a_time, 1};
  shape.block = {kFewRowsWarps * 32, 1, 1};
  shape.shared_bytes = params.shape.shared_bytes;
  launch("few_rows", few_rows<F, T>, shape, params, stream);
}

}  // namespace loci::cuda
