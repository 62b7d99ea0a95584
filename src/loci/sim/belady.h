// SPDX-License-Identifier: Apache-2.0
// Belady's bound: the largest number of blocks that any policy can find again in a given number of slots,
// even if it knows the future.
#pragma once

#include <cstdint>
#include <span>

namespace loci::sim {

// One use of a block, in the order of a run. Either a request needs the block, and computes it if it is not
// there; or a reply makes it.
struct BlockUse {
  std::uint64_t block = 0;
  bool needed = true;
};

// The largest number of uses that can find the block that they need. This is MIN with bypass: the block whose
// next use is farthest away is evicted, or is not taken in. All blocks count alike, whatever each costs to
// compute. O(uses log slots).
std::uint64_t most_found(std::span<const BlockUse> uses, std::uint64_t slots);

}  // namespace loci::sim
