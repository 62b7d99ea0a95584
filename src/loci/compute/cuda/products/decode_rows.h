// SPDX-License-Identifier: Apache-2.0
// Decodes packed weights to rows of elements, for a library's product with very many rows. They are decoded
// once for all rows, by the same instructions as in the other kernels.
//
// A warp decodes one unit of a tile. Grid: (tiles, units / warps).
#pragma once

#include <cstdint>

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_parts.h"

namespace loci::cuda {

inline constexpr std::uint32_t kDecodeWarps = 4;

template <MatrixFormat F, class T>
__global__ void __launch_bounds__(kDecodeWarps * 32) decode_rows(DecodeParams p) {
  follow_previous();
  constexpr std::uint32_t kColumns = unit_columns(F);
  const std::uint32_t unit = blockIdx.y * kDecodeWarps + warp_id();
  if (unit * kColumns >= p.columns) return;
  PackedUnit<F> weights;
  weights.load(p.weights + blockIdx.x * p.tile_bytes + std::uint64_t{unit} * unit_bytes(F), lane_id(),
               read_once);
  const std::uint32_t row = blockIdx.x * kTileRows + lane_id() / 4;
#pragma unroll
  for (std::uint32_t block = 0; block < kColumns / kBlockColumns; ++block) {
    BlockFragments of;
    weights.template fragments<T>(static_cast<int>(block), of);
    const std::uint32_t column = unit * kColumns + block * kBlockColumns + lane_id() % 4 * 8;
    if (column >= p.columns) continue;
    T* to = static_cast<T*>(p.output) + std::uint64_t{row} * p.columns + column;
    if (row < p.outputs) {
      *reinterpret_cast<uint4*>(to) = make_uint4(of.first[0], of.first[2], of.second[0], of.second[2]);
    }
    if (row + 8 < p.outputs) {
      *reinterpret_cast<uint4*>(to + 8ull * p.columns) =
          make_uint4(of.first[1], of.first[3], of.second[1], of.second[3]);
    }
  }
}

template <MatrixFormat F, class T>
void launch_decode_rows(const DecodeParams& p, Stream& stream) {
  LaunchShape shape;
  shape.grid = {ceil_div(p.outputs, kTileRows), ceil_div(p.columns, unit_columns(F) * kDecodeWarps), 1};
  shape.block = {kDecodeWarps * 32, 1, 1};
  launch("decode_rows", decode_rows<F, T>, shape, p, stream);
}

}  // namespace loci::cuda
