// SPDX-License-Identifier: Apache-2.0
// Maps of device memory for the copy engine of Hopper (simt_warpgroup.h, copy_tile_async()). Two
// implementations, as of runtime.h: CUDA's driver, and the simulated device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace loci::cuda {

// What a kernel gets: a __grid_constant__ parameter, or a part of one.
struct alignas(64) TileMap {
  std::uint64_t words[16];
};

// 16-bit elements in three dimensions, of which x is contiguous.
struct TileMapShape {
  const void* base = nullptr;          // a multiple of 16
  std::uint64_t size[3] = {1, 1, 1};   // elements; each at most 2^32
  std::uint64_t stride_bytes[2] = {};  // of y and z: multiples of 16, below 2^40
  std::uint32_t box_rows = 1;          // a box has 64 elements of x, so many of y (at most 256), one of z
};

// A box comes to shared memory as [y][64]: rows of 128 bytes whose 16-byte chunks are permuted: chunk ^ row %
// 8. What lies outside of the map (an index below zero too) becomes zeros. False: the driver refuses.
[[nodiscard]] bool make_tile_map(const TileMapShape& shape, TileMap& map);

}  // namespace loci::cuda
