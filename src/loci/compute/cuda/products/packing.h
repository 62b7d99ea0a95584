// SPDX-License-Identifier: Apache-2.0
// Packs quantised rows of a model's file into tiles (packed_layout.h). Bits are moved and not changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "loci/compute/cuda/products/matrix_format.h"
#include "loci/model/tensor.h"

namespace loci::cuda {

// Bytes of a tile of a packed matrix of `columns`.
std::uint64_t tile_bytes(MatrixFormat format, std::uint32_t columns);

// A row of a tile; without a tensor it is all zeros.
struct TileRow {
  const TensorView* tensor = nullptr;
  std::uint64_t row = 0;
};

// Writes one tile. All tensors are of types that `format` holds, and `columns` wide. Pure.
void pack_tile(MatrixFormat format, std::uint32_t columns, std::span<const TileRow, 16> rows, std::byte* to);

}  // namespace loci::cuda
