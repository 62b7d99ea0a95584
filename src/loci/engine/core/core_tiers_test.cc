// SPDX-License-Identifier: Apache-2.0
// State in slower tiers, case by case; the defects that servers with such tiers are known for are here by
// name.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/link_breaker.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

TEST(CoreTiers, WhatTheDeviceGaveUpComesBackFromHostMemory) {
  TierDriver d(tier_config(4, 16, 0));
  d.run(1, run_of(0, 64));
  d.run(2, run_of(1000, 120));  // takes the whole device
  d.rows = 0;
  d.arrive(3, run_of(0, 75));
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 2u);
  EXPECT_EQ(d.starts.back().sources.host, 64u);
  EXPECT_EQ(d.starts.back().cached_tokens, 64u);
  EXPECT_EQ(d.spans(), "3:64+11") << "nobody decodes, so the pass begins and waits layer by layer";
  d.finish();
  EXPECT_EQ(d.rows, 11u);
}

// A peer's defect: a store that is under way while its block is evicted or loaded again.
TEST(CoreTiers, StoreAndLoadDoNotRaceForABlock) {
  TierDriver d(tier_config(4, 16, 0));
  d.arrive(1, run_of(0, 65));
  d.done();  // two blocks fill; their saves are under way
  ASSERT_EQ(d.count(Tier::kDevice, Tier::kHost), 1u) << "an eighth of the device, at least one";
  const SlotId source = d.moves.front().parts.front().from;
  d.arrive(2, run_of(1000, 120));
  EXPECT_FALSE(d.in_flight) << "the fourth block is the save's";
  d.end_moves();
  ASSERT_TRUE(d.in_flight);
  const auto& slots = d.in_flight->pass->spans.front().tables.front().blocks;
  EXPECT_TRUE(std::count(slots.begin(), slots.end(), source) == 1) << "now it may be taken";
  d.finish();
  // While a block is loaded, its copy is read and neither evicted nor written.
  d.arrive(3, run_of(0, 70));
  ASSERT_EQ(d.count(Tier::kHost, Tier::kDevice), 1u) << "the other was given up before its turn to be saved";
  const Move load = d.moves.front();
  d.done();
  for (std::uint64_t id = 4; id < 12; ++id) {
    d.arrive(id, run_of(2000 + 100 * static_cast<std::uint32_t>(id), 20));
    while (d.in_flight) d.done();
    for (const Move& move : d.moves) {
      EXPECT_TRUE(move.to != Tier::kHost || move.parts.front().to != load.parts.front().from);
    }
  }
  d.finish();
}

// A peer's defect: stores that failed and are found all the same.
TEST(CoreTiers, AFailedStoreIsNotVisible) {
  TierDriver d(tier_config(4, 16, 0));
  d.arrive(1, run_of(0, 65));
  d.done();
  d.end_moves(MoveResult::kFailed);
  d.run(2, run_of(1000, 120));
  d.rows = 0;
  d.arrive(3, run_of(0, 65));
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 0u);
  EXPECT_EQ(d.starts.back().cached_tokens, 0u);
  EXPECT_EQ(d.missed(MissReason::kEvicted), 64u);
  d.finish();
  EXPECT_EQ(d.rows, 65u);
}

// A peer's defect: slots and bytes that are counted as used for ever after failures.
TEST(CoreTiers, NothingLeaksWhenEveryTransferFails) {
  for (const MoveResult result : {MoveResult::kFailed, MoveResult::kDamaged, MoveResult::kTooSlow}) {
    TierDriver d(tier_config(6, 8, 8));
    for (std::uint64_t id = 1; id < 40; ++id) {
      d.arrive(id, run_of(static_cast<std::uint32_t>(id % 7) * 1000, 100), 40);
      while (d.in_flight) {
        d.end_moves(id % 3 == 0 ? result : MoveResult::kDone);
        d.now += 3 * kNanosPerSecond;
        if (d.in_flight) d.done();
      }
    }
    d.end_moves(result);
    const CoreStats stats = d.core.stats();
    EXPECT_EQ(d.ends.size(), 39u);
    EXPECT_EQ(stats.moves_in_flight, 0u);
    for (const TierStats& tier : stats.tiers) EXPECT_LE(tier.free + tier.evictable, tier.slots);
    EXPECT_EQ(stats.tiers[0].free + stats.tiers[0].evictable, 6u);
    EXPECT_EQ(stats.tiers[1].free + stats.tiers[1].evictable, 8u);
    EXPECT_EQ(stats.tiers[2].free + stats.tiers[2].evictable, 8u);
  }
}

// A peer's defect: one bad file that blocks whoever needs it, again and again.
TEST(CoreTiers, ADamagedEntryIsComputedAgainOnce) {
  TierDriver d(tier_config(4, 0, 16));
  d.run(1, run_of(0, 64));
  d.run(2, run_of(1000, 120));
  d.rows = 0;
  d.arrive(3, run_of(0, 75));
  ASSERT_EQ(d.count(Tier::kDisk, Tier::kDevice), 2u);
  MovesEnded ended{{{d.moves[0].id, MoveResult::kDamaged, 0}, {d.moves[1].id, MoveResult::kDone, 0}}};
  d.moves.clear();
  d.step(ended);
  d.done(3);  // what it read did not come
  EXPECT_EQ(d.spans(), "3:0+32 3:64+11") << "the hole and the new tokens, in one pass";
  d.finish();
  ASSERT_EQ(d.ends.back().request, RequestId(3));
  // The good one and the repaired one are both there afterwards.
  d.run(4, run_of(3000, 120));
  d.run(5, run_of(0, 75));
  EXPECT_EQ(d.starts.back().sources.disk, 74u) << "and what followed them";
}

// A peer's defect: a restore that reports success while everything is computed again.
TEST(CoreTiers, ARestoreReusesWhatItReports) {
  TierDriver d(tier_config(8, 0, 64));
  for (std::uint64_t id = 1; id < 60; ++id) {
    const std::uint32_t conversation = static_cast<std::uint32_t>(id % 5);
    const Tokens prompt = run_of(conversation * 1000, 40 + 7 * (id / 5));
    d.rows = 0;
    d.run(id, prompt);
    ASSERT_EQ(d.starts.size(), id);
    EXPECT_EQ(d.rows, prompt.size() - d.starts.back().cached_tokens);
    const ContextSources& from = d.starts.back().sources;
    std::uint32_t computed = 0;
    for (const std::uint32_t tokens : from.computed) computed += tokens;
    EXPECT_EQ(from.cached() + computed, prompt.size());
  }
  EXPECT_GT(d.core.stats().tokens_from_total[2], 1000u);
}

// A peer's defect: a prefix that is there hides the longer one that another tier has.
TEST(CoreTiers, AResidentPrefixDoesNotHideALongerOneOnDisk) {
  TierDriver d(tier_config(6, 0, 32));
  d.run(1, run_of(0, 128));     // four blocks
  d.run(2, run_of(5000, 160));  // all of them are given up
  d.run(3, run_of(0, 33));      // the first is brought back
  d.arrive(4, run_of(0, 140));
  EXPECT_EQ(d.starts.back().cached_tokens, 128u);
  EXPECT_EQ(d.starts.back().sources.device, 32u);
  EXPECT_EQ(d.starts.back().sources.disk, 96u);
  d.finish();
}

// A peer's defect: state of one conversation that is restored into another.
TEST(CoreTiers, ConversationsThatAreRestoredTogetherKeepTheirOwnState) {
  TierDriver d(tier_config(8, 0, 32));
  d.run(1, run_of(0, 64), "a");
  d.run(2, run_of(0, 64), "b");  // the same text, another tenant
  std::map<SlotId, ChainKey> stored;
  for (const Move& move : d.on_disk) stored[move.parts.front().to] = move.entry.key;
  d.run(3, run_of(5000, 250), "c");
  d.arrive(4, run_of(0, 75), 1, "a");
  d.arrive(5, run_of(0, 75), 1, "b");
  while (d.count(Tier::kDisk, Tier::kDevice) < 4 && d.in_flight) d.done();
  std::set<SlotId> sources, targets;
  std::set<ChainKey> keys;
  for (const Move& move : d.moves) {
    if (move.to != Tier::kDevice) continue;
    EXPECT_EQ(stored.at(move.parts.front().from), move.entry.key) << "the slot holds the block that is meant";
    sources.insert(move.parts.front().from);
    targets.insert(move.parts.front().to);
    keys.insert(move.entry.key);
  }
  EXPECT_EQ(sources.size(), 4u);
  EXPECT_EQ(targets.size(), 4u);
  EXPECT_EQ(keys.size(), 4u);
  d.finish();
}

// A peer's defect: a disk that is asked for what is computed sooner.
TEST(CoreTiers, ASlowDiskIsNotAskedForWhatIsComputedSooner) {
  CoreConfig config = tier_config(4, 0, 16);
  config.costs.disk_read = {3600 * kNanosPerSecond, 1};
  TierDriver d(config);
  d.run(1, run_of(0, 70));
  d.run(2, run_of(1000, 120));
  d.rows = 0;
  d.arrive(3, run_of(0, 75));
  EXPECT_TRUE(d.moves.empty());
  EXPECT_EQ(d.missed(MissReason::kTooSlow), 64u);
  d.finish();
  EXPECT_EQ(d.rows, 75u);
}

// A store that does not answer keeps those who ask it in their places for a while.
TEST(CoreTiers, WhoAsksASlowSharedStoreLeavesPlacesToOtherTenants) {
  CoreConfig config = tier_config(16, 0, 0);
  config.groups.front().shared_blocks = 64;
  config.max_running = 1;
  config.max_queued = 4;
  TierDriver d(config);
  d.arrive(1, run_of(0, 5), 100, "one");  // shorter than a block: it asks nothing, and runs
  ASSERT_TRUE(d.in_flight);
  std::size_t asked = 0;
  for (std::uint64_t id = 2; id <= 5; ++id)
    asked += d.arrive(id, run_of(static_cast<std::uint32_t>(1000 * id), 70), 1, "one").asks.size();
  EXPECT_EQ(asked, 2u) << "half of the places";
  EXPECT_EQ(d.core.stats().before_queue, 2u);
  EXPECT_EQ(d.core.stats().queued, 4u) << "the places are taken";
  const auto rejected = [&d] {
    std::vector<std::uint64_t> ids;
    for (const Output& output : d.plan.outputs)
      if (const auto* one = std::get_if<Rejected>(&output)) ids.push_back(one->request.value);
    return ids;
  };
  d.arrive(6, run_of(9000, 70), 1, "two");
  EXPECT_EQ(rejected(), std::vector<std::uint64_t>{5})
      << "who has most gives up its newest that does not ask";
  d.arrive(7, run_of(9500, 70), 1, "one");
  EXPECT_EQ(rejected(), std::vector<std::uint64_t>{7});
}

// Also where there is a disk, which has nothing to do with it.
TEST(CoreTiers, ASlowHostIsNotAskedForWhatIsComputedSooner) {
  CoreConfig config = tier_config(4, 16, 16);
  config.costs.host_load = {3600 * kNanosPerSecond, 1};
  TierDriver d(config);
  d.run(1, run_of(0, 70));
  d.run(2, run_of(1000, 120));
  d.rows = 0;
  d.arrive(3, run_of(0, 75));
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 0u);
  EXPECT_EQ(d.missed(MissReason::kTooSlow), 64u);
  d.finish();
  EXPECT_EQ(d.rows, 75u);
}

TEST(CoreTiers, DecodesDoNotWaitForARestore) {
  CoreConfig config = tier_config(8, 0, 32);
  config.costs.disk_read = {kNanosPerSecond, 1u << 30};
  config.costs.token = 100 * kNanosPerMilli;
  config.costs.pass = kNanosPerMilli;
  TierDriver d(config);
  d.run(1, run_of(0, 70));
  d.run(2, run_of(5000, 250));
  d.arrive(3, run_of(9000, 10), 50);  // decodes
  d.done();
  d.arrive(4, run_of(0, 66));
  d.done();
  ASSERT_EQ(d.count(Tier::kDisk, Tier::kDevice), 2u) << "its loads begin at once";
  for (int i = 0; i < 5; ++i) {
    d.done();
    EXPECT_EQ(d.spans().find("4:"), std::string::npos) << "a second is too long to wait";
  }
  d.end_moves();
  d.done();
  EXPECT_NE(d.spans().find("4:64+2"), std::string::npos);
  d.finish();
}

// A load that is predicted in time and does not come: whose request it is loses the pass, who decodes in it
// waits no longer than computing takes.
TEST(CoreTiers, DecodesWaitNoLongerThanComputingTakes) {
  CoreConfig config = tier_config(8, 0, 32);
  config.costs.disk_read = {kNanosPerMilli, 1u << 30};
  config.costs.token = 100 * kNanosPerMilli;
  config.costs.attention = {0};
  config.costs.pass = kNanosPerMilli;
  TierDriver d(config);
  d.run(1, run_of(0, 64));
  d.run(2, run_of(5000, 250));
  d.passes_take_time = false;  // so that what comes next is still in time
  d.arrive(3, run_of(9000, 10), 50);
  d.done();
  EXPECT_EQ(d.plan.pass->patience, kWaitsForEver) << "nothing arrives";
  d.arrive(4, run_of(0, 66));
  d.done();
  ASSERT_EQ(d.spans(), "3:11+1 4:64+2");
  EXPECT_EQ(d.plan.pass->patience, 300 * kNanosPerMilli) << "three rows";
  d.done(4);
  for (int i = 0; i < 5; ++i, d.done()) {
    EXPECT_EQ(d.spans().find("4:"), std::string::npos) << "it waits until all is known";
    EXPECT_EQ(d.plan.pass->patience, kWaitsForEver);
  }
  d.end_moves(MoveResult::kTooSlow);
  d.done();
  EXPECT_NE(d.spans().find("4:0+66"), std::string::npos) << d.spans();
  d.finish();
}

// A disk of hidden states alone, whose reads wait so long for their first byte; 100 ms a token, if it is
// computed.
CoreConfig hidden_config(Nanos latency) {
  CoreConfig config = tier_config(8, 0, 32);
  config.hidden = {
      .disk_blocks = 32, .block_bytes = config.groups.front().block_bytes / 2, .share = {.percent = 100}};
  config.costs.disk_read = {latency, 1u << 30};
  config.costs.token = 100 * kNanosPerMilli;
  config.costs.attention = {0};
  config.costs.pass = kNanosPerMilli;
  return config;
}

// Two blocks of request 4 are on the disk alone; it comes while a pass of request 3 runs, which decodes.
void arrive_beside_decodes(TierDriver& d) {
  d.decode_after_saves(64, 250);
  d.passes_take_time = false;
  d.arrive(4, run_of(0, 66));
}

// What comes as hidden states is projected in the pass that reads it, which takes so much longer and may wait
// so much longer for its layers.
TEST(CoreTiers, ProjectingIsAPartOfThePassThatJoins) {
  CoreConfig config = hidden_config(250 * kNanosPerMilli);
  for (const Nanos token : {0, 1, 5}) {  // ms, to project
    config.costs.projection = token * kNanosPerMilli;
    TierDriver d(config);
    arrive_beside_decodes(d);
    d.done();
    ASSERT_EQ(d.count(Tier::kDisk, Tier::kDevice), 2u);
    if (token < 5) {
      EXPECT_EQ(d.spans(), "3:11+1") << "twice 250 ms are more than three rows and two blocks take";
    } else {
      EXPECT_EQ(d.spans(), "3:11+1 4:64+2");
      EXPECT_EQ(d.plan.pass->patience, (300 + 2 * 160) * kNanosPerMilli) << "three rows, two blocks";
    }
    d.end_moves();
    d.finish();
    EXPECT_EQ(d.core.stats().hidden_loaded_total, 2u);
  }
}

// The same at 1 ms a token, with passes of 100 ms at most and a device of so many blocks.
CoreConfig projecting_config(std::uint32_t blocks) {
  CoreConfig config = hidden_config(kNanosPerMilli);
  config.groups.front().block_count = blocks;
  config.context_tokens = blocks * kBlockTokens;
  config.costs.token = kNanosPerMilli;
  config.restore = "kv";
  config.pass_time = 100 * kNanosPerMilli;
  return config;
}

// Decodes that a pass holds up wait for what is projected in it as well.
TEST(CoreTiers, ProjectingCountsAgainstTheTimeOfAPass) {
  CoreConfig config = projecting_config(16);
  const std::vector<std::pair<Nanos, std::uint32_t>> wanted = {
      {0, 95}, {kNanosPerMilli / 2, 63}, {5 * kNanosPerMilli, 32}};  // of projecting a token: tokens beside
  for (const auto& [token, beside] : wanted) {
    config.costs.projection = token;
    TierDriver d(config);
    d.decode_after_saves(64, 500);
    d.arrive(4, run_of(0, 264));
    ASSERT_EQ(d.count(Tier::kDisk, Tier::kDevice), 2u) << "loaded ahead";
    d.end_moves();
    d.done();
    EXPECT_EQ(d.spans(), "3:11+1 4:64+" + std::to_string(beside));
    d.done();
    EXPECT_EQ(d.spans(), "3:12+1 4:" + std::to_string(64 + beside) + "+95") << "it is projected once";
    d.finish();
  }
}

// What a tenant's share is too small for is taken from the next one's, but for one step.
TEST(CoreTiers, ProjectingCountsAgainstOthersSharesOfAPass) {
  CoreConfig config = projecting_config(24);
  for (const Nanos token : {0, 5}) {  // ms, to project
    config.costs.projection = token * kNanosPerMilli;
    TierDriver d(config);
    d.run(1, run_of(0, 64), "a");
    d.run(2, run_of(5000, 760), "b");  // takes the whole device, and puts b behind a
    d.arrive(3, run_of(9000, 10), 50);
    d.done();
    d.arrive(4, run_of(0, 264), 1, "a");
    d.arrive(5, run_of(20'000, 264), 1, "b");
    d.end_moves();
    d.done();
    EXPECT_EQ(d.spans(), token == 0 ? "3:11+1 4:64+47 5:0+48" : "3:11+1 4:64+32 5:0+32");
    d.finish();
  }
}

// Also where its hidden states were loaded before it was admitted, or are on their way.
TEST(CoreTiers, AForecastCountsProjecting) {
  CoreConfig config = hidden_config(kNanosPerMilli);
  for (const bool has_come : {false, true}) {
    std::vector<Nanos> planned;
    for (const Nanos token : {1, 5}) {  // ms, to project
      config.costs.projection = token * kNanosPerMilli;
      TierDriver d(config);
      arrive_beside_decodes(d);
      ASSERT_EQ(d.count(Tier::kDisk, Tier::kDevice), 2u) << "loaded ahead";
      if (has_come) d.end_moves();
      d.done();
      EXPECT_EQ(d.starts.back().sources.hidden, 64u);
      planned.push_back(d.starts.back().sources.restore.planned);
      d.finish();
    }
    EXPECT_EQ(planned[1] - planned[0], Nanos{2 * 32} * 4 * kNanosPerMilli) << has_come;
  }
}

// A form that fails every write hits nothing later, and costs the other one nothing.
TEST(CoreTiers, AFormWhoseWritesAllFailIsNeverRead) {
  CoreConfig config = hidden_config(kNanosPerMilli);
  config.hidden.share.percent = 50;
  TierDriver d(config);
  std::uint64_t failed = 0, saved = 0;
  const auto end_moves = [&] {
    while (!d.moves.empty()) {
      MovesEnded ended;
      for (const Move& move : std::exchange(d.moves, {})) {
        const bool fails = move.to == Tier::kDisk && move.form == StateForm::kHidden;
        failed += fails ? 1 : 0;
        saved += move.to == Tier::kDisk && !fails ? 1 : 0;
        ended.moves.push_back({move.id, fails ? MoveResult::kFailed : MoveResult::kDone, 0});
      }
      d.step(ended);
    }
  };
  for (std::uint64_t id = 1; id < 40; ++id) {
    d.arrive(id, run_of(static_cast<std::uint32_t>(id % 7) * 1000, 130), 40);
    while (d.in_flight || !d.moves.empty()) {
      end_moves();
      d.now += 3 * kNanosPerSecond;  // a disk that failed is tried again
      if (d.in_flight) d.done();
    }
  }
  end_moves();
  const CoreStats stats = d.core.stats();
  EXPECT_EQ(d.ends.size(), 39u);
  EXPECT_GT(failed, 10u);
  EXPECT_GT(saved, 30u) << "keys and values are saved meanwhile";
  EXPECT_EQ(stats.hidden_loaded_total, 0u);
  EXPECT_GT(d.missed(MissReason::kEvicted), 0u) << "it is computed again, without an error";
  const TierStats& disk = stats.tiers[static_cast<std::size_t>(Tier::kDisk)];
  EXPECT_EQ(stats.moves_in_flight, 0u);
  EXPECT_EQ(disk.free + disk.evictable, disk.slots) << "nothing is lost to them";
}

// Twice as many blocks have room on the disk as hidden states. Whatever part of them is so, all of the room
// is used, and never more.
TEST(CoreTiers, BothFormsShareTheRoomOfTheDisk) {
  CoreConfig config = hidden_config(kNanosPerMilli);
  config.groups.front().disk_blocks = 16;
  for (const std::uint32_t percent : {0u, 50u, 100u}) {
    config.hidden.share.percent = percent;
    TierDriver d(config);
    for (std::uint64_t id = 1; id <= 40; ++id) {
      d.run(id, run_of(static_cast<std::uint32_t>(id) * 1000, 64));
      std::size_t hidden = 0;
      for (const auto& [place, move] : d.disk) hidden += move.form == StateForm::kHidden;
      ASSERT_LE(2 * (d.disk.size() - hidden) + hidden, 32u) << percent;
    }
    const TierStats disk = d.core.stats().tiers[static_cast<std::size_t>(Tier::kDisk)];
    EXPECT_EQ(disk.slots - disk.free, d.disk.size()) << percent;
    EXPECT_GE(d.disk.size() * (200 - percent), 30u * 100) << percent;
  }
}

TEST(CoreTiers, ADiskThatDoesNotAnswerIsNotCountedOn) {
  CoreConfig config = tier_config(12, 0, 64);
  config.costs.disk_read = {kNanosPerMilli, 1u << 30};
  config.costs.token = 5 * kNanosPerMilli;
  TierDriver d(config);
  d.run(1, run_of(0, 320));
  d.run(2, run_of(5000, 320));
  d.arrive(3, run_of(0, 330));
  ASSERT_GE(d.count(Tier::kDisk, Tier::kDevice), LinkBreaker::kFailuresMax);
  d.now += 20 * kNanosPerSecond;
  d.end_moves(MoveResult::kTooSlow, 10 * kNanosPerSecond);
  d.finish();
  d.run(4, run_of(5000, 330));  // evicts what 3 has computed
  EXPECT_EQ(d.starts.back().sources.disk, 0u) << "eight loads in a row did not come";
  EXPECT_GE(d.missed(MissReason::kTooSlow), 256u);
  d.now += LinkBreaker::kPause;
  d.run(5, run_of(0, 330));
  EXPECT_GE(d.starts.back().sources.disk, 256u) << "it is tried again, and what it has was kept";
}

TEST(CoreTiers, LoadsBeginWhileThePassBeforeStillRuns) {
  TierDriver d(tier_config(8, 16, 0));
  d.run(1, run_of(0, 64));
  d.run(2, run_of(5000, 250));
  d.arrive(3, run_of(9000, 40), 5);
  ASSERT_TRUE(d.in_flight);
  d.arrive(4, run_of(0, 75));
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 2u) << "the pass in flight is not waited for";
  EXPECT_EQ(d.starts.size(), 3u);
  d.end_moves();
  d.done();
  EXPECT_EQ(d.starts.back().sources.host, 64u) << "and that is where the state came from";
  EXPECT_NE(d.spans().find("4:64+11"), std::string::npos);
  d.finish();
}

TEST(CoreTiers, TwoRequestsShareOneLoad) {
  TierDriver d(tier_config(8, 16, 0));
  d.run(1, run_of(0, 64));
  d.run(2, run_of(5000, 250));
  d.arrive(3, run_of(0, 75));
  d.arrive(4, run_of(0, 80));
  d.done();
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 2u) << "once for both";
  EXPECT_EQ(d.starts.back().sources.host, 64u);
  d.finish();
  EXPECT_EQ(d.ends.size(), 4u);
}

TEST(CoreTiers, SaveAheadWaitsUntilMemoryIsShort) {
  CoreConfig config = tier_config(40, 64, 0);
  config.save = "ahead";
  TierDriver d(config);
  d.run(1, run_of(0, 320));
  EXPECT_EQ(d.core.stats().tiers[1].free, 64u) << "three quarters are free";
  d.run(2, run_of(5000, 800));
  EXPECT_LT(d.core.stats().tiers[1].free, 64u);
  d.run(3, run_of(9000, 900));
  d.arrive(4, run_of(0, 330));
  EXPECT_GT(d.starts.back().cached_tokens, 0u) << "what was evicted had been saved";
  d.finish();
}

}  // namespace
}  // namespace loci
