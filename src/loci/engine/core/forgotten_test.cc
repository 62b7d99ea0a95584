// SPDX-License-Identifier: Apache-2.0
// Deletions of long conversations: in portions, so that no step costs what all of them hold. (What is deleted
// and what stays: core_forget_test.cc.)
#include "loci/engine/core/forgotten.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <vector>

#include "loci/engine/testing/core_events_testing.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

constexpr std::uint32_t kOfTheFirst = 500;

// What the disk has: two conversations that go on from the same 40 blocks.
struct TwoConversations {
  CoreConfig config = tier_config(16, 0, 2 * kOfTheFirst);
  Tokens common = run_of(0, std::size_t{40} * kBlockTokens);
  Tokens first = common + tokens_of(1, std::size_t{kOfTheFirst - 40} * kBlockTokens);
  Tokens second = common + tokens_of(2, std::size_t{200} * kBlockTokens);
  LeftOnDisk disk{config};

  TwoConversations() {
    disk.add("group", first);
    disk.add("group", second);
  }
  TierDriver driver() const {
    TierDriver d(config, false);
    d.step(disk.events(2 * kOfTheFirst).front());
    d.record_changes.clear();  // what they have in common was there twice
    return d;
  }
};

// Ticks when the plans ask for them, until nothing waits. The steps.
std::size_t tick_until_forgotten(TierDriver& d, std::size_t& changes) {
  std::size_t steps = 0;
  for (; d.core.stats().forgets_waiting > 0; ++steps) {
    EXPECT_LT(d.plan.wake_at, d.now + kNanosPerSecond) << "it goes on without another event";
    d.now = d.plan.wake_at;
    d.record_changes.clear();
    d.step(Tick{});
    EXPECT_LE(d.record_changes.size(), kDropsInAStep);
    changes += d.record_changes.size();
  }
  return steps;
}

TEST(Forgotten, WhatGoesOnIsDroppedInPortions) {
  const TwoConversations world;
  TierDriver d = world.driver();
  const std::uint32_t known = 2 * kOfTheFirst - d.core.stats().tiers[2].free;
  ASSERT_EQ(known, kOfTheFirst + 200);
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = world.common});
  EXPECT_LE(d.record_changes.size(), kDropsInAStep);
  std::size_t changes = d.record_changes.size();
  const std::size_t steps = tick_until_forgotten(d, changes);
  EXPECT_EQ(changes, known) << "each is dropped once";
  EXPECT_GE(steps, known / kDropsInAStep);
  EXPECT_EQ(d.core.stats().tiers[2].free, 2 * kOfTheFirst);
}

TEST(Forgotten, AConversationIsDroppedInPortionsDownToWhatAnotherHangsFrom) {
  const TwoConversations world;
  TierDriver d = world.driver();
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = world.first});
  EXPECT_LE(d.record_changes.size(), kDropsInAStep);
  std::size_t changes = d.record_changes.size();
  tick_until_forgotten(d, changes);
  EXPECT_EQ(changes, kOfTheFirst - 40);
  EXPECT_EQ(d.core.stats().tiers[2].free, 2 * kOfTheFirst - 240);
}

// To give back the memory of a long text takes longer than a step may: whoever takes the plan does it.
TEST(Forgotten, WhatADeletionHeldGoesWithThePlan) {
  const TwoConversations world;
  TierDriver d = world.driver();
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = world.first});
  while (d.core.stats().forgets_waiting > 0) {
    ASSERT_TRUE(d.plan.spent.empty()) << "it is still needed";
    d.step(Tick{});
  }
  ASSERT_EQ(d.plan.spent.size(), 1u);
  EXPECT_EQ(*d.plan.spent.front().tokens, world.first);
  EXPECT_EQ(d.plan.spent.front().tokens.use_count(), 1) << "nobody else has it";
  EXPECT_GT(d.plan.spent.front().names.capacity(), kOfTheFirst);
}

// It is counted by the one block that is left: it holds no more (invariant 7, which each step checks).
TEST(Forgotten, WhatWaitsForItsFirstBlockHoldsNoMore) {
  TierDriver d(tier_config(64, 0, 128));
  const Tokens all = run_of(0, std::size_t{40} * kBlockTokens + 5);
  d.run(1, all);
  d.arrive(2, Tokens(all.begin(), all.begin() + kBlockTokens + 5), 4);
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = all});
  std::vector<SpentText> spent;
  for (int tick = 0; tick < 5; ++tick) std::ranges::copy(d.step(Tick{}).spent, std::back_inserter(spent));
  EXPECT_EQ(d.core.stats().forgets_waiting, 1u) << "the request uses the first block";
  ASSERT_EQ(spent.size(), 1u) << "the rest of its text";
  EXPECT_EQ(*spent.front().tokens, all);
  d.finish();
  d.step(Tick{});
  EXPECT_EQ(d.core.stats().forgets_waiting, 0u);
}

// More conversations are deleted at once than may wait. As nobody uses them, all are dropped.
TEST(Forgotten, ManyDeletionsAtOnceAreNotGivenUp) {
  const TwoConversations world;
  TierDriver d = world.driver();
  std::vector<TokenId> tokens = tokens_of(3, std::size_t{80} * kBlockTokens);
  for (std::uint32_t i = 0; i < 6000; ++i) {
    tokens[0] = TokenId(i);  // and so no block is another's
    d.step(Forget{.tenant = "group", .salt = {}, .tokens = tokens});
  }
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = world.common});
  EXPECT_GT(d.core.stats().forgets_waiting, 0u);
  EXPECT_LE(d.core.stats().forgets_waiting, kForgottenTokensMax / (80 * kBlockTokens) * 2);
  for (int i = 0; i < 20'000 && d.core.stats().forgets_waiting > 0; ++i) d.step(Tick{});
  EXPECT_EQ(d.core.stats().forgets_given_up_total, 0u);
  EXPECT_EQ(d.core.stats().tiers[2].free, 2 * kOfTheFirst);
}

TEST(Forgotten, TenantsTakeTurnsInPortions) {
  const TwoConversations world;
  TierDriver d = world.driver();
  for (std::uint32_t i = 0; i < 40; ++i)
    d.step(Forget{.tenant = "much", .salt = {}, .tokens = tokens_of(3 + i, std::size_t{400} * kBlockTokens)});
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = world.common});
  for (std::size_t i = 0; i < 6 * (kOfTheFirst + 200) / kDropsInAStep; ++i) d.step(Tick{});
  EXPECT_EQ(d.core.stats().tiers[2].free, 2 * kOfTheFirst);
  EXPECT_GT(d.core.stats().forgets_waiting, 0u) << "the other one's go on";
}

TEST(Forgotten, AStopWaitsForThePortions) {
  const TwoConversations world;
  TierDriver d = world.driver();
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = world.common});
  d.step(Drain{.deadline = d.now});
  EXPECT_FALSE(d.plan.drained);
  for (int i = 0; i < 200 && !d.plan.drained; ++i) d.step(Tick{});
  EXPECT_TRUE(d.plan.drained);
  EXPECT_EQ(d.core.stats().tiers[2].free, 2 * kOfTheFirst);
}

TEST(Forgotten, AStopWaitsForTheDisksEntriesUntilItsDeadline) {
  const TwoConversations world;
  TierDriver waits(world.config, false), ends(world.config, false);
  for (TierDriver* d : {&waits, &ends}) {
    d->step(Forget{.tenant = "group", .salt = {}, .tokens = world.common});
    d->step(Drain{.deadline = d->now + kNanosPerSecond});
    EXPECT_FALSE(d->plan.drained) << "the disk has said nothing yet";
    EXPECT_EQ(d->plan.wake_at, d->now + kNanosPerSecond);
  }
  waits.step(world.disk.events(2 * kOfTheFirst).front());
  for (int i = 0; i < 200 && !waits.plan.drained; ++i) waits.step(Tick{});
  EXPECT_TRUE(waits.plan.drained);
  EXPECT_EQ(waits.core.stats().tiers[2].free, 2 * kOfTheFirst);
  ends.now = ends.plan.wake_at;
  ends.step(Tick{});
  EXPECT_TRUE(ends.plan.drained) << "the disk does not answer";
}

// Somebody ends between two portions who has gone on with it: what that leaves goes, too.
TEST(Forgotten, WhatIsLeftBetweenPortionsGoesToo) {
  TwoConversations world;
  world.config.groups.front().block_count = 64;
  world.config.context_tokens = 64 * kBlockTokens;
  world.config.restore = "kv";
  TierDriver d = world.driver();
  d.arrive(1, Tokens(world.second.begin(), world.second.begin() + 50 * kBlockTokens + 1), 4);
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = world.common});
  d.finish();
  ASSERT_GT(d.core.stats().forgets_waiting, 0u);
  for (int i = 0; i < 200; ++i) d.step(Tick{});
  EXPECT_EQ(d.core.stats().tiers[2].free, 2 * kOfTheFirst);
  EXPECT_EQ(d.core.stats().tiers[0].free, 64u);
}

// Between two portions somebody goes on with it: what is used is waited for, the rest goes.
TEST(Forgotten, WhatIsUsedBetweenPortionsIsWaitedFor) {
  TwoConversations world;
  world.config.groups.front().block_count = 64;
  world.config.context_tokens = 64 * kBlockTokens;
  world.config.restore = "kv";
  TierDriver d = world.driver();
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = world.common});
  EXPECT_GT(d.core.stats().forgets_waiting, 0u);
  d.arrive(1, Tokens(world.second.begin(), world.second.begin() + 50 * kBlockTokens + 1), 4);
  for (int i = 0; i < 200; ++i) d.step(Tick{});
  EXPECT_EQ(d.core.stats().forgets_waiting, 1u) << "the request has its blocks";
  EXPECT_GE(d.core.stats().tiers[2].free, 2 * kOfTheFirst - 60) << "all others are gone";
  d.finish();
  for (int i = 0; i < 200; ++i) d.step(Tick{});
  EXPECT_EQ(d.core.stats().forgets_waiting, 0u);
  EXPECT_EQ(d.core.stats().tiers[2].free, 2 * kOfTheFirst);
  EXPECT_EQ(d.core.stats().tiers[0].free, 64u);
}

}  // namespace
}  // namespace loci
