// SPDX-License-Identifier: Apache-2.0
// What of its state a request loads, and what it computes meanwhile.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

constexpr Nanos kBlock = 32 * kNanosPerMilli;  // to compute one, and to load one from the disk

// Four blocks of a conversation are on the disk, and the device has eight.
CoreConfig even_config(const std::string& rule) {
  CoreConfig config = tier_config(8, 0, 32);
  config.restore = rule;
  config.costs.token = kNanosPerMilli;
  config.costs.attention = {0};
  config.costs.pass = 0;
  config.costs.disk_read = {0, 31'250};
  return config;
}

// The same of a model half of whose layers see `window` tokens.
CoreConfig with_window(CoreConfig config, std::uint32_t window) {
  config.groups.front().block_bytes /= 2;
  config.groups.push_back(config.groups.front());
  config.groups.back().window = window;
  config.groups.back().block_count = 6;
  return config;
}

class CoreRestore : public testing::Test {
 protected:
  // The conversation comes back, with twelve more tokens behind its blocks.
  static void come_back(TierDriver& d, std::uint64_t id = 3) {
    d.run(1, run_of(0, 128));
    d.run(2, run_of(5000, 250));  // takes the whole device
    d.rows = 0;
    d.arrive(id, run_of(0, 140));
  }
  static std::vector<Move> loads_in(std::vector<Move>& moves) {
    std::vector<Move> out;
    for (const Move& move : moves)
      if (move.to == Tier::kDevice) out.push_back(move);
    std::erase_if(moves, [](const Move& move) { return move.to == Tier::kDevice; });
    return out;
  }
};

TEST_F(CoreRestore, LeadingBlocksAreComputedInThePassThatReadsTheOthers) {
  TierDriver d(even_config("auto"));
  come_back(d);
  EXPECT_EQ(d.spans(), "3:0+64 3:128+12") << "two blocks are computed while two are loaded";
  EXPECT_EQ(d.count(Tier::kDisk, Tier::kDevice), 2u);
  const ContextSources& from = d.starts.back().sources;
  EXPECT_EQ(from.disk, 64u);
  EXPECT_EQ(d.missed(MissReason::kTooSlow), 64u);
  EXPECT_EQ(d.starts.back().cached_tokens, 64u);
  EXPECT_EQ(from.restore.rule, RestoreRule::kAuto);
  EXPECT_NEAR(static_cast<double>(from.restore.planned), 76e6, 1e6);         // 2 blocks and 12 tokens
  EXPECT_NEAR(static_cast<double>(from.restore.loading_all), 134e6, 1e6);    // 4 loads, half of the tokens
  EXPECT_NEAR(static_cast<double>(from.restore.computing_all), 140e6, 1e6);  // every token
  d.finish();
  EXPECT_EQ(d.rows, 76u);
}

// On a machine that computes at a quarter of the speed that was believed.
TEST_F(CoreRestore, WhatPassesTookIsThePriceOfComputing) {
  TierDriver d(even_config("auto"));
  CostCurves slow = even_config("auto").costs;
  slow.token *= 4;
  d.costs = CostModel(slow);
  come_back(d);
  EXPECT_EQ(d.count(Tier::kDisk, Tier::kDevice), 4u) << "two would be computed at the believed price";
  const RestoreForecast& forecast = d.starts.back().sources.restore;
  EXPECT_NEAR(static_cast<double>(forecast.computing_all), 560e6, 5e6);
  EXPECT_NEAR(static_cast<double>(d.starts.back().sources.predicted_compute), 48e6, 1e6);
  d.finish();
}

TEST_F(CoreRestore, NamedPlansAreForced) {
  const std::vector<std::pair<std::string, std::string>> wanted = {
      {"kv", "3:128+12"},
      {"recompute", "3:0+140"},
      {"pensieve", "3:0+140"},  // nothing is in host memory
      {"token-wise", "3:0+64 3:128+12"},
      {"token-wise-rounded", "3:0+140"},  // 128 tokens
      {"naive-hybrid", "3:0+64 3:128+12"},
  };
  for (const auto& [rule, spans] : wanted) {
    // A window that reaches to the first token is as good as none.
    for (const CoreConfig& config : {even_config(rule), with_window(even_config(rule), 150)}) {
      TierDriver d(config);
      come_back(d);
      EXPECT_EQ(d.spans(), spans) << rule;
      d.finish();
      ASSERT_EQ(d.ends.size(), 3u) << rule;
    }
  }
}

// Where a window does not reach to the first token all is loaded or all computed: tokens behind computed ones
// that lack a part of their window could not go on.
TEST_F(CoreRestore, BehindANarrowWindowTiersAreWhole) {
  for (const auto& [rule, spans] : std::vector<std::pair<std::string, std::string>>{
           {"kv", "3:128+12"}, {"recompute", "3:0+140"}, {"token-wise", "3:128+12"}, {"auto", "3:128+12"}}) {
    TierDriver d(with_window(even_config(rule), 100));
    come_back(d);
    EXPECT_EQ(d.spans(), spans) << rule;
    d.finish();
    ASSERT_EQ(d.ends.size(), 3u) << rule;
  }
}

// The leading blocks are computed before anything has come, and the request waits for the others alone.
TEST_F(CoreRestore, WithAWideWindowLeadingBlocksWaitForNoLoad) {
  CoreConfig config = with_window(even_config("token-wise"), 150);
  config.max_batch_tokens = 40;
  TierDriver d(config);
  come_back(d);
  EXPECT_EQ(d.spans(), "3:0+40");
  d.done();
  EXPECT_EQ(d.spans(), "3:40+24 3:128+12");
  d.finish();
  EXPECT_EQ(d.rows, 76u);
  ASSERT_EQ(d.ends.size(), 3u);
}

// A load that fails is computed later; what the pass computed ahead of the first load is not lost, nor what
// else was loaded.
TEST_F(CoreRestore, AMissedLoadCostsItsBlockAlone) {
  for (const MoveResult result : {MoveResult::kTooSlow, MoveResult::kDamaged, MoveResult::kFailed}) {
    TierDriver d(even_config("auto"));
    come_back(d);
    const std::vector<Move> loads = loads_in(d.moves);
    ASSERT_EQ(loads.size(), 2u);
    d.step(MovesEnded{{{loads[1].id, MoveResult::kDone, 0}, {loads[0].id, result, 0}}});
    PassDone done{d.in_flight->pass->id, {}};
    done.spans.resize(2);
    done.spans[1].ok = false;  // it read what did not come
    d.in_flight.reset();
    d.step(done);
    EXPECT_EQ(d.spans(), "3:64+32 3:128+12");
    d.finish();
    EXPECT_EQ(d.rows, 76u + 44u);
    ASSERT_EQ(d.ends.size(), 3u);
    EXPECT_EQ(d.ends.back().reason, FinishReason::kLength);
  }
}

// A pass whose tokens come before every block that failed to load keeps all that it computed.
TEST_F(CoreRestore, APassAheadOfTheLoadsStandsWhateverTheyBring) {
  CoreConfig config = even_config("auto");
  config.max_batch_tokens = 64;
  TierDriver d(config);
  come_back(d);
  EXPECT_EQ(d.spans(), "3:0+64");
  const std::vector<Move> loads = loads_in(d.moves);
  ASSERT_EQ(loads.size(), 2u);
  d.step(MovesEnded{{{loads[0].id, MoveResult::kDamaged, 0}, {loads[1].id, MoveResult::kDone, 0}}});
  d.done();
  EXPECT_EQ(d.spans(), "3:64+32 3:128+12");
  d.finish();
  EXPECT_EQ(d.rows, 64u + 44u);
}

// A pass runs meanwhile, so the loads of who comes next begin before it is admitted.
TierDriver beside_a_decode(const std::string& rule) {
  CoreConfig config = even_config(rule);
  config.groups.front().block_count = 16;
  config.context_tokens = 512;
  TierDriver d(config);
  d.decode_after_saves(128, 510);
  d.arrive(4, run_of(0, 140));
  EXPECT_EQ(d.starts.back().request.value, 3u);
  return d;
}

// Who waits or runs beside it loses what it computes, so it computes less.
TEST_F(CoreRestore, ComputesNoMoreThanItMustWhereOthersRun) {
  TierDriver d = beside_a_decode("auto");
  EXPECT_EQ(d.count(Tier::kDisk, Tier::kDevice), 4u) << "alone it would compute two";
  d.finish();
}

// What was to be computed when the loads of who comes next began is asked again when they have come: while it
// waits there is time to load more.
TEST_F(CoreRestore, APreloadBringsWhatThePlanLoads) {
  TierDriver d = beside_a_decode("naive-hybrid");
  EXPECT_EQ(d.count(Tier::kDisk, Tier::kDevice), 2u);
  d.now += 2 * kBlock;  // as predicted: the link is what it was believed to be
  d.end_moves();
  d.done();
  ASSERT_EQ(d.starts.back().request.value, 4u);
  EXPECT_EQ(d.starts.back().sources.disk, 128u) << "the two that were left have been loaded too";
  EXPECT_EQ(d.missed(MissReason::kTooSlow), 0u);
  d.finish();
}

// What was believed of the machine is replaced by what was measured, from the next decision on.
TEST_F(CoreRestore, MeasuredCostsDecideFromThenOn) {
  TierDriver d(even_config("auto"));
  come_back(d);
  EXPECT_EQ(d.count(Tier::kDisk, Tier::kDevice), 2u);
  d.finish();
  CostCurves measured = even_config("auto").costs;
  measured.disk_read = {0, 31'250'000};
  d.step(CostsMeasured{measured});
  d.run(4, run_of(5000, 250));  // takes the whole device
  d.rows = 0;
  d.arrive(5, run_of(0, 140));
  EXPECT_EQ(d.starts.back().sources.disk, 128u) << "a disk that is a thousand times as fast";
  d.finish();
  measured.disk_read = {0, 31};
  d.step(CostsMeasured{measured});
  d.run(6, run_of(5000, 250));
  d.arrive(7, run_of(0, 140));
  EXPECT_EQ(d.starts.back().sources.disk, 0u) << "and one that is as slow";
  d.finish();
}

TEST_F(CoreRestore, AnUnknownPlanIsRefusedByName) {
  CoreConfig config = even_config("fastest");
  const Status status = Core::make(config).status();
  EXPECT_EQ(status.field(), "restore");
  EXPECT_NE(status.message().find("naive-hybrid"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace loci
