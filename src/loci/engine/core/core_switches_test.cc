// SPDX-License-Identifier: Apache-2.0
// The switches of policy/policy_set.h: what each changes of what the core does.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver.h"

namespace loci {
namespace {

// Prefetches that begin where the state of three waiting requests is on the disk alone, under a plan that
// loads nothing from there.
std::size_t prefetches(std::uint32_t lookahead_requests) {
  CoreConfig config = tier_config(4, 8, 128);
  config.restore = "pensieve";
  config.max_running = 1;
  config.lookahead_requests = lookahead_requests;
  config.saves_max = 8;
  config.groups.front().block_count = 64;  // as many moves as there are saves
  TierDriver d(config);
  for (std::uint32_t i = 1; i <= 3; ++i) d.run(i, run_of(1000 * i, 64));
  for (std::uint32_t i = 4; i <= 40; ++i) d.run(i, run_of(1000 * i, 64));
  d.arrive(50, run_of(90'000, 10), 40);
  for (std::uint32_t i = 1; i <= 3; ++i) d.arrive(50 + i, run_of(1000 * i, 70));
  std::size_t moves = 0;
  for (; !d.moves.empty(); d.end_moves()) moves += d.count(Tier::kDisk, Tier::kHost);
  return moves;
}

TEST(CoreSwitches, LookingAheadIsOffOnOrLimited) {
  EXPECT_EQ(prefetches(0), 0u);
  EXPECT_EQ(prefetches(1), 2u) << "the first one's two blocks";
  EXPECT_EQ(prefetches(2), 4u);
  EXPECT_EQ(prefetches(kLookaheadUnlimited), 6u);
}

// Four blocks are in host memory, each takes 32 ms to come; 64 new tokens take 64 ms. A pass runs.
TierDriver beside_a_pass(const std::string& preload) {
  CoreConfig config = tier_config(16, 32, 0);
  config.restore = "kv";
  config.preload = preload;
  config.max_batch_tokens = 64;
  config.costs.token = kNanosPerMilli;
  config.costs.attention = {0};
  config.costs.pass = 0;
  config.costs.host_load = {0, 31'250};
  TierDriver d(config);
  d.run(1, run_of(0, 128));
  d.run(2, run_of(5000, 510));  // takes the whole device
  d.arrive(3, run_of(9000, 64), 40);
  d.arrive(4, run_of(0, 192));
  EXPECT_EQ(d.starts.back().request, RequestId(3));
  return d;
}

// S_buf = B (T_load L_hist - T_pref L_new): half of what loading takes is hidden behind the new tokens.
TEST(CoreSwitches, PreloadingIsOffBoundedByTheReadBufferOrNotAtAll) {
  for (const auto& [preload, blocks] :
       std::vector<std::pair<std::string, std::size_t>>{{"off", 0}, {"buffer", 2}, {"unbounded", 4}}) {
    TierDriver d = beside_a_pass(preload);
    EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), blocks) << preload;
    d.step(Tick{});
    EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), blocks) << preload << ": no more of it later";
    d.done();
    EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 4u) << preload;
    EXPECT_EQ(d.starts.back().sources.host, 128u) << preload;
    d.finish();
    EXPECT_EQ(d.ends.size(), 4u);
  }
}

// What had no room is tried again when there is some.
TEST(CoreSwitches, APreloadIsTriedAgainWhenThereIsRoom) {
  CoreConfig config = tier_config(8, 32, 0);
  config.restore = "kv";
  config.max_running = 2;
  TierDriver d(config);
  d.run(1, run_of(0, 128));
  d.run(2, run_of(5000, 250));
  d.arrive(3, run_of(9000, 60), 60);  // two blocks, and grows
  d.arrive(4, run_of(7000, 100), 2);  // four
  d.done();
  d.arrive(5, run_of(0, 140));
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 0u) << "two slots are free, four are needed";
  d.end_moves();
  while (d.ends.back().request != RequestId(4)) d.done();
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 4u);
  d.finish();
  EXPECT_EQ(d.ends.size(), 5u);
}

// Four requests end and four that wait take their places; so four others, of 100 blocks each, come next at
// once. Their loads do not hold up the pass that this step forms.
TEST(CoreSwitches, AStepBeginsTheLoadsOfAFewWhoComeNext) {
  CoreConfig config = tier_config(600, 1200, 0);
  config.restore = "kv";
  config.max_running = 4;
  TierDriver d(config);
  const std::vector<std::string> tenants = {"a", "b", "c", "d"};
  const auto history = [](std::uint32_t i) { return 100'000 * (i + 1); };
  for (std::uint32_t i = 0; i < 4; ++i) d.run(1 + i, run_of(history(i), 100 * kBlockTokens + 1), tenants[i]);
  d.run(5, run_of(900'000, 590 * kBlockTokens));  // takes the whole device
  for (std::uint32_t i = 0; i < 4; ++i) d.arrive(10 + i, run_of(1000 * i, 10), i == 0 ? 4 : 3, tenants[i]);
  for (std::uint32_t i = 0; i < 4; ++i) {
    d.arrive(20 + i, run_of(10'000 + 1000 * i, 10), 40, tenants[i]);
    d.arrive(30 + i, run_of(history(i), 100 * kBlockTokens + 10), 1, tenants[i]);
  }
  d.end_moves();  // of the ends of histories, for which they wait before the queue
  while (d.ends.size() < 9) d.done();
  ASSERT_EQ(d.starts.size(), 13u) << "four have begun in this step";
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 0u) << "the pass waits for this step";
  EXPECT_LE(d.plan.wake_at, d.now + kNanosPerMilli) << "the next step follows soon";
  d.step(Tick{});
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 300u) << "whole requests, until it is enough";
  EXPECT_LE(d.plan.wake_at, d.now + kNanosPerMilli);
  d.step(Tick{});
  EXPECT_GT(d.count(Tier::kHost, Tier::kDevice), 390u) << "some are on the device still";
  d.finish();
  EXPECT_EQ(d.ends.size(), 17u);
}

// Passes that follow one another so closely that no other step comes between them put it off once.
TEST(CoreSwitches, LoadsOfWhoComesNextArePutOffForOnePass) {
  CoreConfig config = tier_config(40, 80, 0);
  config.restore = "kv";
  config.max_running = 1;
  TierDriver d(config);
  d.run(1, run_of(0, 20 * kBlockTokens + 1), "a");
  d.run(2, run_of(900'000, 38 * kBlockTokens));  // takes the device
  d.arrive(3, run_of(500, 10), 2, "a");
  d.arrive(4, run_of(600, 10), 40, "a");
  d.arrive(5, run_of(0, 20 * kBlockTokens + 10), 1, "a");
  d.end_moves();
  while (d.starts.size() < 4) d.done();
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 0u) << "4 has begun in this step, and 5 comes next";
  d.done();
  EXPECT_GE(d.count(Tier::kHost, Tier::kDevice), 19u) << "with the next pass";
  d.finish();
}

TEST(CoreSwitches, WithoutReuseEveryRequestComputesItsOwn) {
  CoreConfig config = tier_config(16, 16, 16);
  config.reuse = false;
  TierDriver d(config);
  for (std::uint64_t id = 1; id <= 3; ++id) {
    d.rows = 0;
    d.run(id, run_of(0, 100));
    EXPECT_EQ(d.starts.back().cached_tokens, 0u);
    EXPECT_EQ(d.rows, 100u);
    const CoreStats stats = d.core.stats();
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk})
      EXPECT_EQ(stats.tiers[static_cast<std::size_t>(tier)].free, 16u) << "nothing is left or saved";
  }
  d.arrive(4, run_of(0, 100));
  d.arrive(5, run_of(0, 100));  // beside it
  d.rows = 0;
  d.finish();
  EXPECT_EQ(d.starts.back().cached_tokens, 0u);
  d.step(Arrival{.request = RequestId(6),
                 .group = "group",
                 .prompt = run_of(0, 64),
                 .max_new_tokens = 1,
                 .scope = SharingScope::kPublic});
  const auto* rejected = std::get_if<Rejected>(&d.plan.outputs.at(0));
  ASSERT_NE(rejected, nullptr);
  EXPECT_EQ(rejected->status.field(), "scope");
}

// Who is suspended goes on from what is left of its own.
TEST(CoreSwitches, WithoutReuseASuspendedRequestFindsItsOwnState) {
  for (const bool reuse : {false, true}) {
    CoreConfig config = tier_config(8, 0, 0);
    config.groups.front().block_bytes = 0;
    config.reuse = reuse;
    TierDriver d(config);
    d.arrive(1, run_of(0, 90), 90);
    d.arrive(2, run_of(1000, 90), 90);
    d.finish();
    EXPECT_GT(d.core.stats().suspensions_total, 0u);
    EXPECT_LT(d.rows, 360u + 90u) << "not all of it was computed again";
    EXPECT_EQ(d.ends.size(), 2u);
  }
}

TEST(CoreSwitches, SavesGoThroughAheadOrNowhere) {
  const auto saved = [](const std::string& save, std::uint32_t percent, std::size_t tokens) {
    CoreConfig config = tier_config(16, 32, 32);
    config.save = save;
    config.swap_out_percent = percent;
    TierDriver d(config);
    d.run(1, run_of(0, tokens));
    const CoreStats stats = d.core.stats();
    return std::pair(32 - stats.tiers[1].free, 32 - stats.tiers[2].free);
  };
  using Slots = std::pair<std::uint32_t, std::uint32_t>;
  EXPECT_EQ(saved("through", 25, 128), Slots(4, 4));
  EXPECT_EQ(saved("ahead", 25, 128), Slots(0, 0)) << "three quarters are free";
  EXPECT_EQ(saved("ahead", 100, 128).first, 4u);
  EXPECT_EQ(saved("ahead", 0, 512), Slots(0, 0));
  EXPECT_EQ(saved("off", 100, 512), Slots(0, 0));
}

// Pensieve's figure 13, without unified scheduling.
TEST(CoreSwitches, SplitBatchesTakeTurns) {
  for (const std::string batch : {"unified", "split"}) {
    CoreConfig config = config_of(64, 64);
    config.batch = batch;
    TierDriver d(config, false);
    d.arrive(1, run_of(0, 20), 40);
    d.done();
    d.arrive(2, run_of(1000, 190), 40);
    std::string turns;
    for (int i = 0; i < 8; ++i) {
      d.done();
      std::set<std::uint64_t> in_pass;
      for (const SpanPlan& span : d.in_flight->spans) in_pass.insert(span.request.value);
      turns += in_pass.size() == 2 ? 'b' : in_pass.contains(1) ? 'd' : 'p';
    }
    EXPECT_EQ(turns, batch == "split" ? "pdpdpbbb" : "bbbbbbbb");
    d.finish();
    EXPECT_EQ(d.ends.size(), 2u);
  }
  CoreConfig config = config_of(64);
  config.batch = "split";
  config.passes_ahead = 1;
  EXPECT_EQ(Core::make(config).status().field(), "batch");
}

// One block more than a quarter is used: what is saved then is a chunk of the sequence.
TEST(CoreSwitches, WhatIsSwappedOutGoesInChunks) {
  for (const std::uint32_t chunk : {1u, 2u, 4u}) {
    CoreConfig config = tier_config(16, 32, 0);
    config.save = "ahead";
    config.eviction = "retention";
    config.swap_chunk_tokens = chunk * kBlockTokens;
    config.saves_max = 32;
    config.groups.front().block_count = 64;
    config.context_tokens = 64 * kBlockTokens;
    TierDriver d(config);
    d.run(1, run_of(0, 64 * kBlockTokens - 15 * kBlockTokens));  // 15 are free, 16 are a quarter
    EXPECT_EQ(d.core.stats().tiers[1].free, 32 - chunk) << chunk;
  }
}

// How many of those who wait an order looks at.
TEST(CoreSwitches, AnOrderLooksAsFarAsItIsTold) {
  for (const std::uint32_t looks : {1u, 2u}) {
    CoreConfig config = tier_config(16, 0, 0);
    config.groups.front().block_bytes = 0;
    config.admission = "fpf";
    config.admission_looks = looks;
    config.max_running = 1;
    TierDriver d(config);
    d.run(1, run_of(0, 64));
    d.arrive(2, run_of(9000, 10), 3);
    d.arrive(3, run_of(5000, 70));
    d.arrive(4, run_of(0, 70));  // whose state is on the device
    while (d.starts.size() < 3) d.done();
    EXPECT_EQ(d.starts.back().request.value, looks == 1 ? 3u : 4u);
    d.finish();
  }
}

}  // namespace
}  // namespace loci
