// SPDX-License-Identifier: Apache-2.0
// Belady's bound: the most blocks that any placement can find again in so many slots, if it knows what comes.
#pragma once

#include <cstdint>
#include <span>

namespace loci::sim {

// Somebody needs a block, or it is only made (a reply's), in the order of a run. A block that was needed and
// not there is made.
struct BlockUse {
  std::uint64_t block = 0;
  bool needed = true;
};

// Of the uses that need a block, so many find it, at most: MIN with bypass (who has the farthest next use
// goes, or does not come in). Counts blocks alike, whatever each costs to make. O(uses log slots).
std::uint64_t most_found(std::span<const BlockUse> uses, std::uint64_t slots);

}  // namespace loci::sim
