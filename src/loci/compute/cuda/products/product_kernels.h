// SPDX-License-Identifier: Apache-2.0
// Loci's own product kernels: the parameters of a launch, and the table of launchers by format.
//
// Order of sums, the same in all kernels but warpgroups' (warpgroup_rows.h), which deterministic mode has
// not. The columns are cut into steps of 128, and the steps into `segments` runs; both depend only on the
// matrix's shape. Within a segment an output is one chain of tensor core products, one block of 32 columns
// after the other. The sums of the segments are then added to zero, one after the other. Kernels differ only
// in which threads compute which segment, so a token's bits are the same in any batch.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "loci/compute/cuda/element_type.h"
#include "loci/compute/cuda/products/matrix_format.h"
#include "loci/compute/cuda/products/packed_layout.h"
#include "loci/compute/cuda/products/products.h"
#include "loci/compute/cuda/runtime.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

inline constexpr std::uint32_t kSegmentsMax = 8;
inline constexpr std::uint32_t kBigTileRows = 128;  // outputs of a block of many_rows

// The product with one part of a matrix. Sizes for an expert hold for every expert.
struct ProductParams {
  const std::byte* weights = nullptr;  // [experts * outputs] rows, or tiles of 16 of them
  std::uint64_t tile_bytes = 0;        // of a packed tile
  std::uint32_t outputs = 0;
  std::uint32_t columns = 0;
  std::uint32_t segments = 1;
  ProductOutput mode = ProductOutput::kElements;
  const void* input = nullptr;  // elements [rows][input_stride]
  std::uint32_t input_stride = 0;
  std::uint32_t rows = 0;
  void* output = nullptr;  // [rows][output_stride], at the part's first output
  std::uint32_t output_stride = 0;
  std::uint32_t bias_stride = 0;           // distance between experts' biases
  const float* bias = nullptr;             // [experts][outputs], or null
  const std::uint32_t* offsets = nullptr;  // [experts + 1], or null: there is one expert
  std::uint32_t experts = 1;
  // Only for launches that spread segments over blocks, else null: [tile of outputs and rows][segments][rows
  // of a tile][its outputs].
  float* partials = nullptr;
  // Only for warpgroups: room for the activations of `tiles` tiles of rows, the first of which is
  // `first_tile`.
  std::byte* arranged = nullptr;  // arranged_bytes() each; aligned to 16
  std::uint32_t first_tile = 0, tiles = 0;
};

// Where segment `index` begins, in columns; segment_begin(segments) is the end, columns rounded up to 128.
LOCI_HOST_DEVICE std::uint32_t segment_begin(const ProductParams& p, std::uint32_t index) {
  const std::uint32_t steps = padded_columns(p.columns) / kStepColumns;
  return static_cast<std::uint32_t>(std::uint64_t{steps} * index / p.segments) * kStepColumns;
}

// How many segments a matrix has: up to 8, of at least one step each. So products of few rows have small
// groups of outputs to divide among blocks (few_rows.h), which then end together.
constexpr std::uint32_t segments_of(std::uint32_t columns) {
  std::uint32_t segments = 1;
  while (segments < kSegmentsMax && 2 * segments <= padded_columns(columns) / kStepColumns) segments *= 2;
  return segments;
}

// How many tiles of `tile` rows a launch needs room for. Without experts: those of all rows. With experts,
// whose offsets the host does not know: the full tiles and one more for each expert, but at most one for each
// row.
constexpr std::uint32_t row_tiles(const ProductParams& p, std::uint32_t tile) {
  if (p.offsets == nullptr) return (p.rows + tile - 1) / tile;
  return std::min(p.rows, p.rows / tile + p.experts);
}

// Of a tile of rows whose activations are arranged for warpgroups (arranged_rows.h).
constexpr std::uint64_t arranged_bytes(std::uint32_t columns, std::uint32_t tile_rows) {
  return std::uint64_t{padded_columns(columns)} * tile_rows * 2;
}

// Outputs of a block of warpgroup_rows.
constexpr std::uint32_t warpgroup_outputs(std::uint32_t tile_rows) { return tile_rows == 128 ? 128 : 256; }

// Decodes packed weights to elements [outputs][columns].
struct DecodeParams {
  const std::byte* weights = nullptr;  // of the first tile
  std::uint64_t tile_bytes = 0;
  std::uint32_t outputs = 0;
  std::uint32_t columns = 0;
  void* output = nullptr;
};

// The launchers of a format. Few: tiles of up to 8 rows, and a warp for each segment (few_rows.h). Many:
// blocks of 16, 32, 64 or 128 rows and 128 outputs, through shared memory (many_rows.h). Warpgroup: of 64 or
// 128 rows, on Hopper alone, with other sums' order (warpgroup_rows.h).
inline constexpr std::uint32_t kFewRows = 8;
struct ProductLaunchers {
  void (*few)(const ProductParams&, Stream&);
  void (*many16)(const ProductParams&, Stream&);
  void (*many32)(const ProductParams&, Stream&);
  void (*many64)(const ProductParams&, Stream&);
  void (*many128)(const ProductParams&, Stream&);
  // Null for matrices of elements.
  void (*warpgroup64)(const ProductParams&, Stream&) = nullptr;
  void (*warpgroup128)(const ProductParams&, Stream&) = nullptr;
  void (*decode)(const DecodeParams&, Stream&) = nullptr;
};

// Half matrices have Half elements, BFloat16 matrices BFloat16 elements; packed matrices have either.
const ProductLaunchers& product_launchers(MatrixFormat format, ElementType type);

// The table's rows, each in a source of its own, so that they compile in parallel.
extern const ProductLaunchers kHalfProducts, kBFloat16Products;
extern const ProductLaunchers kQ8_0Products[2], kQ4_0Products[2], kQ4_1Products[2], kQ4_KProducts[2],
    kQ6_KProducts[2];  // [ElementType]

}  // namespace loci::cuda
