// SPDX-License-Identifier: Apache-2.0
// Loads that begin before their request is admitted (preloads.h), with the core around them.
#include "loci/engine/core/preloads.h"

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

constexpr std::uint64_t kRunsMeanwhile = 50;  // the request that runs while others wait

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

// S_buf = B (T_load L_hist - T_pref L_new): computing the new tokens takes half as long as loading.
TEST(Preloads, AreOffBoundedByTheReadBufferOrNotAtAll) {
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

// A disk that has stopped refuses reads at once. Who waits for more of its state must not ask again with
// every refusal.
TEST(Preloads, AreNotAskedOfADiskThatHasJustGivenUp) {
  CoreConfig config = tier_config(16, 0, 64);
  config.preload = "unbounded";
  config.max_batch_tokens = 64;
  config.costs.token = kNanosPerMilli;
  config.costs.attention = {0};
  config.costs.pass = 0;
  config.costs.disk_read = {0, 15'000};  // a block takes twice as long as computing it: some are computed
  TierDriver d(config);
  d.run(1, run_of(0, 128));
  d.run(2, run_of(5000, 510));  // takes the whole device
  d.passes_take_time = false;
  d.arrive(3, run_of(9000, 64), 40);
  d.arrive(4, run_of(0, 192));
  ASSERT_EQ(d.starts.back().request, RequestId(3));
  const std::size_t begun = d.count(Tier::kDisk, Tier::kDevice);
  ASSERT_TRUE(begun > 0 && begun < 4) << begun;
  const auto refuse = [&d] {
    MovesEnded ended;
    for (const Move& move : std::exchange(d.moves, {}))
      ended.moves.push_back({move.id, MoveResult::kTooSlow, 0});
    d.step(ended);
    return d.count(Tier::kDisk, Tier::kDevice);
  };
  EXPECT_EQ(refuse(), 0u) << "more would be refused too";
  EXPECT_EQ(refuse(), 0u) << "nothing; and no time has passed";
  EXPECT_LE(d.plan.wake_at, d.now + kNanosPerSecond);
  d.now += kNanosPerSecond;
  d.step(Tick{});
  EXPECT_GT(d.count(Tier::kDisk, Tier::kDevice), 0u) << "it is tried again, without any other event";
  EXPECT_EQ(refuse(), 0u);
  d.finish();
  EXPECT_EQ(d.ends.size(), 4u);
}

// What had no room is tried again when there is some.
TEST(Preloads, AreTriedAgainWhenThereIsRoom) {
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
TEST(Preloads, OfAStepAreOfAFewWhoComeNext) {
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
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 200u) << "whole requests, until it is enough";
  EXPECT_LE(d.plan.wake_at, d.now + kNanosPerMilli);
  d.step(Tick{});
  EXPECT_GT(d.count(Tier::kHost, Tier::kDevice), 390u) << "some are on the device still";
  d.finish();
  EXPECT_EQ(d.ends.size(), 17u);
}

// Passes that follow one another so closely that no other step comes between them put it off once.
TEST(Preloads, ArePutOffForOnePass) {
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

// Six lacked room, and then there is some; a request runs.
TierDriver six_lacked_room(std::uint32_t retries) {
  CoreConfig config = tier_config(64, 200, 0);
  config.restore = "kv";
  config.max_running = 1;
  config.preload_retries = retries;
  TierDriver d(config);
  const auto tenant = [](std::uint32_t i) { return std::string(1, static_cast<char>('a' + i)); };
  for (std::uint32_t i = 0; i < 6; ++i) d.run(1 + i, run_of(10'000 * i, 64), tenant(i));
  for (std::uint32_t i = 0; i < 2; ++i) d.run(7 + i, run_of(500'000 + 10'000 * i, 60 * kBlockTokens));
  d.arrive(50, run_of(900'000, 10), 40);
  d.step(MemoryRoom{.slots = {40}});
  for (std::uint32_t i = 0; i < 6; ++i) d.arrive(51 + i, run_of(10'000 * i, 70), 1, tenant(i));
  d.end_moves();
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 0u) << "memory is short";
  d.step(MemoryRoom{.slots = {64}});
  return d;
}

// A step looks at four of them again, and the next one at the others.
TEST(Preloads, OfAFewAreTriedAgainInAStep) {
  TierDriver d = six_lacked_room(PolicySet().preload_retries);
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 8u);
  d.step(Tick{});
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 12u);
  d.step(Tick{});
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 12u) << "nobody lacks anything";
}

TEST(Preloads, OfAsManyAsTheConfigurationSaysAreTriedAgain) {
  TierDriver all = six_lacked_room(kPreloadRetriesMax);
  EXPECT_EQ(all.count(Tier::kHost, Tier::kDevice), 12u);
  TierDriver none = six_lacked_room(0);
  none.step(Tick{});
  EXPECT_EQ(none.count(Tier::kHost, Tier::kDevice), 0u);
  none.finish();
  EXPECT_EQ(none.ends.size(), 15u) << "what they lack is loaded when they are admitted";
}

// Conversations whose state the host has and the device has not. One request runs.
class PreloadsTest : public testing::Test {
 protected:
  static CoreConfig config(std::uint32_t device, std::uint32_t host) {
    CoreConfig config = tier_config(device, host, 0);
    config.context_tokens = 16 * kBlockTokens;
    config.restore = "kv";
    config.max_running = 1;
    return config;
  }
  // Takes all of the device, then begins a request that runs.
  static void occupy(TierDriver& d) {
    for (std::uint32_t i = 0; i < 4; ++i) d.run(100 + i, run_of(20'000 + 1000 * i, 320));
    d.arrive(kRunsMeanwhile, run_of(90'000, 10), 40);
    ASSERT_TRUE(d.in_flight);
    d.end_moves();
  }
  // Of each block that is loaded, its first token, and the parts that are.
  static std::vector<std::pair<std::uint32_t, std::size_t>> loads(const TierDriver& d) {
    std::vector<std::pair<std::uint32_t, std::size_t>> loads;
    for (const Move& move : d.moves) {
      if (move.to == Tier::kDevice) loads.emplace_back(move.entry.tokens.front().value, move.parts.size());
    }
    std::ranges::sort(loads);
    return loads;
  }
  using Loads = std::vector<std::pair<std::uint32_t, std::size_t>>;
};

TEST_F(PreloadsTest, RotatesWhatACutHasMovedBeforeAdmission) {
  TierDriver d(config(32, 100));
  d.run(1, run_of(0, 300));
  occupy(d);
  d.step(cut_arrival(51, run_of(0, 310), {64, 128}));
  EXPECT_EQ(loads(d), (Loads{{0, 1}, {32, 1}, {128, 1}, {160, 1}, {192, 1}, {224, 1}, {256, 1}}));
  for (const Move& move : d.moves) {
    const bool moved = move.to == Tier::kDevice && move.entry.tokens.front().value >= 128;
    EXPECT_EQ(move.rotate_by, moved ? -64 : 0);
  }
  EXPECT_EQ(d.starts.back().request, RequestId(kRunsMeanwhile)) << "it still waits";
  d.end_moves();
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 0u);
  d.finish();
  ASSERT_EQ(d.starts.back().request, RequestId(51));
  EXPECT_EQ(d.starts.back().sources.host, 224u) << "and that is where it came from";
  EXPECT_EQ(d.starts.back().cached_tokens, 224u);
}

// The load of one is on its way when the request is admitted, or does not come.
TEST_F(PreloadsTest, ARotationThatIsOnItsWayOrFailsIsNoHarm) {
  for (const MoveResult result : {MoveResult::kDone, MoveResult::kFailed}) {
    TierDriver d(config(32, 100));
    d.run(1, run_of(0, 300));
    occupy(d);
    d.step(cut_arrival(51, run_of(0, 310), {64, 128}));
    d.rows = 0;
    while (d.starts.back().request != RequestId(51)) d.done();
    EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 7u) << "it waits for the same moves";
    d.end_moves(result);
    d.finish();
    ASSERT_EQ(d.ends.back().request, RequestId(51));
    EXPECT_GE(d.rows, result == MoveResult::kDone ? 22u : 246u);
  }
}

// --- windows ---

class PreloadsWindowsTest : public PreloadsTest {
 protected:
  // Layers that see all, and layers that see 64 tokens.
  static CoreConfig config(std::uint32_t window_blocks) {
    CoreConfig config = PreloadsTest::config(32, 100);
    config.groups.push_back(config.groups.front());
    config.groups.back().window = 64;
    config.groups.back().block_count = window_blocks;
    config.max_batch_tokens = 32;
    return config;
  }
};

TEST_F(PreloadsWindowsTest, BringsWhatTheNextTokenSees) {
  TierDriver d(config(12));
  d.run(1, run_of(0, 160));
  occupy(d);
  d.arrive(51, run_of(0, 170));
  EXPECT_EQ(loads(d), (Loads{{0, 1}, {32, 1}, {64, 1}, {96, 2}, {128, 2}})) << "the window begins at 97";
  EXPECT_EQ(d.starts.back().request, RequestId(kRunsMeanwhile)) << "it still waits";
  d.end_moves();
  d.rows = 0;
  d.finish();
  ASSERT_EQ(d.starts.back().request, RequestId(51));
  EXPECT_EQ(d.starts.back().sources.host, 160u);
}

// What it is promised must fit beside its own loads, or it would wait for them to end.
TEST_F(PreloadsWindowsTest, LeavesRoomForWhatTheRequestIsPromised) {
  TierDriver d(config(7));
  d.run(1, run_of(0, 160));
  occupy(d);
  d.arrive(51, run_of(0, 170));
  EXPECT_TRUE(loads(d).empty());
  d.finish();
  EXPECT_EQ(d.starts.back().sources.host, 160u);
}

}  // namespace
}  // namespace loci
