// SPDX-License-Identifier: Apache-2.0
// Models whose layers have windows, as the core serves them: what a request holds, and where it goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_driver_testing.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

CoreConfig window_config(std::vector<CoreGroup> groups, std::uint32_t batch) {
  CoreConfig config = config_of(64, batch);
  config.groups = std::move(groups);
  return config;
}

std::uint32_t held(const BlockTable& table) {
  return static_cast<std::uint32_t>(table.blocks.size()) -
         static_cast<std::uint32_t>(std::count(table.blocks.begin(), table.blocks.end(), kNoSlot));
}

// What a pass was given stays, while its request's window moves on and its table grows.
TEST(CoreWindows, APassKeepsTheTablesThatItBeganWith) {
  CoreDriver d(window_config({{0, 64}, {64, 8}}, 64));
  d.arrive(1, run_of(0, 500), 200);
  struct Seen {
    SharedSlots slots;
    std::vector<SlotId> then;
  };
  std::vector<Seen> seen;
  for (; d.in_flight; d.done()) {
    for (const BlockTable& table : d.in_flight->pass->spans.front().tables)
      seen.push_back({table.blocks, {table.blocks.begin(), table.blocks.end()}});
  }
  ASSERT_GT(seen.size(), 400u);
  for (const Seen& one : seen) ASSERT_TRUE(std::ranges::equal(one.slots, one.then));
}

TEST(CoreWindows, ALongPromptNeedsNoMoreThanItsWindowAndAChunk) {
  CoreDriver d(window_config({{0, 64}, {64, 6}}, 64));
  d.arrive(1, run_of(0, 1000), 200);
  while (d.in_flight) {
    const std::vector<BlockTable>& tables = d.in_flight->pass->spans[0].tables;
    EXPECT_EQ(held(tables[0]), tables[0].blocks.size());
    EXPECT_LE(held(tables[1]), 6u);
    d.done();
  }
  EXPECT_EQ(d.finished(1).usage.completion_tokens, 200u);
  EXPECT_EQ(d.finished(1).usage.suspensions, 0u);
  EXPECT_GT(d.core.stats().evictions_total, 20u) << "of what lies behind";
  EXPECT_EQ(d.core.stats().pools[1].blocks_pinned, 0u);
}

TEST(CoreWindows, GoesOnWhereEveryGroupHasWhatIsSeen) {
  CoreDriver d(window_config({{0, 64}, {64, 40}}, 512));
  d.arrive(1, run_of(0, 300), 1);
  d.finish();
  // The end is there, and so is all else while the pool has room.
  d.arrive(2, run_of(0, 300) + run_of(900, 10), 1);
  EXPECT_EQ(d.spans(), "2:300+10");
  EXPECT_EQ(d.all<Started>().back().cached_tokens, 300u);
  EXPECT_EQ(held(d.plan.pass->spans[0].tables[1]), 3u) << "tokens 237 to 309";
  d.finish();
  d.arrive(3, run_of(0, 150) + run_of(700, 10), 1);
  EXPECT_EQ(d.spans(), "3:150+10");
  d.finish();
}

TEST(CoreWindows, WhatAWindowLacksIsComputedAndNotWrittenWhereItIsThere) {
  CoreConfig config = window_config({{0, 64}, {64, 6}}, 64);
  CoreDriver d(config);
  d.arrive(1, run_of(0, 300), 1);
  for (; d.in_flight; ++d.now) d.done();
  // Half of it was evicted from the window's pool: a fork there starts anew, the end is still known.
  d.arrive(2, run_of(0, 300) + run_of(900, 3), 1);
  EXPECT_EQ(d.spans(), "2:300+3");
  d.finish();
  d.arrive(3, run_of(0, 150) + run_of(700, 10), 1);
  EXPECT_EQ(d.spans(), "3:0+64");
  EXPECT_EQ(d.plan.pass->spans[0].tables[0].write_from, 64u) << "all layers see it there already";
  EXPECT_EQ(d.plan.pass->spans[0].tables[1].write_from, 0u);
  EXPECT_EQ(d.all<Started>().back().cached_tokens, 0u);
  d.finish();
}

TEST(CoreWindows, WhereRequestsPartIsKeptLongerThanWhatLiesBehind) {
  // Each of them goes on for twice the pool behind the common begin of 100 tokens.
  CoreConfig config = window_config({{0, 200}, {64, 16}}, 64);
  CoreDriver d(config);
  const auto ask = [&](std::uint64_t id) {
    d.arrive(id, run_of(0, 100) + run_of(static_cast<std::uint32_t>(1000 * id), 900), 1);
    for (; d.in_flight; ++d.now) d.done();
    return d.finished(id).usage.cached_tokens;
  };
  EXPECT_EQ(ask(1), 0u);
  EXPECT_EQ(ask(2), 0u) << "the first did not know that others would part there";
  EXPECT_EQ(ask(3), 96u) << "the last whole block before it";
  EXPECT_EQ(ask(4), 96u);
}

TEST(CoreWindows, AllLayersMayHaveOne) {
  CoreDriver d(window_config({{32, 3}}, 100));
  d.arrive(1, run_of(0, 500), 100);
  d.arrive(2, run_of(600, 40), 10);
  d.finish();
  EXPECT_EQ(d.finished(1).usage.completion_tokens, 100u);
  EXPECT_EQ(d.finished(2).usage.completion_tokens, 10u);
  EXPECT_EQ(d.finished(1).usage.suspensions + d.finished(2).usage.suspensions, 0u);
}

// Conversations with one small device take turns. Who goes on right after its own end finds all but the last
// token, which no pass has computed.
TEST(CoreWindows, RightAfterAnEndTheNextTurnFindsAllOfIt) {
  Random random(1);
  std::uint32_t went_on = 0;
  for (int world = 0; world < 60; ++world) {
    CoreConfig config = tier_config(static_cast<std::uint32_t>(6 + random.below(10)), 0, 64);
    if (random.below(2) == 0) config.groups.front().host_blocks = 8;
    config.save = random.below(2) == 0 ? "through" : "ahead";
    const std::size_t tokens_max = config.groups.front().block_count * std::size_t{kBlockTokens};
    if (world % 2 == 0) {
      config.max_batch_tokens = 64;
      config.groups.push_back(config.groups.front());
      config.groups.back().window = 64;
      config.groups.back().block_count = static_cast<std::uint32_t>(6 + random.below(6));
    }
    TierDriver d(config);
    std::vector<Tokens> talks(3);
    std::size_t last = 0;
    for (std::uint64_t id = 1; id <= 20; ++id) {
      const bool goes_on = id > 1 && random.below(2) == 0;
      const std::size_t talk = goes_on ? last : random.below(talks.size());
      Tokens& tokens = talks[talk];
      const std::size_t known = goes_on ? tokens.size() : 0;
      const auto add = static_cast<std::uint32_t>(1 + random.below(40));
      const auto say = static_cast<std::uint32_t>(1 + random.below(40));
      last = talk;
      if (tokens.size() + add + say > tokens_max) {
        tokens.clear();
        continue;
      }
      tokens = tokens + run_of(static_cast<std::uint32_t>(1000 * id), add);
      d.arrive(id, tokens, say);
      while (d.starts.empty() || d.starts.back().request != RequestId(id)) {
        ASSERT_TRUE(d.in_flight || !d.moves.empty());
        d.end_moves();
        if (d.in_flight) d.done();
      }
      went_on += known > 0 ? 1 : 0;
      ASSERT_GE(d.starts.back().cached_tokens + 1, known) << "world " << world << ", request " << id;
      while (d.in_flight) {
        if (random.below(3) == 0) d.end_moves();
        if (d.in_flight) d.done();
      }
      if (random.below(3) == 0) d.end_moves();
      tokens.insert(tokens.end(), say, TokenId(7));
    }
  }
  EXPECT_GT(went_on, 200u);
}

}  // namespace
}  // namespace loci
