// SPDX-License-Identifier: Apache-2.0
// Activations for the kernels of warpgroups (warpgroup_rows.h), which read them from shared memory by
// themselves: as tiles that lie in memory as they will lie there, so that one copy of bytes brings a unit of
// columns. A lane's fragments of weights have other columns than the tensor cores' order (fragments.h), so
// each 8 columns of a row become four pieces of two.
//
// [tile of rows][64 columns][row][128 bytes]: chunk c of 16 bytes of a row lies at c ^ row % 8; chunk 4 b + j
// has columns 8 t + 2 j and 8 t + 2 j + 1, of t = 0 to 3, of block b of 32 columns. Missing rows, and columns
// up to a multiple of 128, are zeros.
#pragma once

#include "loci/compute/cuda/products/product_kernels.h"

namespace loci::cuda {

// Arranges p.tiles tiles of p's input from tile p.first_tile on at p.arranged. Of a mixture, whose tiles may
// have no rows, those are left as they are.
void arrange_rows(const ProductParams& p, std::uint32_t tile_rows, Stream& stream);

}  // namespace loci::cuda
