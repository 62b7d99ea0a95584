// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/eviction/rank_nodes.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "loci/base/random.h"

namespace loci {
namespace {

using Rank = std::tuple<std::uint32_t, BlockId>;

// Blocks come, go and change between two sets, at any rank and at the last one.
TEST(RankNodes, KeepTheOrderOfPlainSets) {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    RankNodes<Rank> nodes;
    std::array<std::set<Rank>, 2> sets;
    std::array<std::set<Rank>, 2> plain;
    std::map<BlockId, std::pair<std::size_t, Rank>> where;
    for (std::uint32_t step = 0; step < 2000; ++step) {
      const BlockId block(static_cast<std::uint32_t>(random.below(60)));
      if (const auto found = where.find(block); found != where.end()) {
        const auto& [set, rank] = found->second;
        nodes.erase(sets[set], block, rank);
        plain[set].erase(rank);
        where.erase(found);
      } else {
        const std::size_t set = random.below(2);
        const auto at = static_cast<std::uint32_t>(random.below(3) == 0 ? random.below(step + 1) : step);
        const Rank rank(at, block);
        nodes.insert(sets[set], block, rank);
        plain[set].insert(rank);
        where.emplace(block, std::pair(set, rank));
      }
      ASSERT_EQ(sets, plain) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(RankNodesDeathTest, RefuseWhatIsNotInTheOrder) {
  RankNodes<Rank> nodes;
  std::set<Rank> set;
  const BlockId block(7);
  nodes.insert(set, block, {3, block});
  EXPECT_DEATH(nodes.insert(set, block, {4, block}), "in the order once");
  EXPECT_DEATH(nodes.erase(set, block, {4, block}), "only what is in the order leaves it");
  EXPECT_DEATH(nodes.erase(set, BlockId(8), {3, BlockId(8)}), "only what is in the order leaves it");
}

}  // namespace
}  // namespace loci
