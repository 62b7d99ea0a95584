// SPDX-License-Identifier: Apache-2.0
// Sums of segments that are spread over blocks (ProductParams::partials), added up by a kernel of their own.
// (The last block of each tile did this once; an H200 spent a third of a product on waiting for these few
// blocks.)
#pragma once

#include "loci/compute/cuda/products/product_kernels.h"

namespace loci::cuda {

struct SegmentsParams {
  ProductParams p;
  std::uint32_t tile_rows = 0, tile_outputs = 0;
  std::uint32_t row_tiles = 0;
};

// Adds the segments' sums of each output to zero, in their order, and stores what that gives.
void add_segments(const SegmentsParams& params, ElementType type, Stream& stream);

}  // namespace loci::cuda
