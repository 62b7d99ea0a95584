// SPDX-License-Identifier: Apache-2.0
// Products of many rows with packed weights on Hopper, by warpgroups. A block multiplies 256 outputs with 64
// rows, or 128 with 128. Each of its warps but the last decodes the weights of 16 outputs to registers, and
// the tensor cores read the activations from shared memory by themselves. So a weight is decoded once, and no
// thread moves activations. The last warp copies weights and activations (arranged_rows.h) to a ring in
// shared memory, a unit of columns at a time; barriers there tell who waits for what, and nobody waits for
// the whole block.
//
// A segment's sums are added to those of the segments before it as they are, so bits are not those of other
// kernels: deterministic mode has none of this. Segments only say how columns are spread over blocks
// (ProductParams::partials).
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/arranged_rows.h"
#include "loci/compute/cuda/products/product_blocks.h"
#include "loci/compute/cuda/simt_warpgroup.h"

namespace loci::cuda {

// Shared memory of a block: from a multiple of 1024 on stages of activations, then stages of weights, then
// the barriers.
template <MatrixFormat F, std::uint32_t kRows>
struct WarpgroupRowsShape {
  static constexpr std::uint32_t kOutputs = warpgroup_outputs(kRows);
  static constexpr std::uint32_t kWarps = kOutputs / kTileRows;  // that multiply
  static constexpr std::uint32_t kThreads = 32 * (kWarps + 1);
  static constexpr std::uint32_t kColumns = unit_columns(F);
  static constexpr std::uint32_t kTileBytes = kRows * 128;                  // of 64 columns
  static constexpr std::uint32_t kInputBytes = kColumns / 64 * kTileBytes;  // of a unit
  static constexpr std::uint32_t kWeightBytes = kWarps * unit_bytes(F);
  static constexpr std::uint32_t kBarrierBytes = 256;
  static constexpr std::uint32_t kBudget = 227 * 1024 - 1024 - kBarrierBytes;
  static constexpr std::uint32_t kFitting = kBudget / (kInputBytes + kWeightBytes);
  static constexpr std::uint32_t kStages = kFitting < 8 ? kFitting : 8;
  static constexpr std::uint32_t kRingBytes = kStages * (kInputBytes + kWeightBytes);
  static constexpr std::uint32_t kSumStride = kOutputs + 4;
  static constexpr std::uint32_t kSumBytes = kRows * kSumStride * 4;  // where the ring was
  static constexpr std::uint32_t kSharedBytes = 1024 + kRingBytes + kBarrierBytes;
  static_assert(kStages >= 3 && kSumBytes <= kRingBytes && 2 * kStages * sizeof(Arrivals) <= kBarrierBytes);
};

#if LOCI_WARPGROUPS

template <MatrixFormat F, std::uint32_t kRows>
struct UnitRing {
  using Shape = WarpgroupRowsShape<F, kRows>;
  std::byte* begin;  // a multiple of 1024

  LOCI_DEVICE std::byte* inputs(std::uint32_t stage) const { return begin + stage * Shape::kInputBytes; }
  LOCI_DEVICE std::byte* weights(std::uint32_t stage) const {
    return begin + Shape::kStages * Shape::kInputBytes + stage * Shape::kWeightBytes;
  }
  LOCI_DEVICE Arrivals* here(std::uint32_t stage) const {
    return reinterpret_cast<Arrivals*>(begin + Shape::kRingBytes) + stage;
  }
  LOCI_DEVICE Arrivals* used(std::uint32_t stage) const { return here(Shape::kStages + stage); }
  LOCI_DEVICE void begin_all() const {
    for (std::uint32_t stage = 0; stage < Shape::kStages; ++stage) {
      begin_arrivals(here(stage), 1);
      begin_arrivals(used(stage), Shape::kWarps);
    }
    publish_arrivals();
  }
};

// Which unit comes in which stage. Each block begins with another unit: all of them read the same
// activations, and would wait for the same part of the second-level cache.
template <std::uint32_t kStages>
struct UnitCursor {
  std::uint32_t begin, end, unit, stage = 0, parity = 0;

  LOCI_DEVICE UnitCursor(std::uint32_t first, std::uint32_t last)
      : begin(first), end(last), unit(first + blockIdx.y % (last - first)) {}
  LOCI_DEVICE void next() {
    unit = unit + 1 < end ? unit + 1 : begin;
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
};

// The warp that copies.
template <MatrixFormat F, std::uint32_t kRows>
LOCI_DEVICE void copy_units(const ProductParams& p, const BlockWork& work, std::uint32_t begin,
                            std::uint32_t end, const UnitRing<F, kRows>& ring) {
  using Shape = WarpgroupRowsShape<F, kRows>;
  const std::uint32_t lane = lane_id(), tiles = (work.outputs + kTileRows - 1) / kTileRows,
                      units = end - begin;
  const std::byte* weights =
      p.weights +
      ((std::uint64_t{work.rows.expert} * p.outputs + work.output) / kTileRows + lane) * p.tile_bytes;
  const std::byte* inputs = p.arranged + blockIdx.x * arranged_bytes(p.columns, kRows);
  using Cursor = UnitCursor<Shape::kStages>;
  // Of the outputs that there are; what lies in the stage for others makes sums that nobody stores.
  const auto copy_weights = [&](const Cursor& at) {
    if (lane == 0) arrive_expecting(ring.here(at.stage), Shape::kInputBytes + tiles * unit_bytes(F));
    __syncwarp();
    if (lane < tiles) {
      copy_bytes_async(ring.weights(at.stage) + lane * unit_bytes(F),
                       weights + std::uint64_t{at.unit} * unit_bytes(F), unit_bytes(F), ring.here(at.stage));
    }
  };
  const auto copy_inputs = [&](const Cursor& at) {
    if (lane == 0) {
      copy_bytes_async(ring.inputs(at.stage), inputs + std::uint64_t{at.unit} * Shape::kInputBytes,
                       Shape::kInputBytes, ring.here(at.stage));
    }
  };
  const std::uint32_t first = min(units, Shape::kStages);
  Cursor at(begin, end), ahead = at;
  for (std::uint32_t i = 0; i < first; ++i, ahead.next()) copy_weights(ahead);
  await_previous();  // weights do not depend on the kernel before
  for (std::uint32_t i = 0; i < first; ++i, at.next()) copy_inputs(at);
  for (std::uint32_t i = first; i < units; ++i, at.next()) {
    await_arrivals(ring.used(at.stage), at.parity ^ 1);
    copy_weights(at);
    copy_inputs(at);
  }
}

// sums[n]: of rows 8 n .. 8 n + 7 and the warp's 16 outputs, of units [begin, end). The warpgroups take turns
// at issuing a unit's products: while one multiplies, the others decode. (Without turns all decoded at the
// same time, and then all waited for the tensor cores.)
template <MatrixFormat F, class T, std::uint32_t kRows>
LOCI_DEVICE void multiply_units(std::uint32_t begin, std::uint32_t end, const UnitRing<F, kRows>& ring,
                                float (&sums)[kRows / 8][4]) {
  using Shape = WarpgroupRowsShape<F, kRows>;
  constexpr int kBlocks = Shape::kColumns / kBlockColumns;
  constexpr unsigned kGroups = Shape::kWarps / 4, kTurn = 1;  // barrier 0 is __syncthreads()'s
  const unsigned group = warp_id() / 4;
  const auto take_turn = [&] { meet_at_barrier(kTurn + group, 2 * kWarpgroup); };
  const auto pass_turn = [&] {
    arrive_at_barrier(kTurn + (group + 1 == kGroups ? 0 : group + 1), 2 * kWarpgroup);
  };
  if (group + 1 == kGroups) pass_turn();
  UnitCursor<Shape::kStages> at(begin, end);
  for (std::uint32_t i = begin; i < end; ++i, at.next()) {
    await_arrivals(ring.here(at.stage), at.parity);
    PackedUnit<F> packed;
    packed.load(ring.weights(at.stage) + warp_id() * unit_bytes(F), lane_id(), read_shared);
    BlockFragments fragments[kBlocks];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) packed.template fragments<T>(block, fragments[block]);
    const unsigned tile = shared_address(ring.inputs(at.stage));
    take_turn();
    begin_products();
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      if (block + 1 == kBlocks) pass_turn();  // the next group needs a moment to come
      const unsigned from = tile + block / 2 * Shape::kTileBytes + block % 2 * 64;
      multiply_registers_by_rows<T>(sums, fragments[block].first, tile_of_rows(from));
      multiply_registers_by_rows<T>(sums, fragments[block].second, tile_of_rows(from + 32));
    }
    commit_products();
    wait_products<0>(sums);
    __syncwarp();
    if (lane_id() == 0) arrive(ring.used(at.stage));
  }
  if (group == 0) take_turn();  // the one that the last group has passed
}

#endif  // LOCI_WARPGROUPS

template <MatrixFormat F, class T, std::uint32_t kRows>
__global__ void __launch_bounds__((WarpgroupRowsShape<F, kRows>::kThreads), 1)
    warpgroup_rows(ProductParams p) {
#if LOCI_WARPGROUPS
  release_next();
  using Shape = WarpgroupRowsShape<F, kRows>;
  if (p.offsets != nullptr) await_previous();  // the kernels before compute which rows belong to which expert
  BlockWork work;
  work.rows = find_rows(p, kRows, p.first_tile + blockIdx.x);
  if (work.rows.count == 0) return await_previous();
  work.output = blockIdx.y * Shape::kOutputs;
  work.outputs = min(Shape::kOutputs, p.outputs - work.output);
  const std::uint32_t first = p.partials != nullptr ? blockIdx.z : 0;
  const std::uint32_t last = p.partials != nullptr ? first + 1 : p.segments;
  const std::uint32_t begin = segment_begin(p, first) / Shape::kColumns,
                      end = segment_begin(p, last) / Shape::kColumns;
  auto* shared = shared_memory<std::byte>();
  const UnitRing<F, kRows> ring{shared + (1024 - shared_address(shared) % 1024) % 1024};
  if (threadIdx.x == 0) ring.begin_all();
  __syncthreads();
  float sums[kRows / 8][4] = {};
  if (warp_id() == Shape::kWarps) {
    copy_units<F, kRows>(p, work, begin, end, ring);
  } else {
    await_previous();
    multiply_units<F, T, kRows>(begin, end, ring, sums);
  }
  __syncthreads();  // the ring is done with
  auto* to = reinterpret_cast<float*>(ring.begin);
  if (warp_id() < Shape::kWarps) {
    const std::uint32_t g = lane_id() / 4, t = lane_id() % 4, output = warp_id() * kTileRows + g;
#pragma unroll
    for (std::uint32_t n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) {
        to[(8 * n + 2 * t + i % 2) * Shape::kSumStride + output + i / 2 * 8] = sums[n][i];
      }
    }
  }
  __syncthreads();
  store_block<Shape, T, kRows>(p, work, to);
#endif
}

// Arranges the activations first. p.arranged has room for p.tiles tiles.
template <MatrixFormat F, class T, std::uint32_t kRows>
void launch_warpgroup_rows(const ProductParams& p, Stream& stream) {
  arrange_rows(p, kRows, stream);
  launch_blocks<WarpgroupRowsShape<F, kRows>, T, kRows>("warpgroup_rows", warpgroup_rows<F, T, kRows>, p,
                                                        stream);
}

}  // namespace loci::cuda
