// SPDX-License-Identifier: Apache-2.0
// The switches of policy/policy_set.h: what each changes of what the core does.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

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
                 .tenant = "group",
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
