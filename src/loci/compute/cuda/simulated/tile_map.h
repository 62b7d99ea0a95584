// SPDX-License-Identifier: Apache-2.0
// How a map's words tell the simulated device of its shape.
#pragma once

#include "loci/compute/cuda/tile_map.h"

namespace loci::cuda::simulated {

TileMapShape shape_of(const TileMap& map);

}  // namespace loci::cuda::simulated
