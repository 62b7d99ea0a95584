// SPDX-License-Identifier: Apache-2.0
// What waiting requests want (queue_needs.h), with the core around it. Looking ahead goes in the order in
// which requests will be admitted, not in that of their arrival. The window has one request; what it needs of
// the disk is brought to the host. And it looks at whatever brings state back: originals of histories that
// were cut, and what windows see.
#include "loci/engine/core/queue_needs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

constexpr std::uint64_t kRuns = 50;  // the request that runs while others wait

class QueueNeedsTest : public testing::Test {
 protected:
  static CoreConfig config(const std::string& admission) {
    CoreConfig config = tier_config(64, 8, 512);
    config.context_tokens = 4 * kBlockTokens;
    config.admission = admission;
    config.restore = "pensieve";  // what the disk has comes by way of the host
    config.preload = "off";
    config.eviction = "lookahead";
    config.max_running = 1;
    config.lookahead_requests = 1;
    config.saves_max = 8;
    return config;
  }
  // The sessions of 64 tokens that begin with 1000 and 2000 are on the disk alone.
  static TierDriver made(const CoreConfig& config) {
    TierDriver d(config);
    for (std::uint32_t i = 1; i <= 2; ++i) d.run(i, session(i));
    flush(d, 3);
    return d;
  }
  // Requests from `first` on take what room there is in memory.
  static void flush(TierDriver& d, std::uint32_t first) {
    for (std::uint32_t i = first; i < first + 40; ++i) d.run(i, run_of(1000 * i, 64));
  }
  static Tokens session(std::uint32_t number) { return run_of(1000 * number, 64); }
  static Tokens next_turn(std::uint32_t number) { return run_of(1000 * number, 70); }
  static Tokens unknown(std::uint32_t number) { return run_of(500'000 + 1000 * number, 70); }

  // Of each block that is being loaded from the disk to the host, the first token.
  static std::vector<std::uint32_t> prefetched(const TierDriver& d) {
    std::vector<std::uint32_t> first;
    for (const Move& move : d.moves) {
      if (move.from == Tier::kDisk && move.to == Tier::kHost)
        first.push_back(move.entry.tokens.front().value);
    }
    return first;
  }
  // The requests that start from now on, in their order.
  static std::vector<std::uint64_t> starts(TierDriver& d) {
    const std::size_t before = d.starts.size();
    d.finish();
    std::vector<std::uint64_t> order;
    for (std::size_t i = before; i < d.starts.size(); ++i) order.push_back(d.starts[i].request.value);
    return order;
  }

  using Blocks = std::vector<std::uint32_t>;
  using Order = std::vector<std::uint64_t>;
};

TEST_F(QueueNeedsTest, GoesByDistanceUnderFpf) {
  TierDriver d = made(config("fpf"));
  d.arrive(kRuns, unknown(0), 40);
  d.end_moves();
  d.arrive(51, unknown(1));
  d.arrive(52, next_turn(1));
  EXPECT_EQ(prefetched(d), (Blocks{1000, 1032})) << "it is nearer than who came before it";
  EXPECT_EQ(starts(d), (Order{52, 51}));
  EXPECT_EQ(d.starts[d.starts.size() - 2].sources.host, 64u);
}

// (now - arrival) * (4 - N): in the end the nearer one passes the earlier one.
TEST_F(QueueNeedsTest, GoesByPriorityUnderRelaxedFpf) {
  TierDriver d = made(config("relaxed-fpf"));
  d.arrive(kRuns, unknown(0), 40);
  d.end_moves();
  d.arrive(51, unknown(1));
  d.now += kNanosPerSecond;
  d.arrive(52, next_turn(1));
  EXPECT_TRUE(prefetched(d).empty()) << "who came before it comes first";
  d.now += 10 * kNanosPerSecond;
  d.done();
  EXPECT_EQ(prefetched(d), (Blocks{1000, 1032}));
  EXPECT_EQ(starts(d), (Order{52, 51}));
}

// The tenant of the one that runs is given tokens, so the other one's turn comes before.
TEST_F(QueueNeedsTest, GoesByTheTurnsOfTenants) {
  TierDriver d(config("fcfs"));
  d.run(1, session(1), "a");
  d.run(2, session(2), "b");
  flush(d, 3);
  d.arrive(kRuns, unknown(0), 40, "a");
  d.end_moves();
  d.arrive(51, next_turn(1), 1, "a");
  d.arrive(52, next_turn(2), 1, "b");
  EXPECT_EQ(prefetched(d), (Blocks{1000, 1032}));
  for (int i = 0; i < 20; ++i) {
    d.end_moves();
    d.done();
    if (!prefetched(d).empty()) break;
  }
  EXPECT_EQ(prefetched(d), (Blocks{2000, 2032}));
  EXPECT_EQ(starts(d), (Order{52, 51}));
}

// Who was suspended in the midst of its reply comes before who has not begun, wherever its state is.
TEST_F(QueueNeedsTest, GoesToWhoWasSuspendedFirst) {
  TierDriver d = made(config("fpf"));
  d.arrive(kRuns, unknown(0), 3);
  d.arrive(51, next_turn(2));
  d.step(Pause{RequestId(51), true});
  d.arrive(52, next_turn(1), 20);
  while (d.starts.back().request != RequestId(52)) {
    d.end_moves();
    d.done();
  }
  d.done();
  d.step(Pause{RequestId(52), true});
  d.finish();
  flush(d, 100);
  d.arrive(60, unknown(2), 40);
  d.end_moves();
  d.step(Pause{RequestId(51), false});
  EXPECT_EQ(prefetched(d), (Blocks{2000, 2032})) << "it arrived before the other one";
  d.end_moves();
  d.step(Pause{RequestId(52), false});
  EXPECT_EQ(prefetched(d), (Blocks{1000, 1032}));
  d.finish();
  ASSERT_EQ(d.starts.back().request, RequestId(51)) << "(the other one has started before)";
}

// L_pw = C_mem / S_kv: sessions have two blocks, some three; of the host's eight as many are available as the
// configuration says.
TEST_F(QueueNeedsTest, PrefetchesForAsManyAsTheAvailableHostMemoryHolds) {
  for (const auto& [percent, blocks] : std::vector<std::pair<std::uint32_t, Blocks>>{
           {100, {1000, 1032, 2000, 2032}}, {40, {1000, 1032}}, {0, {}}}) {
    CoreConfig limited = config("fcfs");
    limited.lookahead_requests = kLookaheadUnlimited;
    limited.prefetch_percent = percent;
    TierDriver d = made(limited);
    d.arrive(kRuns, unknown(0), 40);
    d.end_moves();
    d.arrive(51, next_turn(1));
    d.arrive(52, next_turn(2));
    EXPECT_EQ(prefetched(d), blocks) << percent;
  }
}

// Sessions of two blocks on a disk that holds two blocks as keys and values, or sixteen as hidden states,
// which all are: the state of more than one waiting request is spared.
TEST_F(QueueNeedsTest, ADiskOfHiddenStatesCountsForTheWindow) {
  CoreConfig config = tier_config(8, 0, 2);
  config.hidden = {
      .disk_blocks = 16, .block_bytes = config.groups.front().block_bytes / 2, .share = {.percent = 100}};
  config.context_tokens = 6 * kBlockTokens;
  config.eviction = "lookahead";
  config.preload = "off";
  config.max_running = 1;
  TierDriver d(config);
  for (std::uint32_t i = 1; i <= 3; ++i) d.run(i, session(i));
  d.arrive(kRuns, run_of(90'000, 40), 60);
  d.arrive(51, unknown(1));
  d.arrive(52, next_turn(1));
  EXPECT_EQ(starts(d), (Order{51, 52}));
  EXPECT_EQ(d.starts.back().sources.device, 64u) << "others gave way before it, though they are newer";
}

// What is computed in any case is not brought nearer.
TEST_F(QueueNeedsTest, WhereNothingIsLoadedNothingIsPrefetched) {
  CoreConfig computes = config("fcfs");
  computes.restore = "recompute";
  TierDriver d = made(computes);
  d.arrive(kRuns, unknown(0), 40);
  d.end_moves();
  d.arrive(51, next_turn(1));
  EXPECT_TRUE(prefetched(d).empty());
  d.finish();
  EXPECT_EQ(d.starts.back().sources.cached(), 0u);
}

// --- histories that were cut ---

// What its blocks are rotated from is wanted at its place: here from the disk.
TEST_F(QueueNeedsTest, BringsTheOriginalsOfWhatACutHasMoved) {
  TierDriver d(config("fcfs"));
  d.run(1, run_of(1000, 96));
  flush(d, 3);
  d.arrive(kRuns, unknown(0), 40);
  d.end_moves();
  d.step(cut_arrival(51, run_of(1000, 150), {32, 64}));
  EXPECT_EQ(prefetched(d), (Blocks{1000, 1064})) << "the front, and block 1 from block 2";
  d.finish();
  EXPECT_EQ(d.starts.back().sources.host, 64u);
}

// --- windows ---

// Of each block that is prefetched, its first token, and the parts that are, until nothing moves.
std::vector<std::pair<std::uint32_t, std::size_t>> prefetched_parts(TierDriver& d) {
  std::vector<std::pair<std::uint32_t, std::size_t>> parts;
  while (!d.moves.empty()) {
    MovesEnded ended;
    for (const Move& move : std::exchange(d.moves, {})) {
      if (move.from == Tier::kDisk && move.to == Tier::kHost)
        parts.emplace_back(move.entry.tokens.front().value, move.parts.size());
      ended.moves.push_back({move.id, MoveResult::kDone, 0});
    }
    d.step(ended);
  }
  std::ranges::sort(parts);
  return parts;
}

// Layers that see all, and layers that see 64 tokens.
CoreConfig prefetching_config() {
  CoreConfig config = tier_config(32, 12, 400);
  config.context_tokens = 16 * kBlockTokens;
  config.restore = "pensieve";
  config.preload = "off";
  config.eviction = "lookahead";
  config.max_running = 1;
  config.max_batch_tokens = 32;
  config.groups.push_back(config.groups.front());
  config.groups.back().window = 64;
  config.groups.back().block_count = 12;
  return config;
}

// Of earlier turns the disk has windows too, which nobody sees any more.
TEST(QueueNeeds, WhatTheNextTokenSeesIsPrefetched) {
  TierDriver d(prefetching_config());
  d.run(1, run_of(0, 160));
  d.run(2, run_of(0, 290));
  for (std::uint32_t i = 0; i < 16; ++i) d.run(200 + i, run_of(40'000 + 1000 * i, 320));
  d.arrive(kRuns, run_of(90'000, 10), 40);
  d.end_moves();
  d.arrive(51, run_of(0, 300));
  const std::vector<std::pair<std::uint32_t, std::size_t>> expected = {
      {0, 1}, {32, 1}, {64, 1}, {96, 1}, {128, 1}, {160, 1}, {192, 1}, {224, 2}, {256, 2}};
  EXPECT_EQ(prefetched_parts(d), expected);
}

// A peer has what follows, as it said to another request. Who was not answered in time may not read it: it
// goes on from the place that this server has, and wants its windows.
TEST(QueueNeeds, WhatARequestMayNotLoadLeadsToNoPlace) {
  for (const bool is_answered : {false, true}) {
    CoreConfig config = prefetching_config();
    config.restore = "kv";
    config.writes_shared = false;
    for (CoreGroup& group : config.groups) group.shared_blocks = 64;
    TierDriver d(config);
    const auto run_with_nothing_at_peers = [&](std::uint64_t id, const Tokens& prompt) {
      d.arrive(id, prompt);
      d.step(SharedAnswer{RequestId(id), std::vector<std::uint8_t>(d.plan.asks.front().keys.size())});
      d.finish();
    };
    run_with_nothing_at_peers(1, run_of(0, 160));
    for (std::uint32_t i = 0; i < 16; ++i) run_with_nothing_at_peers(200 + i, run_of(40'000 + 1000 * i, 320));
    d.arrive(kRuns, run_of(90'000, 10), 40);
    d.end_moves();
    d.arrive(49, run_of(0, 300));
    ASSERT_EQ(d.plan.asks.front().keys.size(), 4u) << "blocks 5 to 8";
    const std::vector<std::uint8_t> all(4, 3);
    d.step(Pause{RequestId(49), true});  // so that nothing is wanted for it
    d.step(SharedAnswer{RequestId(49), all});
    d.step(Cancel{RequestId(49)});
    d.arrive(51, run_of(0, 300));
    ASSERT_TRUE(d.moves.empty());
    if (is_answered) {
      d.step(SharedAnswer{RequestId(51), all});
    } else {
      d.now += kNanosPerSecond;
      d.step(Tick{});
    }
    const std::size_t parts = is_answered ? 1 : 2;  // of the blocks that the window behind block 4 sees
    const std::vector<std::pair<std::uint32_t, std::size_t>> expected = {
        {0, 1}, {32, 1}, {64, 1}, {96, parts}, {128, parts}};
    EXPECT_EQ(prefetched_parts(d), expected);
  }
}

// The host has the windows behind which four turns of a conversation ended, and that of another one. While
// the next turn waits, what is saved takes the room of the first ones: nobody will read those any more.
TEST(QueueNeeds, WindowsOfEarlierTurnsAreNotKeptForWhoWaits) {
  CoreConfig config = tier_config(100, 200, 0);
  config.context_tokens = 24 * kBlockTokens;
  config.preload = "off";
  config.eviction = "lookahead";
  config.max_running = 2;
  config.groups.push_back(config.groups.front());  // layers that see all, and layers that see 64 tokens
  config.groups.back().window = 64;
  config.groups.back().block_count = 9;
  config.groups.back().host_blocks = 13;
  TierDriver d(config);
  for (std::uint32_t turn = 1; turn <= 4; ++turn) d.run(turn, run_of(0, 128 * turn + 4));
  d.run(5, run_of(30'000, 70));
  d.arrive(kRuns, run_of(90'000, 10), 60);
  d.arrive(6, run_of(40'000, 70), 2);
  d.arrive(7, run_of(50'000, 70), 2);
  d.arrive(8, run_of(60'000, 10), 60);
  d.arrive(51, run_of(0, 560));
  while (d.starts.back().request != RequestId(8)) {
    d.end_moves();
    d.done();
  }
  d.end_moves();  // two windows were saved
  d.step(Cancel{RequestId(51)});
  d.arrive(9, run_of(30'000, 100));
  d.finish();
  EXPECT_EQ(d.starts.back().sources.host, 64u) << "the other one's was kept";
}

}  // namespace
}  // namespace loci
