// SPDX-License-Identifier: Apache-2.0
// Where queries, keys, values and scores lie in a thread block's shared memory: index arithmetic that kernels
// and the test of bank conflicts share. Units are bytes; a *chunk* is 16 of them, 8 values.
#pragma once

#include <cstdint>

#include "loci/compute/cuda/attention/attention.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

inline constexpr std::uint32_t kAttentionThreads = 128;  // of a thread block

// Rows of kHead values. The chunks of one column in eight neighbouring rows lie in different banks, and so do
// eight neighbouring chunks of one row. If a row is a multiple of 128 bytes its chunks are permuted for this;
// else each row has one more chunk.
template <int kHead>
struct RowLayout {
  static constexpr std::uint32_t kChunks = kHead / 8;
  static constexpr bool kPermuted = kChunks % 8 == 0;
  static constexpr std::uint32_t kStride = kPermuted ? kChunks : kChunks + 1;
  static_assert(kPermuted || kStride % 2 == 1);
  static constexpr std::uint32_t bytes(std::uint32_t rows) { return rows * kStride * 16; }
  LOCI_HOST_DEVICE static std::uint32_t offset(std::uint32_t row, std::uint32_t chunk) {
    return (row * kStride + (kPermuted ? chunk ^ (row & 7) : chunk)) * 16;
  }
};

// A decode tile's scores, f32 [16][64]: the rows' stride puts the eight-byte pieces that a fragment reads of
// four rows into different banks.
struct ScoreLayout {
  static constexpr std::uint32_t kStride = kAttentionTileKeys + 8;  // values
  static constexpr std::uint32_t kBytes = kAttentionDecodePairs * kStride * 4;
  LOCI_HOST_DEVICE static std::uint32_t index(std::uint32_t row, std::uint32_t key) {
    return row * kStride + key;
  }
};

// Head sizes above 128 have half the pairs in a prompt tile: their sums fill the registers.
template <int kHead>
struct TileShape {
  static constexpr int kRowTiles = kHead > 128 ? 1 : 2;  // a warp's, of 16 pairs
  static constexpr std::uint32_t kWarpPairs = 16 * kRowTiles;
  static constexpr std::uint32_t kPromptPairs = kAttentionThreads / 32 * kWarpPairs;
  static constexpr std::uint32_t kStageBytes = 2 * RowLayout<kHead>::bytes(kAttentionTileKeys);
  static constexpr std::uint32_t kDecodeBytes =
      RowLayout<kHead>::bytes(kAttentionDecodePairs) + ScoreLayout::kBytes;
  static constexpr std::uint32_t kPromptBytes = RowLayout<kHead>::bytes(kPromptPairs);
  static_assert(kPromptPairs == attention_prompt_pairs(kHead));
};

}  // namespace loci::cuda
