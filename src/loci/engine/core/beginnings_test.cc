// SPDX-License-Identifier: Apache-2.0
// The ends of sequences in slower tiers (beginnings.h), case by case, with the core around them.
#include "loci/engine/core/beginnings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"
#include "loci/memory/partial_block.h"

namespace loci {
namespace {

// What the driver's disk has, for a process that begins anew.
Recovered recovered_of(const TierDriver& d) {
  Recovered event{{}, 0, true};
  for (const auto& [place, move] : d.disk)
    event.entries.push_back({move.entry, place.first, false, place.second});
  std::ranges::stable_sort(event.entries, {}, [](const RecoveredEntry& e) { return e.entry.depth; });
  return event;
}

std::vector<std::uint32_t> ends_of(const TierDriver& d) {
  std::vector<std::uint32_t> held;
  for (const auto& [place, move] : d.disk)
    if (place.first == 0 && is_partial(move.entry.tokens)) held.push_back(tokens_held(move.entry.tokens));
  std::ranges::sort(held);
  return held;
}

// The first of the moves that have begun ends.
void end_first(TierDriver& d, MoveResult result = MoveResult::kDone) {
  const OperationId first = d.moves.front().id;
  d.moves.erase(d.moves.begin());
  d.step(MovesEnded{{{first, result, 0}}});
}

TEST(Beginnings, NothingThatWasComputedIsComputedAgainAfterARestart) {
  TierDriver before(tier_config(8, 0, 32));
  before.run(1, run_of(0, 70));  // its one new token is sampled, and not computed
  TierDriver d(tier_config(8, 0, 32), false);
  d.step(recovered_of(before));
  d.arrive(2, run_of(0, 75));
  ASSERT_EQ(d.moves.size(), 3u) << "the end first, and behind it all that is before it";
  EXPECT_EQ(tokens_held(d.moves.front().entry.tokens), 6u);
  EXPECT_NE(d.moves[0].together, d.moves[1].together) << "it does not wait for their layers";
  EXPECT_EQ(d.moves[1].together, d.moves[2].together);
  EXPECT_FALSE(d.in_flight);
  EXPECT_EQ(d.core.stats().before_queue, 1u);
  end_first(d);
  EXPECT_EQ(d.starts.back().sources.disk, 70u);
  EXPECT_EQ(d.starts.back().sources.device, 0u);
  EXPECT_EQ(d.spans(), "2:70+5");
  d.finish();
  EXPECT_EQ(d.rows, 5u);
}

// Whole histories of many who come at once would take the link and the memory past the fair queue.
TEST(Beginnings, OfATenantsSeveralOnlyTheFirstHasTheRestBroughtBehindItsEnd) {
  const std::string tenants = "aaabcdef";
  TierDriver before(tier_config(48, 0, 64));
  for (std::uint32_t i = 0; i < tenants.size(); ++i)
    before.run(1 + i, run_of(1000 * i, 70), tenants.substr(i, 1));
  TierDriver d(tier_config(48, 0, 64), false);
  d.step(recovered_of(before));
  std::vector<std::size_t> begun;
  for (std::uint32_t i = 0; i < tenants.size(); ++i) {
    const std::size_t already = d.moves.size();
    d.arrive(10 + i, run_of(1000 * i, 75), 1, tenants.substr(i, 1));
    begun.push_back(d.moves.size() - already);
  }
  EXPECT_EQ(d.core.stats().before_queue, 8u);
  EXPECT_EQ(begun, (std::vector<std::size_t>{3, 1, 1, 3, 1, 1, 1, 1})) << "the end alone, or all";
  d.finish();
  EXPECT_EQ(d.rows, 40u) << "nothing that the disk has is computed";
}

// Who would look at thousands of blocks in the step of its arrival has the rest brought when it is admitted.
TEST(Beginnings, BehindTheEndOfALongSequenceNothingComesYet) {
  TierDriver before(tier_config(320, 0, 400));
  before.run(1, run_of(0, 300 * kBlockTokens + 6));
  TierDriver d(tier_config(320, 0, 400), false);
  d.step(recovered_of(before));
  d.arrive(2, run_of(0, 300 * kBlockTokens + 10));
  EXPECT_EQ(d.moves.size(), 1u);
  d.finish();
  EXPECT_EQ(d.rows, 4u);
}

TEST(Beginnings, AnEndGivesWayToWhatGoesOnFromIt) {
  TierDriver d(tier_config(8, 0, 32));
  d.run(1, run_of(0, 70));
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{6}));
  d.run(2, run_of(0, 80));
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{16})) << "the longer one has its tokens";
  d.run(3, run_of(0, 80));
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{16})) << "it is there";
  d.run(4, run_of(0, 72) + run_of(500, 3));
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{11, 16})) << "another went on otherwise";
  d.run(5, run_of(0, 100));
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{4, 11})) << "the whole block has its tokens";
  EXPECT_EQ(d.core.stats().partial_saved_total, 4u);
}

// A prompt that parts from a longer one inside a block, the same prompt once more, and shorter ones.
TEST(Beginnings, AWholeBlockOnTheDiskGivesItsFirstTokens) {
  TierDriver before(tier_config(8, 0, 32));
  before.run(1, run_of(0, 128));
  const Recovered disk = recovered_of(before);
  const std::vector<std::pair<Tokens, std::uint32_t>> wanted = {
      {run_of(0, 80) + run_of(700, 30), 80}, {run_of(0, 128), 127}, {run_of(0, 97), 96}, {run_of(0, 50), 49}};
  for (const auto& [prompt, cached] : wanted) {
    TierDriver d(tier_config(8, 0, 32), false);
    d.step(disk);
    d.run(2, prompt);
    EXPECT_EQ(d.starts.back().sources.disk, cached);
    EXPECT_EQ(d.rows, prompt.size() - cached);
  }
}

TEST(Beginnings, AnEndThatDoesNotComeIsComputed) {
  for (const MoveResult result : {MoveResult::kFailed, MoveResult::kDamaged, MoveResult::kTooSlow}) {
    TierDriver before(tier_config(8, 0, 32));
    before.run(1, run_of(0, 70));
    TierDriver d(tier_config(8, 0, 32), false);
    d.step(recovered_of(before));
    d.arrive(2, run_of(0, 75));
    end_first(d, result);
    EXPECT_EQ(d.starts.back().sources.disk, 64u);
    d.finish();
    EXPECT_EQ(d.rows, 11u);
  }
}

TEST(Beginnings, AnEndThatIsLateIsNotWaitedFor) {
  TierDriver before(tier_config(8, 0, 32));
  before.run(1, run_of(0, 70));
  TierDriver d(tier_config(8, 0, 32), false);
  d.step(recovered_of(before));
  d.arrive(2, run_of(0, 75));
  ASSERT_LT(d.plan.wake_at, kNever);
  d.now = d.plan.wake_at;
  d.step(Tick{});
  EXPECT_EQ(d.starts.back().sources.disk, 64u);
  EXPECT_EQ(d.core.stats().before_queue, 0u);
  EXPECT_EQ(d.missed(MissReason::kTooSlow), 6u) << "the disk has them";
  EXPECT_EQ(d.missed(MissReason::kNeverSeen), 5u);
  d.finish();
}

TEST(Beginnings, WhoIsPausedOrCancelledWaitsNoMore) {
  TierDriver before(tier_config(8, 0, 32));
  before.run(1, run_of(0, 70));
  TierDriver d(tier_config(8, 0, 32), false);
  d.step(recovered_of(before));
  d.arrive(2, run_of(0, 75));
  d.arrive(3, run_of(0, 76));
  EXPECT_EQ(d.count(Tier::kDisk, Tier::kDevice), 3u) << "both wait for one load of each block";
  EXPECT_EQ(d.core.stats().before_queue, 2u);
  d.step(Pause{.request = RequestId(2), .paused = true});
  d.step(Cancel{.request = RequestId(3)});
  EXPECT_EQ(d.core.stats().before_queue, 0u);
  d.step(Pause{.request = RequestId(2), .paused = false});
  d.finish();
  EXPECT_EQ(d.ends.size(), 2u);
}

TEST(Beginnings, TheEndComesAloneWhereNothingIsToBeLoadedAheadOrOthersWait) {
  TierDriver before(tier_config(8, 0, 32));
  before.run(1, run_of(0, 70));
  CoreConfig config = tier_config(8, 0, 32);
  config.preload = "off";
  TierDriver off(config, false);
  off.step(recovered_of(before));
  off.arrive(2, run_of(0, 75));
  EXPECT_EQ(off.moves.size(), 1u);
  off.finish();
  EXPECT_EQ(off.rows, 5u);

  config = tier_config(8, 0, 32);
  config.max_running = 1;
  TierDriver d(config, false);
  d.step(recovered_of(before));
  d.arrive(2, run_of(500, 40), 8);
  d.arrive(3, run_of(600, 40), 8);
  ASSERT_EQ(d.core.stats().queued, 1u);
  d.arrive(4, run_of(0, 75));
  EXPECT_EQ(d.count(Tier::kDisk, Tier::kDevice), 1u) << "the memory is for who came before";
  d.finish();
  EXPECT_EQ(d.ends.size(), 3u);
}

TEST(Beginnings, AnEndIsItsTenantsAlone) {
  TierDriver before(tier_config(8, 0, 32));
  before.run(1, run_of(0, 20), "one");
  TierDriver d(tier_config(8, 0, 32), false);
  d.step(recovered_of(before));
  d.run(2, run_of(0, 25), "two");
  EXPECT_EQ(d.starts.back().cached_tokens, 0u);
  d.run(3, run_of(0, 25), "one");
  EXPECT_EQ(d.starts.back().sources.disk, 20u);
}

TEST(Beginnings, WhatIsForgottenHasNoEnd) {
  TierDriver d(tier_config(8, 0, 32));
  d.run(1, run_of(0, 70));
  d.run(2, run_of(0, 64) + run_of(300, 9));
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = run_of(0, 71)});
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{9})) << "another's";
  EXPECT_EQ(d.disk.size(), 3u) << "and the two blocks that it hangs from";
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = run_of(0, 64) + run_of(300, 9)});
  EXPECT_TRUE(d.disk.empty());
}

TEST(Beginnings, WhereLoadingIsSlowerThanComputingNobodyWaits) {
  CoreConfig config = tier_config(8, 0, 32);
  config.costs.disk_read = {3600 * kNanosPerSecond, 1};
  TierDriver before(config);
  before.run(1, run_of(0, 70));
  TierDriver d(config, false);
  d.step(recovered_of(before));
  d.arrive(2, run_of(0, 75));
  EXPECT_TRUE(d.moves.empty());
  EXPECT_EQ(d.spans(), "2:0+75");
  d.finish();
}

TEST(Beginnings, ATokenThatNoModelHasIsRefused) {
  TierDriver d(tier_config(8, 0, 32));
  d.arrive(1, run_of(0, 10) + Tokens{kNoToken});
  const auto* refused = std::get_if<Rejected>(&d.plan.outputs.front());
  ASSERT_NE(refused, nullptr);
  EXPECT_EQ(refused->status.code(), StatusCode::kInvalidArgument);
}

// --- saved ahead of their eviction ---

// Nothing else of a sequence is on the disk before then, and an end is of no use alone.
TEST(Beginnings, WhereSavesWaitForEvictionsEndsDoToo) {
  CoreConfig config = tier_config(16, 0, 64);
  config.save = "ahead";
  config.swap_out_percent = 50;
  TierDriver d(config);
  d.run(1, run_of(0, 70));
  EXPECT_TRUE(d.disk.empty()) << "13 slots are free, 8 are half of them";
  d.run(2, run_of(1000, 200));
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{6})) << "six are free: who has been idle longest";
  for (int i = 0; i < 5; ++i) d.step(Tick{});
  EXPECT_EQ(d.core.stats().partial_saved_total, 1u) << "once";
  d.run(3, run_of(2000, 150));
  d.run(5, run_of(3000, 200));
  d.rows = 0;
  d.run(4, run_of(0, 75));
  EXPECT_EQ(d.rows, 5u);
  EXPECT_EQ(d.starts.back().sources.disk, 70u);
}

TEST(Beginnings, AnEndThatWentOnIsSavedAheadAgain) {
  CoreConfig config = tier_config(16, 0, 64);
  config.save = "ahead";
  config.swap_out_percent = 100;
  TierDriver d(config);
  d.run(1, run_of(0, 70));
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{6}));
  d.run(2, run_of(0, 75));
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{11}));
}

TEST(Beginnings, AStopSavesTheEndsThatWaited) {
  CoreConfig config = tier_config(16, 0, 64);
  config.save = "ahead";
  TierDriver before(config);
  before.run(1, run_of(0, 70));
  EXPECT_TRUE(before.disk.empty());
  before.step(Drain{kNever});
  before.end_moves();
  EXPECT_EQ(ends_of(before), (std::vector<std::uint32_t>{6}));
  TierDriver d(config, false);
  d.step(recovered_of(before));
  d.run(2, run_of(0, 75));
  EXPECT_EQ(d.rows, 5u);
}

// What a cancelled prompt leaves inside a block has no name, and nobody wished to save it.
TEST(Beginnings, WhatNobodyWishedToSaveIsSavedBeforeItIsEvicted) {
  CoreConfig config = tier_config(16, 0, 64);
  config.max_batch_tokens = 40;
  TierDriver d(config);
  d.arrive(1, run_of(0, 200));
  d.step(Cancel{RequestId(1)});
  d.finish();
  EXPECT_TRUE(ends_of(d).empty());
  d.run(2, run_of(1000, 400));
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{8, 16})) << "it was next, and the other one has ended";
  d.run(3, run_of(2000, 420));
  d.rows = 0;
  d.run(4, run_of(0, 60));
  EXPECT_EQ(d.rows, 20u);
}

// Its own tail is dropped at once, for the longer one.
TEST(Beginnings, AnEndThatASiblingHasIsSavedFromTheSibling) {
  CoreConfig config = tier_config(16, 0, 64);
  config.max_batch_tokens = 40;
  TierDriver before(config);
  before.arrive(1, run_of(0, 200));
  before.step(Cancel{RequestId(1)});
  before.finish();
  EXPECT_TRUE(ends_of(before).empty()) << "nothing is evicted soon";
  before.run(2, run_of(0, 36));
  EXPECT_EQ(ends_of(before), (std::vector<std::uint32_t>{8}));
  TierDriver d(config, false);
  d.step(recovered_of(before));
  d.run(3, run_of(0, 38));
  EXPECT_EQ(d.rows, 1u);
}

// --- windows ---

// Layers that see all, and layers that see 64 tokens.
CoreConfig window_config(std::uint32_t host = 0, std::uint32_t disk = 64) {
  CoreConfig config = tier_config(32, host, disk);
  config.groups.push_back(config.groups.front());
  config.groups.back().window = 64;
  config.restore = "kv";
  return config;
}

// Where in its block a sequence ends decides how many blocks its next token sees.
TEST(BeginningsWithWindows, NothingThatWasComputedIsComputedAgainAfterARestart) {
  for (std::uint32_t held = 0; held < kBlockTokens; ++held) {
    const std::uint32_t length = 5 * kBlockTokens + held;
    TierDriver before(window_config());
    before.run(1, run_of(0, length));
    TierDriver d(window_config(), false);
    d.step(recovered_of(before));
    d.run(2, run_of(0, length + 9));
    EXPECT_EQ(d.starts.back().sources.disk, length);
    EXPECT_EQ(d.rows, 9u) << length;
    d.run(3, run_of(0, length + 20));
    EXPECT_EQ(d.rows, 20u) << length;
  }
}

TEST(BeginningsWithWindows, NorAfterTheDeviceHasEvictedIt) {
  TierDriver d(window_config(64, 0));
  d.run(1, run_of(0, 191));
  for (std::uint32_t i = 1; i <= 8; ++i) d.run(100 + i, run_of(1000 * i, 160));
  d.rows = 0;
  d.run(2, run_of(0, 200));
  EXPECT_EQ(d.starts.back().sources.host, 191u);
  EXPECT_EQ(d.rows, 9u);
}

TEST(BeginningsWithWindows, WhatTheEndsNextTokenSeesComesBehindIt) {
  TierDriver before(window_config());
  before.run(1, run_of(0, 191));
  TierDriver d(window_config(), false);
  d.step(recovered_of(before));
  d.arrive(2, run_of(0, 200));
  std::vector<std::pair<std::uint32_t, std::size_t>> loads;  // first token, parts
  for (const Move& move : d.moves) loads.emplace_back(move.entry.tokens.front().value, move.parts.size());
  EXPECT_EQ(loads, (std::vector<std::pair<std::uint32_t, std::size_t>>{
                       {160, 2}, {0, 1}, {32, 1}, {64, 1}, {96, 1}, {128, 2}}))
      << "the token after the end sees 128 and on";
  d.finish();
  EXPECT_EQ(d.rows, 9u);
}

// Its whole blocks were saved as they filled, but not what its window saw.
TEST(BeginningsWithWindows, ATurnThatWasKilledGoesOnFromTheEndOfTheOneBefore) {
  CoreConfig config = window_config();
  config.max_batch_tokens = 64;
  TierDriver before(config);
  before.run(1, run_of(0, 102));
  before.arrive(2, run_of(0, 300));
  for (int i = 0; i < 3; ++i) {
    before.done();
    before.end_moves();
  }
  EXPECT_EQ(ends_of(before), (std::vector<std::uint32_t>{6}));
  TierDriver d(config, false);
  d.step(recovered_of(before));
  d.run(3, run_of(0, 300));
  EXPECT_EQ(d.starts.back().sources.disk, 102u);
  EXPECT_EQ(d.rows, 198u);
}

TEST(BeginningsWithWindows, AnEndStaysWhereAWholeBlockHasNoStateOfItsWindow) {
  CoreConfig config = window_config();
  config.max_batch_tokens = 64;
  TierDriver before(config);
  before.run(1, run_of(0, 102));
  before.run(2, run_of(0, 130));
  EXPECT_EQ(ends_of(before), (std::vector<std::uint32_t>{2})) << "its window has the block of the first end";
  before.run(3, run_of(0, 300));
  EXPECT_EQ(ends_of(before), (std::vector<std::uint32_t>{2, 12}));
  TierDriver d(config, false);
  d.step(recovered_of(before));
  d.run(4, run_of(0, 130) + run_of(700, 5));
  EXPECT_EQ(d.starts.back().sources.disk, 130u) << "another question after the same answer";
  EXPECT_EQ(d.rows, 5u);
}

// The same question once more, while the device has the whole blocks that followed in one group alone.
TEST(BeginningsWithWindows, AnEndIsCopiedOnlyWhereTheDeviceLacksTheBlock) {
  CoreConfig config = window_config();
  config.max_batch_tokens = 64;
  config.groups.back().block_count = 12;
  TierDriver d(config);
  d.run(1, run_of(0, 102));
  d.run(2, run_of(0, 300));
  d.run(3, run_of(5000, 300));  // takes the window's slots
  d.rows = 0;
  d.arrive(4, run_of(0, 140) + run_of(700, 5));
  ASSERT_EQ(tokens_held(d.moves.front().entry.tokens), 6u);
  while (!d.in_flight) end_first(d);
  const std::vector<BlockCopy>& copies = d.in_flight->pass->copies;
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].group, 1u);
  EXPECT_EQ(copies[0].tokens, 6u);
  d.arrive(5, run_of(0, 140) + run_of(700, 5));  // while the first one fills the block
  d.finish();
  EXPECT_EQ(d.ends.size(), 5u);
  EXPECT_EQ(d.rows, 43u + 1u) << "the second one waited for the first one's blocks";
}

// A part of an end would be of no use.
TEST(BeginningsWithWindows, AnEndIsSavedInAllGroupsOrInNone) {
  CoreConfig config = window_config();
  config.groups.back().disk_blocks = 1;
  TierDriver d(config);
  d.arrive(1, run_of(0, 102));
  d.done();
  ASSERT_EQ(d.moves.size(), 4u) << "three blocks, and the first one in the other group, too";
  for (int i = 0; i < 3; ++i) end_first(d);
  EXPECT_EQ(d.moves.size(), 1u) << "the disk's one slot of that group is still being written";
  d.finish();
  EXPECT_TRUE(ends_of(d).empty());
}

// Slots of windows are promised; those that a save holds nobody else can have.
TEST(BeginningsWithWindows, WhatFindsNoRoomBesidePromisesWaits) {
  CoreConfig config = window_config();
  config.groups.back().block_count = 9;
  TierDriver d(config);
  d.arrive(1, run_of(9000, 100), 100);
  while (d.core.stats().running == 0 || d.ends.size() + d.starts.size() < 1) d.done();
  d.done();
  d.arrive(2, run_of(0, 102));
  d.done();
  d.arrive(3, run_of(7000, 10), 60);
  d.arrive(4, run_of(8000, 10), 60);
  ASSERT_EQ(d.core.stats().queued, 2u);
  d.end_moves();
  while (d.ends.empty()) d.done();
  ASSERT_EQ(d.core.stats().queued, 0u) << "what the second was promised others have been since";
  d.end_moves();
  EXPECT_TRUE(ends_of(d).empty());
  d.step(Cancel{RequestId(3)});
  d.step(Cancel{RequestId(4)});
  d.done();
  d.end_moves();
  EXPECT_EQ(ends_of(d), (std::vector<std::uint32_t>{6, 10, 10})) << "of the third and fourth, too";
  TierDriver after(config, false);
  after.step(recovered_of(d));
  after.run(5, run_of(0, 110));
  EXPECT_EQ(after.rows, 8u);
}

}  // namespace
}  // namespace loci
