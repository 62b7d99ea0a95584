// SPDX-License-Identifier: Apache-2.0
// Products of many rows with packed weights on Hopper, by warpgroups. A block multiplies 128 outputs with
// kRows rows (64 or 128): each of its eight warps decodes the weights of 16 outputs to registers, and the
// tensor cores read the activations from shared memory by themselves. So a weight is decoded once, and no
// thread moves activations to registers for each product, as those of many_rows.h do.
//
// Activations are permuted on their way to shared memory: a lane's fragments of weights have other columns
// than the tensor cores' order (fragments.h), so each 8 columns of a row become four pieces of two. They go
// through registers, a unit of columns ahead, to one of two places; weights come by asynchronous copies, as
// in many_rows.h.
//
// A segment's sums are added to those of the segments before it as they are, so bits are not those of other
// kernels: deterministic mode has none of this. Segments only say how columns are spread over blocks
// (ProductParams::partials).
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_blocks.h"
#include "loci/compute/cuda/simt_warpgroup.h"

namespace loci::cuda {

// Shared memory of a block: two places for activations, at a multiple of 1024, then stages of weights.
template <MatrixFormat F, std::uint32_t kRows>
struct WarpgroupRowsShape {
  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kColumns = unit_columns(F);
  static constexpr std::uint32_t kBlocks = kRows == 128 ? 1 : 2;            // of a multiprocessor, at least
  static constexpr std::uint32_t kTileBytes = kRows * 128;                  // of 64 columns
  static constexpr std::uint32_t kInputBytes = kColumns / 64 * kTileBytes;  // of a unit
  static constexpr std::uint32_t kWeightBytes = kBigTileRows / kTileRows * unit_bytes(F);
  static constexpr std::uint32_t kStages = 4;
  static constexpr std::uint32_t kSumStride = kBigTileRows + 4;
  static constexpr std::uint32_t kSumBytes = kRows * kSumStride * 4;
  static constexpr std::uint32_t kRingBytes = 2 * kInputBytes + kStages * kWeightBytes;
  static constexpr std::uint32_t kSharedBytes = 1024 + (kRingBytes > kSumBytes ? kRingBytes : kSumBytes);
  static_assert(kBlocks * (kSharedBytes + 1024) <= 228 * 1024);
};

#if LOCI_WARPGROUPS

// A thread's share of a unit's activations: 8 columns of some rows, in registers.
template <MatrixFormat F, class T, std::uint32_t kRows>
class PermutedInput {
 public:
  using Shape = WarpgroupRowsShape<F, kRows>;
  // A warp has 32 columns of eight rows at a time.
  static constexpr std::uint32_t kRowGroups = kRows / 8;
  static constexpr std::uint32_t kSteps =
      kRowGroups * (Shape::kColumns / kBlockColumns) / (Shape::kThreads / 32);

  LOCI_DEVICE PermutedInput(const ProductParams& p, const RowTile& rows)
      : p_(p),
        rows_(rows),
        from_(static_cast<const T*>(p.input) + std::uint64_t{rows.first} * p.input_stride) {}

  // Rows and columns beyond the matrices are zeros.
  LOCI_DEVICE void load(std::uint32_t unit) {
#pragma unroll
    for (std::uint32_t i = 0; i < kSteps; ++i) {
      const std::uint32_t at = row(i),
                          column = unit * Shape::kColumns + block(i) * kBlockColumns + lane_id() % 4 * 8;
      values_[i] = at < rows_.count && column < p_.columns
                       ? *reinterpret_cast<const uint4*>(from_ + std::uint64_t{at} * p_.input_stride + column)
                       : make_uint4(0, 0, 0, 0);
    }
  }
  // Writes them to `place` as tiles of rows (simt_warpgroup.h). Lane 4 g + t has the columns that are
  // 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of the first product of 16 columns, and those of the second one. Eight
  // rows lie in different banks.
  LOCI_DEVICE void store(std::byte* place) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kSteps; ++i) {
      const std::uint32_t at = row(i), first = block(i) % 2 * 4;
      std::byte* to = place + block(i) / 2 * Shape::kTileBytes + at * 128 + lane_id() % 4 * 4;
      store_for_products(to + ((first + 0) ^ (at & 7)) * 16, values_[i].x);
      store_for_products(to + ((first + 1) ^ (at & 7)) * 16, values_[i].y);
      store_for_products(to + ((first + 2) ^ (at & 7)) * 16, values_[i].z);
      store_for_products(to + ((first + 3) ^ (at & 7)) * 16, values_[i].w);
    }
  }

 private:
  LOCI_DEVICE static std::uint32_t row(std::uint32_t i) {
    return (warp_id() + i * (Shape::kThreads / 32)) % kRowGroups * 8 + lane_id() / 4;
  }
  LOCI_DEVICE static std::uint32_t block(std::uint32_t i) {
    return (warp_id() + i * (Shape::kThreads / 32)) / kRowGroups;
  }

  const ProductParams& p_;
  const RowTile& rows_;
  const T* const from_;
  uint4 values_[kSteps];
};

// sums[n]: of rows 8 n .. 8 n + 7 and the warp's 16 outputs, of units [begin, end). Each block begins with
// another unit: all of them read the same activations, and would wait for the same part of the second-level
// cache.
template <MatrixFormat F, class T, std::uint32_t kRows>
LOCI_DEVICE void multiply_units(const ProductParams& p, const BlockWork& work, std::uint32_t begin,
                                std::uint32_t end, std::byte* shared, float (&sums)[kRows / 8][4]) {
  using Shape = WarpgroupRowsShape<F, kRows>;
  std::byte* const stages = shared + 2 * Shape::kInputBytes;
  const TileCopy<F, Shape::kThreads> weights(
      p.weights + (std::uint64_t{work.rows.expert} * p.outputs + work.output) / kTileRows * p.tile_bytes,
      p.tile_bytes, (work.outputs + kTileRows - 1) / kTileRows);
  PermutedInput<F, T, kRows> input(p, work.rows);
  const std::uint32_t units = end - begin;
  const auto following = [&](std::uint32_t unit) { return unit + 1 < end ? unit + 1 : begin; };
  std::uint32_t copying = begin + blockIdx.y % units, loading = copying;
#pragma unroll
  for (std::uint32_t s = 0; s + 1 < Shape::kStages; ++s) {
    if (s < units) weights.copy(stages + s * Shape::kWeightBytes, copying);
    copying = following(copying);
    copy_async_commit();
  }
  await_previous();
  input.load(loading);
  BlockFragments fragments[2];  // those of a unit's last block are read until the next unit's barrier
  std::uint32_t reading = 0, writing = Shape::kStages - 1, place = 0;
  for (std::uint32_t i = 0; i < units; ++i) {
    // The products of two units before, which read this place, were awaited before the last barrier.
    std::byte* const inputs = shared + place * Shape::kInputBytes;
    input.store(inputs);
    publish_shared();
    wait_products<0>(sums);
    copy_async_wait<Shape::kStages - 2>();
    __syncthreads();  // the unit is there for all threads, and all are done with the stage that is
                      // overwritten next
    if (i + Shape::kStages - 1 < units) weights.copy(stages + writing * Shape::kWeightBytes, copying);
    copying = following(copying);
    copy_async_commit();
    loading = following(loading);
    if (i + 1 < units) input.load(loading);
    PackedUnit<F> packed;
    packed.load(stages + reading * Shape::kWeightBytes + warp_id() * unit_bytes(F), lane_id(), read_shared);
    const unsigned tile = shared_address(inputs);
#pragma unroll
    for (int block = 0; block < static_cast<int>(Shape::kColumns / kBlockColumns); ++block) {
      BlockFragments& mine = fragments[block % 2];
      packed.template fragments<T>(block, mine);
      const unsigned at = tile + block / 2 * Shape::kTileBytes + block % 2 * 64;
      begin_products();
      multiply_registers_by_rows<T>(sums, mine.first, tile_of_rows(at));
      multiply_registers_by_rows<T>(sums, mine.second, tile_of_rows(at + 32));
      commit_products();
      wait_products<1>();  // the fragments of the block before may be overwritten
    }
    reading = reading + 1 == Shape::kStages ? 0 : reading + 1;
    writing = writing + 1 == Shape::kStages ? 0 : writing + 1;
    place ^= 1;
  }
  wait_products<0>(sums);
  copy_async_wait<0>();
  __syncthreads();
}

#endif  // LOCI_WARPGROUPS

template <MatrixFormat F, class T, std::uint32_t kRows>
__global__ void __launch_bounds__((WarpgroupRowsShape<F, kRows>::kThreads),
                                  (WarpgroupRowsShape<F, kRows>::kBlocks)) warpgroup_rows(ProductParams p) {
#if LOCI_WARPGROUPS
  release_next();
  using Shape = WarpgroupRowsShape<F, kRows>;
  if (p.offsets != nullptr) await_previous();  // the kernels before compute which rows belong to which expert
  BlockWork work;
  work.rows = find_rows(p, kRows, blockIdx.x);
  if (work.rows.count == 0) return await_previous();
  work.output = blockIdx.y * kBigTileRows;
  work.outputs = min(kBigTileRows, p.outputs - work.output);
  const std::uint32_t first = p.partials != nullptr ? blockIdx.z : 0;
  const std::uint32_t last = p.partials != nullptr ? first + 1 : p.segments;
  auto* shared = shared_memory<std::byte>();
  shared += (1024 - shared_address(shared) % 1024) % 1024;
  auto* to = reinterpret_cast<float*>(shared);
  {
    float sums[kRows / 8][4] = {};
    multiply_units<F, T, kRows>(p, work, segment_begin(p, first) / Shape::kColumns,
                                segment_begin(p, last) / Shape::kColumns, shared, sums);
    const std::uint32_t g = lane_id() / 4, t = lane_id() % 4, output = warp_id() * kTileRows + g;
#pragma unroll
    for (std::uint32_t n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) {
        to[(8 * n + 2 * t + i % 2) * Shape::kSumStride + output + i / 2 * 8] = sums[n][i];
      }
    }
    __syncthreads();
  }
  store_block<Shape, T, kRows>(p, work, to);
#endif
}

template <MatrixFormat F, class T, std::uint32_t kRows>
void launch_warpgroup_rows(const ProductParams& p, Stream& stream) {
  launch_blocks<WarpgroupRowsShape<F, kRows>, kRows>("warpgroup_rows", warpgroup_rows<F, T, kRows>, p,
                                                     stream);
}

}  // namespace loci::cuda
