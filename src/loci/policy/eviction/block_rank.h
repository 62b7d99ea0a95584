// SPDX-License-Identifier: Apache-2.0
// A block's rank in an order of eviction: what the order goes by first, what it goes by among equals, then
// the depth, the deepest first, then the block. Plain values, as RankRuns asks for; steps compare thousands.
#pragma once

#include <cstdint>

#include "loci/memory/eviction_order.h"

namespace loci {

struct BlockRank {
  std::int64_t first = 0, second = 0;  // the orders say what they are
  std::uint32_t height = 0;            // less where the block is deeper
  BlockId block;

  BlockRank() = default;
  BlockRank(std::int64_t by, std::int64_t among_equals, const EvictionFacts& facts, BlockId of)
      : BlockRank(by, among_equals, facts.depth, of) {}
  BlockRank(std::int64_t by, std::int64_t among_equals, std::uint32_t depth, BlockId of)
      : first(by), second(among_equals), height(UINT32_MAX - depth), block(of) {}

  friend bool operator==(const BlockRank&, const BlockRank&) = default;
  // (Without a branch: of two neighbours nobody can foretell which field decides.)
  friend bool operator<(const BlockRank& a, const BlockRank& b) {
    const auto rest = [](const BlockRank& rank) {
      return static_cast<__int128>(rank.second) << 64 |
             (static_cast<std::uint64_t>(rank.height) << 32 | rank.block.value);
    };
    return (a.first < b.first) | ((a.first == b.first) & (rest(a) < rest(b)));
  }
};

// What goes by the place in the queue: the last place first; before all those what has none.
inline std::int64_t queue_rank(const EvictionFacts& facts) {
  static_assert(kNotWanted == UINT32_MAX, "what is not wanted comes behind the window's tail");
  return std::int64_t{UINT32_MAX} - facts.wanted;
}

}  // namespace loci
