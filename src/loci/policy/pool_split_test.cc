// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/pool_split.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

constexpr std::uint64_t kMib = 1 << 20;

TEST(PoolSplit, GivesOneGroupAllThatFits) {
  const PoolGroup group{.window = 0, .block_bytes = 3 * kMib};
  EXPECT_EQ(split_pool(10 * kMib, {&group, 1}, 8192), (std::vector<std::uint32_t>{3}));
  EXPECT_EQ(split_pool(2 * kMib, {&group, 1}, 8192), (std::vector<std::uint32_t>{0}));
  EXPECT_EQ(split_pool(3000 * kMib + 1, {&group, 1}, 8192), (std::vector<std::uint32_t>{1000}));
}

// Four layers of 26 see all, the others 512 tokens: 64 blocks and 18 for a conversation of 2,048 tokens.
TEST(PoolSplit, PoolsHoldAsManyConversations) {
  const std::vector<PoolGroup> groups = {{.window = 0, .block_bytes = 4 * kMib},
                                         {.window = 512, .block_bytes = 22 * kMib}};
  EXPECT_EQ(expected_tokens(groups, 32'768), 2048u);
  EXPECT_EQ(blocks_needed(groups[0], 2048), 64u);
  EXPECT_EQ(blocks_needed(groups[1], 2048), 18u);
  const std::uint64_t conversation = (64 * 4 + 18 * 22) * kMib;
  EXPECT_EQ(split_pool(10 * conversation, groups, 32'768), (std::vector<std::uint32_t>{640, 180}));
  EXPECT_EQ(split_pool(10 * conversation - 1, groups, 32'768), (std::vector<std::uint32_t>{639, 179}));
  for (std::uint64_t bytes = 0; bytes < 3 * conversation; bytes += 7 * kMib) {
    const auto slots = split_pool(bytes, groups, 32'768);
    EXPECT_LE(slots[0] * groups[0].block_bytes + slots[1] * groups[1].block_bytes, bytes);
  }
}

TEST(PoolSplit, ExpectsLongerConversationsOfWiderWindowsAndNoneAboveTheContext) {
  const std::vector<PoolGroup> wide = {{.window = 0, .block_bytes = 1}, {.window = 4096, .block_bytes = 1}};
  EXPECT_EQ(expected_tokens(wide, 32'768), 8192u);
  EXPECT_EQ(expected_tokens(wide, 5000), 5000u);
  EXPECT_EQ(expected_tokens(wide, 4096), 2048u) << "nothing is ever behind such a window";
  EXPECT_EQ(expected_tokens(wide, 100), 100u);
  EXPECT_EQ(blocks_needed(wide[1], 100), 4u);
}

}  // namespace
}  // namespace loci
