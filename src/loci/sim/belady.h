// SPDX-License-Identifier: Apache-2.0
// Belady's bound: the most that any policy can find again in a given number of slots, even if it knows the
// future. Counted in blocks, or by what the blocks that are found are worth.
//
// A block that is kept from one use to the next takes a slot between them:
//
//   uses      A   B   A   C   B
//   kept      |-------|            A's second use is found: from 0 to 2
//                 |-----------|    B's second use is found: from 1 to 4
//
// A policy chooses intervals of which no more than `slots` lie over any point.
#pragma once

#include <cstdint>
#include <span>

namespace loci::sim {

// One use of a block, in the order of a run. Either a request needs the block, and computes it if it is not
// there; or a reply makes it.
struct BlockUse {
  std::uint64_t block = 0;
  bool needed = true;
  std::uint32_t position = 0;  // of its first token
};

// The largest number of uses that can find the block that they need. This is MIN with bypass: the block whose
// next use is farthest away is evicted, or is not taken in. All blocks count alike, whatever each costs to
// compute. O(uses log slots).
std::uint64_t most_found(std::span<const BlockUse> uses, std::uint64_t slots);

// What a policy finds that keeps the blocks that were used last, and drops a block that will never be needed
// again if it knows that.
enum class KnowsEnds : std::uint8_t { kNo, kYes };
std::uint64_t recent_found(std::span<const BlockUse> uses, std::uint64_t slots, KnowsEnds ends);

// At least as much as any policy can save if finding use i again is worth `worth[i]`. It is the least value
// found of the Lagrangian dual: with a price for a slot in each of `periods` equal parts of the run, the sum
// of what all slots cost, and of what intervals bring above their price. Any prices give an upper bound. With
// equal worths and prices that may change at each use the best one is most_found().
// O(uses rounds); the same result for the same input.
double most_saved(std::span<const BlockUse> uses, std::span<const double> worth, std::uint64_t slots,
                  std::uint32_t periods = 64, std::uint32_t rounds = 200);

}  // namespace loci::sim
