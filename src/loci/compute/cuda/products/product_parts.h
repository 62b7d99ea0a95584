// SPDX-License-Identifier: Apache-2.0
// Shared by the product kernels: which rows a block has, and how a sum becomes an output.
#pragma once

#include <cstdint>
#include <cstring>

#include "loci/compute/cuda/products/fragments.h"
#include "loci/compute/cuda/products/product_kernels.h"
#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

struct RowTile {
  std::uint32_t expert = 0;
  std::uint32_t first = 0;  // row
  std::uint32_t count = 0;  // 0: nothing to do
};

// The rows of tile number `index`; a tile has at most `tile` rows. In a mixture experts without rows have no
// tiles. All lanes of a warp call it together.
LOCI_DEVICE RowTile find_rows(const ProductParams& p, std::uint32_t tile, std::uint32_t index) {
  if (p.offsets == nullptr) return {0, index * tile, min(tile, p.rows - index * tile)};
  const std::uint32_t lane = lane_id();
  std::uint32_t before = 0;  // tiles of the experts so far
  for (std::uint32_t base = 0; base < p.experts; base += 32) {
    const std::uint32_t expert = base + lane;
    const std::uint32_t begin = expert < p.experts ? p.offsets[expert] : 0;
    const std::uint32_t end = expert < p.experts ? p.offsets[expert + 1] : 0;
    const std::uint32_t tiles = (end - begin + tile - 1) / tile;
    std::uint32_t through = tiles;  // of this expert and those before it
    for (unsigned step = 1; step < 32; step *= 2) {
      const std::uint32_t other = __shfl_up_sync(~0u, through, step);
      if (lane >= step) through += other;
    }
    const unsigned beyond = __ballot_sync(~0u, before + through > index);
    if (beyond != 0) {
      const int owner = __ffs(static_cast<int>(beyond)) - 1;
      const std::uint32_t ahead = index - before - __shfl_sync(~0u, through - tiles, owner);
      const std::uint32_t first = __shfl_sync(~0u, begin, owner) + ahead * tile;
      const std::uint32_t last = __shfl_sync(~0u, end, owner);
      return {base + static_cast<std::uint32_t>(owner), first, min(tile, last - first)};
    }
    before += __shfl_sync(~0u, through, 31);
  }
  return {};
}

// Rounds to an element. f16 values that are too large become the largest one: an activation that overflows
// would make all later ones NaN. (The library makes them infinite: ProductOutput::kElements.)
template <class T>
LOCI_DEVICE T to_element(float v) {
  return from_float<T>(v);
}
template <>
LOCI_DEVICE Half to_element<Half>(float v) {
  constexpr float kMax = 65504.0f;
  return from_float<Half>(v > kMax ? kMax : v < -kMax ? -kMax : v);  // NaN stays NaN
}

template <class T>
LOCI_DEVICE void store_sum(const ProductParams& p, std::uint32_t expert, std::uint32_t row,
                           std::uint32_t output, float sum) {
  const float value = p.bias == nullptr ? sum : sum + p.bias[std::uint64_t{expert} * p.bias_stride + output];
  const std::uint64_t at = std::uint64_t{row} * p.output_stride + output;
  if (p.mode == ProductOutput::kElements) {
    static_cast<T*>(p.output)[at] = to_element<T>(value);
  } else if (p.mode == ProductOutput::kFloats) {
    static_cast<float*>(p.output)[at] = value;
  } else {
    static_cast<float*>(p.output)[at] += value;
  }
}

// store_sum() of four neighbouring outputs, or of fewer at the end of a row, at once where they are aligned.
template <class T>
class StoreFour {
 public:
  LOCI_DEVICE explicit StoreFour(const ProductParams& p)
      : p_(p), aligned_(p.output_stride % 4 == 0 && reinterpret_cast<std::uintptr_t>(p.output) % 16 == 0) {}

  LOCI_DEVICE void operator()(std::uint32_t expert, std::uint32_t row, std::uint32_t output,
                              std::uint32_t count, float4 sums) const {
    if (!aligned_ || count < 4 || output % 4 != 0) {
      const float each[4] = {sums.x, sums.y, sums.z, sums.w};
#pragma unroll
      for (std::uint32_t i = 0; i < 4; ++i) {
        if (i < count) store_sum<T>(p_, expert, row, output + i, each[i]);
      }
      return;
    }
    if (p_.bias != nullptr) {
      const float* bias = p_.bias + std::uint64_t{expert} * p_.bias_stride + output;
      sums.x += bias[0], sums.y += bias[1], sums.z += bias[2], sums.w += bias[3];
    }
    const std::uint64_t at = std::uint64_t{row} * p_.output_stride + output;
    if (p_.mode == ProductOutput::kElements) {
      const T four[4] = {to_element<T>(sums.x), to_element<T>(sums.y), to_element<T>(sums.z),
                         to_element<T>(sums.w)};
      uint2 bits;
      memcpy(&bits, four, sizeof(bits));
      *reinterpret_cast<uint2*>(static_cast<T*>(p_.output) + at) = bits;
      return;
    }
    auto* to = reinterpret_cast<float4*>(static_cast<float*>(p_.output) + at);
    if (p_.mode == ProductOutput::kAdded) {
      const float4 before = *to;
      sums.x += before.x, sums.y += before.y, sums.z += before.z, sums.w += before.w;
    }
    *to = sums;
  }

 private:
  const ProductParams& p_;
  const bool aligned_;
};

LOCI_DEVICE uint4 read_once(const std::byte* from) { return load_once(reinterpret_cast<const uint4*>(from)); }
LOCI_DEVICE uint4 read_shared(const std::byte* from) { return *reinterpret_cast<const uint4*>(from); }

// For 16-bit matrices: the lane's 16 bytes of rows g and g + 8 in each block of a unit.
template <int kBlocks>
struct PlainUnit {
  uint4 rows[kBlocks][2];  // [block][row half]
  LOCI_DEVICE void fragments(int block, BlockFragments& to) const {
    set_fragments(rows[block][0], rows[block][1], to);
  }
};

}  // namespace loci::cuda
