// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/products/arranged_rows.h"

#include "loci/compute/cuda/launch.h"
#include "loci/compute/cuda/products/product_parts.h"

namespace loci::cuda {
namespace {

constexpr std::uint32_t kThreads = 256;
constexpr std::uint32_t kChunks = 8;  // of a row of 64 columns

struct ArrangeParams {
  ProductParams p;
  std::uint32_t tile_rows;
};

// Grid: (tiles, columns / 64). A thread has a chunk of some rows.
__global__ void __launch_bounds__(kThreads) arrange(ArrangeParams all) {
  follow_previous();
  const ProductParams& p = all.p;
  const RowTile rows = find_rows(p, all.tile_rows, p.first_tile + blockIdx.x);
  if (rows.count == 0) return;
  std::byte* const to =
      p.arranged + (std::uint64_t{blockIdx.x} * gridDim.y + blockIdx.y) * all.tile_rows * (kChunks * 16);
  const std::uint32_t chunk = threadIdx.x % kChunks;
  const std::uint32_t column = blockIdx.y * 64 + chunk / 4 * kBlockColumns, pair = chunk % 4 * 2;
  for (std::uint32_t row = threadIdx.x / kChunks; row < all.tile_rows; row += kThreads / kChunks) {
    const auto* from = static_cast<const std::uint16_t*>(p.input) +
                       std::uint64_t{rows.first + row} * p.input_stride + column + pair;
    std::uint32_t words[4];
#pragma unroll
    for (std::uint32_t t = 0; t < 4; ++t) {
      const bool there = row < rows.count && column + 8 * t < p.columns;
      words[t] = there ? *reinterpret_cast<const std::uint32_t*>(from + 8 * t) : 0;
    }
    *reinterpret_cast<uint4*>(to + row * (kChunks * 16) + (chunk ^ (row & 7)) * 16) =
        make_uint4(words[0], words[1], words[2], words[3]);
  }
}

}  // namespace

void arrange_rows(const ProductParams& p, std::uint32_t tile_rows, Stream& stream) {
  launch("arrange_rows", arrange,
         {.grid = {p.tiles, padded_columns(p.columns) / 64}, .block = {kThreads}, .shared_bytes = 0},
         ArrangeParams{p, tile_rows}, stream);
}

}  // namespace loci::cuda
