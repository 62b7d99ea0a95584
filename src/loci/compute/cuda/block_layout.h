// SPDX-License-Identifier: Apache-2.0
// Where in device memory a token's keys and values are. A group's pool is [slot][layer of the group][K: kv
// head, token, dim | V: kv head, token, dim], 16-bit values: a block's part is contiguous, one layer of it is
// contiguous, and so are the 32 keys of one head, which attention reads as a tile.
#pragma once

#include <cstddef>
#include <cstdint>

#include "loci/compute/cuda/simt.h"

namespace loci::cuda {

// One layer of a group's pool. Passed to kernels by value.
struct LayerState {
  std::byte* base = nullptr;      // of slot 0's slice of this layer
  std::uint64_t slot_stride = 0;  // bytes between slots: the group's block_bytes
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;

  LOCI_HOST_DEVICE std::uint64_t head_bytes() const { return std::uint64_t{head_dim} * 32 * 2; }
  // The keys of one head in a block: [32][head_dim].
  LOCI_HOST_DEVICE std::byte* keys(std::uint32_t slot, std::uint32_t head) const {
    return base + slot * slot_stride + head * head_bytes();
  }
  LOCI_HOST_DEVICE std::byte* values(std::uint32_t slot, std::uint32_t head) const {
    return base + slot * slot_stride + (kv_heads + head) * head_bytes();
  }
};

}  // namespace loci::cuda
