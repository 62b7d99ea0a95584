// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cuda/simulated/tile_map.h"

#include <cstring>

namespace loci::cuda {

bool make_tile_map(const TileMapShape& shape, TileMap& map) {
  // What the driver refuses.
  if (reinterpret_cast<std::uintptr_t>(shape.base) % 16 != 0) return false;
  for (const std::uint64_t size : shape.size) {
    if (size == 0 || size > std::uint64_t{1} << 32) return false;
  }
  for (const std::uint64_t stride : shape.stride_bytes) {
    if (stride % 16 != 0 || stride >= std::uint64_t{1} << 40) return false;
  }
  if (shape.box_rows == 0 || shape.box_rows > 256) return false;
  static_assert(sizeof(shape) <= sizeof(map));
  map = {};
  std::memcpy(map.words, &shape, sizeof(shape));
  return true;
}

namespace simulated {

TileMapShape shape_of(const TileMap& map) {
  TileMapShape shape;
  std::memcpy(&shape, map.words, sizeof(shape));
  return shape;
}

}  // namespace simulated
}  // namespace loci::cuda
