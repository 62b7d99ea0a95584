// SPDX-License-Identifier: Apache-2.0
// State that gives the device's memory back (device_memory.h).
#include "loci/engine/core/device_memory.h"

#include <gtest/gtest.h>

#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

PoolStats pool(const TierDriver& d) { return d.core.stats().pools[0]; }

TEST(DeviceMemory, IsHeldForWhatWasUsedAlone) {
  TierDriver d(tier_config(100, 0, 0));
  EXPECT_EQ(pool(d).blocks_held, 0u);
  EXPECT_EQ(pool(d).blocks_room, 100u);
  d.run(1, run_of(0, 70));
  EXPECT_EQ(pool(d).blocks_held, 3u);
  d.run(2, run_of(0, 70));
  EXPECT_EQ(pool(d).blocks_held, 3u) << "the same blocks";
}

TEST(DeviceMemory, WhatIsKeptBeyondTheRoomGoesTheLeastValuableFirst) {
  TierDriver d(tier_config(100, 0, 0));
  for (std::uint64_t i = 1; i <= 5; ++i) {
    d.now += kNanosPerSecond;
    d.run(i, run_of(static_cast<std::uint32_t>(1000 * i), 4 * kBlockTokens + 1));
  }
  ASSERT_EQ(pool(d).blocks_held, 25u);
  d.step(MemoryRoom{{10}});
  EXPECT_EQ(d.plan.give_back.size(), 15u);
  EXPECT_EQ(pool(d).blocks_held, 10u);
  EXPECT_EQ(pool(d).blocks_free, 90u);
  EXPECT_EQ(d.core.stats().given_back_total, 15u);
  d.run(6, run_of(5000, 4 * kBlockTokens + 2));
  EXPECT_GE(d.starts.back().cached_tokens, 4 * kBlockTokens) << "what was used last is there";
  EXPECT_LE(pool(d).blocks_held, 10u);
  d.run(7, run_of(1000, 4 * kBlockTokens + 2));
  EXPECT_EQ(d.starts.back().cached_tokens, 0u) << "what was used first is not";
  EXPECT_LE(pool(d).blocks_held, 10u) << "new state takes the place of old";
}

TEST(DeviceMemory, MuchIsGivenBackInManySteps) {
  TierDriver d(tier_config(200, 0, 0));
  d.run(1, run_of(0, 100 * kBlockTokens));
  ASSERT_GE(pool(d).blocks_held, 100u);
  d.step(MemoryRoom{{0}});
  std::size_t gone = d.plan.give_back.size(), steps = 1;
  EXPECT_LT(gone, 50u) << "no step does it all";
  while (d.plan.wake_at != kNever) {
    ASSERT_LT(steps++, 100u);
    d.now = d.plan.wake_at;
    d.step(Tick{});
    gone += d.plan.give_back.size();
  }
  EXPECT_GE(gone, 100u);
  EXPECT_EQ(pool(d).blocks_held, 0u);
}

TEST(DeviceMemory, RequestsThatRunTakeWhatTheyNeedAndNobodyIsAdmittedBesideThem) {
  TierDriver d(tier_config(40, 0, 0));
  d.step(MemoryRoom{{4}});
  d.arrive(1, run_of(0, 10 * kBlockTokens), 40);
  EXPECT_EQ(d.core.stats().running, 1u) << "who is alone has the pool";
  d.done();
  EXPECT_TRUE(d.plan.give_back.empty()) << "nothing of what it needs goes";
  d.arrive(2, run_of(5000, kBlockTokens), 4);
  d.done();
  EXPECT_EQ(d.core.stats().running, 1u);
  EXPECT_EQ(d.core.stats().queued, 1u);
  d.finish();
  EXPECT_EQ(d.ends.size(), 2u) << "it had its turn";
  EXPECT_EQ(d.core.stats().suspensions_total, 0u);
  EXPECT_LE(pool(d).blocks_held, 4u);
}

// Else one tenant's long replies would have all of the room until they end, and everybody would wait behind
// the first of another one.
TEST(DeviceMemory, WhoHasMoreThanItsShareOfTheRoomGivesWay) {
  TierDriver d(tier_config(40, 0, 0));
  d.step(MemoryRoom{{12}});
  d.arrive(1, run_of(0, 2 * kBlockTokens), 20 * kBlockTokens, "a");
  d.arrive(2, run_of(1000, 2 * kBlockTokens), 20 * kBlockTokens, "a");
  d.arrive(3, run_of(2000, 2 * kBlockTokens), 20 * kBlockTokens, "a");
  for (std::uint32_t i = 0; i < kBlockTokens; ++i) d.done();
  ASSERT_EQ(d.core.stats().running, 3u);
  d.arrive(4, run_of(5000, 4 * kBlockTokens), 2, "b");
  // Once it was given as much more as it will compute again.
  for (std::uint32_t i = 0; i < 2 * kBlockTokens && d.ends.empty(); ++i) d.done();
  EXPECT_GE(d.core.stats().suspensions_total, 1u);
  ASSERT_EQ(d.ends.size(), 1u);
  EXPECT_EQ(d.ends[0].request, RequestId(4));
  d.finish();
  EXPECT_EQ(d.ends.size(), 4u);
}

TEST(DeviceMemory, AQuarterOfThePoolIsForThoseThatRunHoweverSmallTheRoom) {
  TierDriver d(tier_config(100, 0, 0));
  d.step(MemoryRoom{{4}});
  d.arrive(1, run_of(0, 10 * kBlockTokens), 40);
  d.arrive(2, run_of(5000, kBlockTokens), 40);
  d.done();
  EXPECT_EQ(d.core.stats().running, 2u);
}

TEST(DeviceMemory, WhoWaitsForTheRoomComesWhenThereIsSome) {
  TierDriver d(tier_config(40, 0, 0));
  d.step(MemoryRoom{{4}});
  d.arrive(1, run_of(0, 10 * kBlockTokens), 40);
  d.arrive(2, run_of(5000, kBlockTokens), 40);
  d.done();
  ASSERT_EQ(d.core.stats().running, 1u);
  d.step(MemoryRoom{{40}});
  d.done();
  EXPECT_EQ(d.core.stats().running, 2u);
}

TEST(DeviceMemory, WhatMovesStaysUntilItHasMoved) {
  TierDriver d(tier_config(20, 20, 0));
  d.arrive(1, run_of(0, 4 * kBlockTokens), 1);
  d.done();
  ASSERT_GT(d.moves.size(), 0u) << "saves are in flight";
  const std::size_t saving = d.moves.size();
  d.step(MemoryRoom{{0}});
  EXPECT_EQ(pool(d).blocks_held, saving);
  d.end_moves();
  EXPECT_EQ(pool(d).blocks_held, 0u);
  d.arrive(2, run_of(0, 4 * kBlockTokens));
  EXPECT_GT(d.count(Tier::kHost, Tier::kDevice), 0u) << "and comes back from where it was saved";
}

TEST(DeviceMemory, ARoomThatIsNotSpokenOfIsThePool) {
  TierDriver d(tier_config(20, 0, 0));
  d.step(MemoryRoom{});
  EXPECT_EQ(pool(d).blocks_room, 20u);
  d.step(MemoryRoom{{1000, 5}});
  EXPECT_EQ(pool(d).blocks_room, 20u);
}

}  // namespace
}  // namespace loci
