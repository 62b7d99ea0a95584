// SPDX-License-Identifier: Apache-2.0
// What of its state a request loads, and what it computes meanwhile.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_events_testing.h"
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

// Of four blocks peers give those that `answer` says, beside a store that brings one in two minutes.
std::string spans_beside_a_slow_store(const std::vector<std::uint8_t>& answer, CoreConfig config) {
  for (CoreGroup& group : config.groups) group.disk_blocks = 0;
  for (CoreGroup& group : config.groups) group.shared_blocks = 64;
  config.hole_records = 0;
  config.shared_rounds = 4;
  config.costs.shared_read = {0, 8};
  TierDriver d(config);
  d.arrive(1, run_of(0, 140));
  d.step(SharedAnswer{RequestId(1), answer});
  const std::string spans = d.spans();
  d.finish();
  EXPECT_EQ(d.ends.size(), 1u);
  return spans;
}

// What is known of the store does not speak against the peers, nor does one that has nothing count.
TEST_F(CoreRestore, PeersAreReadThoughTheStoreBesideThemIsSlow) {
  constexpr std::uint8_t kStore = 1, kPeer = 1 + (1u << kLayerGroupsMax);
  const CoreConfig config = even_config("auto");
  EXPECT_EQ(spans_beside_a_slow_store({kPeer, kPeer, kPeer, kPeer}, config), "1:128+12");
  EXPECT_EQ(spans_beside_a_slow_store({kStore, kStore, kStore, kStore}, config), "1:0+140");
  EXPECT_EQ(spans_beside_a_slow_store({kPeer, kPeer, kStore, kStore}, config), "1:64+76");
  EXPECT_EQ(spans_beside_a_slow_store({kStore, kStore, kPeer, kPeer}, config), "1:0+64 1:128+12");
  EXPECT_EQ(spans_beside_a_slow_store({kStore, kPeer, kStore, kPeer}, config), "1:0+32 1:64+32 1:128+12");
}

// A model with a window reads what it sees, all over one link.
TEST_F(CoreRestore, PeersAreReadBehindAWindowToo) {
  constexpr std::uint8_t kStore = 3, kPeer = 3 + (3u << kLayerGroupsMax);
  const CoreConfig config = with_window(even_config("auto"), 64);
  EXPECT_EQ(spans_beside_a_slow_store({kPeer, kPeer, kPeer, kPeer}, config), "1:128+12");
  EXPECT_EQ(spans_beside_a_slow_store({kPeer, kPeer, kStore, kStore}, config), "1:64+64");
  EXPECT_EQ(spans_beside_a_slow_store({kStore, kStore, kStore, kStore}, config), "1:0+128");
}

// Where a window does not reach to the first token no leading block is computed: a request goes on from one
// place, and an earlier one asks less of the disk.
TEST_F(CoreRestore, BehindANarrowWindowItGoesOnFromTheBestPlace) {
  for (const auto& [rule, spans] : std::vector<std::pair<std::string, std::string>>{
           {"kv", "3:128+12"}, {"recompute", "3:0+140"}, {"token-wise", "3:64+76"}, {"auto", "3:64+76"}}) {
    TierDriver d(with_window(even_config(rule), 100));
    come_back(d);
    EXPECT_EQ(d.spans(), spans) << rule;
    d.finish();
    ASSERT_EQ(d.ends.size(), 3u) << rule;
  }
}

// Of `all` and `window` bytes of a block, most layers see two blocks or three.
CoreConfig narrow_config(std::uint64_t all, std::uint64_t window, std::uint64_t bytes_per_second) {
  CoreConfig config = tier_config(16, 0, 32);
  config.groups.front().block_bytes = all;
  config.groups.push_back(config.groups.front());
  config.groups.back() = {.window = 64, .block_count = 4, .disk_blocks = 32, .block_bytes = window};
  config.costs.token = kNanosPerMilli;
  config.costs.attention = {0};
  config.costs.pass = 0;
  config.costs.disk_read = {0, bytes_per_second};
  return config;
}

// Behind the window only the layers that see all are loaded, and priced. (All that a block may have would
// take 427 ms.)
TEST_F(CoreRestore, BehindANarrowWindowOnlyWhatIsSeenIsPricedAndLoaded) {
  TierDriver d(narrow_config(100, 900, 18'000));
  d.run(1, run_of(0, 256));
  d.run(2, run_of(5000, 500));  // takes the whole device
  d.arrive(3, run_of(0, 268));
  EXPECT_EQ(d.spans(), "3:256+12");
  std::uint64_t parts = 0, windows = 0;
  for (const Move& move : d.moves) {
    for (const MovePart& part : move.parts) ++(part.group == 0 ? parts : windows);
  }
  EXPECT_EQ(parts, 8u);
  EXPECT_EQ(windows, 2u);
  const ContextSources& from = d.starts.back().sources;
  EXPECT_EQ(from.disk, 256u);
  EXPECT_NEAR(static_cast<double>(from.restore.loading_all), 150e6, 2e6);  // 2,600 bytes
  EXPECT_NEAR(static_cast<double>(from.predicted_load), 144e6, 1e6);
  EXPECT_NEAR(static_cast<double>(from.restore.computing_all), 268e6, 1e6);
  d.finish();
}

// The disk has the windows of two turns' ends: from the first one half as much is loaded, while as much again
// is computed.
TEST_F(CoreRestore, AnEarlierTurnsEndIsAPlaceToGoOnFrom) {
  for (const auto& [rule, spans] :
       std::vector<std::pair<std::string, std::string>>{{"kv", "4:256+12"}, {"auto", "4:128+64"}}) {
    CoreConfig config = narrow_config(900, 100, 31'250);
    config.restore = rule;
    TierDriver d(config);
    for (const auto& [id, tokens] : {std::pair{1u, 128u}, {2u, 256u}}) {
      d.arrive(id, run_of(0, tokens), 4);
      d.finish();
    }
    d.run(3, run_of(5000, 500));  // takes the whole device
    d.arrive(4, run_of(0, 268));
    EXPECT_EQ(d.spans(), spans) << rule;
    const bool earlier = rule == "auto";
    EXPECT_EQ(d.starts.back().sources.disk, earlier ? 128u : 256u);
    EXPECT_EQ(d.missed(MissReason::kTooSlow), earlier ? 128u : 0u);
    d.finish();
    ASSERT_EQ(d.ends.size(), 4u) << rule;
  }
}

// The disk has all of a hundred blocks, and the device the first 51 for the layers that see all. Of the
// places up to there the last one computes least, and each loads two blocks' windows. A block takes the disk
// three seconds.
TEST_F(CoreRestore, OfManyPlacesBehindANarrowWindowTheBestIsWeighed) {
  CoreConfig config = narrow_config(900, 100, 300);
  config.groups.front().block_count = 170;
  for (CoreGroup& group : config.groups) group.disk_blocks = 400;
  config.context_tokens = 128 * kBlockTokens;
  LeftOnDisk disk(config);
  disk.add("group", run_of(0, 100 * kBlockTokens));
  TierDriver d(config, false);
  for (const Recovered& event : disk.events(500)) d.step(event);
  d.run(1, run_of(0, 51 * kBlockTokens + 4));
  ASSERT_EQ(d.starts.back().sources.cached(), 0u);
  d.run(2, run_of(5000, 128));  // takes the windows' room on the device
  d.arrive(3, run_of(0, 100 * kBlockTokens + 12));
  EXPECT_EQ(d.starts.back().sources.cached(), 51 * kBlockTokens);
  EXPECT_EQ(d.count(Tier::kDisk, Tier::kDevice), 2u);
  d.finish();
  ASSERT_EQ(d.ends.size(), 3u);
}

// Two turns of a conversation end at 128 and behind 256 tokens; the disk has the windows of both. It comes
// back, and the load of block `lost` ends so.
void lose_a_block(TierDriver& d, std::uint32_t lost, MoveResult result) {
  for (const auto& [id, tokens] : {std::pair{1u, 128u}, {2u, 256u}}) {
    d.arrive(id, run_of(0, tokens), 4);
    d.finish();
  }
  d.run(3, run_of(5000, 500));  // takes the whole device
  d.arrive(4, run_of(0, 268));
  ASSERT_EQ(d.spans(), "4:256+12");
  MovesEnded ended;
  for (const Move& move : std::exchange(d.moves, {}))
    ended.moves.push_back({move.id, move.entry.depth == lost + 1 ? result : MoveResult::kDone, 0});
  ASSERT_GE(ended.moves.size(), 8u);
  d.step(ended);
  d.rows = 0;
  d.done(4);
}

// It is computed from the last place before it whose window is whole, and what is complete behind it is
// passed over: of blocks 2, 3, 6 and 7 the device has all state but for what is lost.
TEST_F(CoreRestore, ALostLoadBehindANarrowWindowCostsNoMoreThanItMust) {
  for (const auto& [lost, computed] : std::vector<std::pair<std::uint32_t, std::size_t>>{
           {7, 3}, {6, 3}, {1, 4}}) {  // 4, 5 and 7; 4, 5 and 6; 0, 1, 4 and 5
    CoreConfig config = narrow_config(900, 100, 1'000'000);
    config.groups.back().block_count = 12;  // for the windows of all
    TierDriver d(config);
    lose_a_block(d, lost, MoveResult::kDamaged);
    d.finish();
    EXPECT_EQ(d.rows, computed * 32 + 12) << lost;
    ASSERT_EQ(d.ends.size(), 4u);
    EXPECT_EQ(d.ends.back().reason, FinishReason::kLength);
  }
}

// What was damaged says nothing of the window of an earlier place. A disk that is late is not asked again.
TEST_F(CoreRestore, BehindANarrowWindowTheDiskIsAskedAgainUnlessItWasLate) {
  for (const auto& [result, from] : std::vector<std::pair<MoveResult, std::string>>{
           {MoveResult::kDamaged, "4:128+"}, {MoveResult::kTooSlow, "4:0+"}}) {
    TierDriver d(narrow_config(900, 100, 1'000'000));
    lose_a_block(d, 7, result);
    EXPECT_TRUE(d.spans().starts_with(from)) << d.spans();
    EXPECT_EQ(d.count(Tier::kDisk, Tier::kDevice), result == MoveResult::kDamaged ? 2u : 0u);
    d.finish();
    ASSERT_EQ(d.ends.size(), 4u);
  }
}

// Of nine turns the window of each is damaged. It asks for a second one, and no more: else so many passes in
// a row would bring nothing that the request failed.
TEST_F(CoreRestore, BehindANarrowWindowManyDamagedCopiesFailNoRequest) {
  CoreConfig config = narrow_config(900, 100, 1'000'000);
  for (CoreGroup& group : config.groups) group.disk_blocks = 64;
  config.groups.front().block_count = 24;
  config.context_tokens = 24 * kBlockTokens;
  TierDriver d(config);
  for (std::uint32_t turn = 1; turn <= 9; ++turn) {
    d.arrive(turn, run_of(0, 64 * turn), 1);
    d.finish();
  }
  d.run(10, run_of(5000, 750));  // takes the whole device
  d.arrive(11, run_of(0, 588));
  std::size_t damaged = 0;
  while (d.in_flight) {
    MovesEnded ended;
    const std::size_t before = damaged;
    for (const Move& move : std::exchange(d.moves, {})) {
      const bool loads_window = move.to == Tier::kDevice && move.parts.back().group == 1;
      ended.moves.push_back({move.id, loads_window ? MoveResult::kDamaged : MoveResult::kDone, 0});
      damaged += loads_window ? 1 : 0;
    }
    d.step(ended);
    d.done(damaged > before ? 11 : 0);
  }
  EXPECT_EQ(damaged, 4u) << "of two places";
  ASSERT_EQ(d.ends.size(), 11u);
  EXPECT_EQ(d.ends.back().reason, FinishReason::kLength);
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
// else was loaded. With a window that reaches to the first token it is the same.
TEST_F(CoreRestore, AMissedLoadCostsItsBlockAlone) {
  for (const CoreConfig& config : {even_config("auto"), with_window(even_config("auto"), 150)}) {
    for (const MoveResult result : {MoveResult::kTooSlow, MoveResult::kDamaged, MoveResult::kFailed}) {
      TierDriver d(config);
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
}

// A pass whose tokens come before every block that failed to load keeps all that it computed.
TEST_F(CoreRestore, APassAheadOfTheLoadsStandsWhateverTheyBring) {
  for (CoreConfig config : {even_config("auto"), with_window(even_config("auto"), 150)}) {
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
