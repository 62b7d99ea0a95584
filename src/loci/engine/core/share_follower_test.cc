// SPDX-License-Identifier: Apache-2.0
// Which blocks are saved as hidden states, while loads, passes and projecting take other times than were
// measured.
#include "loci/engine/core/share_follower.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>

#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

// A block takes 32 ms to compute, 1 ms to load, a quarter of it as hidden states, and 32 µs to project. (A
// usual turn computes for longer than all its loads take, so there is no use for hidden states.)
CoreConfig config_of(bool follows) {
  CoreConfig config = tier_config(10, 0, 40);
  config.context_tokens = 8 * kBlockTokens;
  config.restore = "kv";
  config.costs.token = kNanosPerMilli;
  config.costs.attention = {0};
  config.costs.pass = kNanosPerMilli;
  config.costs.projection = 1'000;
  config.costs.disk_charge = 0;
  config.costs.disk_read = {0, 1'000'000};
  config.hidden = {.disk_blocks = 160, .block_bytes = 250, .share = {}, .follows = follows};
  return config;
}

// Two conversations take turns, and the device has room for one: each turn brings seven blocks back, each of
// which takes so long.
void take_turns(TierDriver& d, std::uint32_t turns, Nanos load) {
  for (std::uint32_t turn = 0; turn < turns; ++turn) {
    d.arrive(d.ends.size() + 1, run_of(turn % 2 * 5'000, 7 * kBlockTokens + 1));
    while (d.in_flight || !d.moves.empty()) {
      d.now += load * static_cast<Nanos>(d.count(Tier::kDisk, Tier::kDevice));
      d.end_moves();
      if (d.in_flight) d.done();
    }
  }
}

TEST(ShareFollower, ASlowDiskGetsHiddenStates) {
  for (const bool follows : {true, false}) {
    TierDriver d(config_of(follows));
    take_turns(d, 40, kNanosPerMilli);
    EXPECT_EQ(d.core.stats().hidden_percent, 0u) << "as measured";
    take_turns(d, 40, 20 * kNanosPerMilli);
    EXPECT_EQ(d.core.stats().hidden_percent > 50, follows);
    const std::uint64_t loaded = d.core.stats().moves[static_cast<std::size_t>(CoreLink::kDiskLoad)].ended[0];
    EXPECT_GT(loaded, 3 * ShareFollower::kLoadsApart);
    // Another conversation is saved by the new share.
    d.run(1000, run_of(9'000, 7 * kBlockTokens + 1));
    EXPECT_EQ(d.core.stats().hidden_saved_total > 3, follows);
  }
}

// So slow that a plan of least cost loads no keys and values at all any more.
TEST(ShareFollower, ADiskThatIsTooSlowToBeReadGetsHiddenStatesToo) {
  for (const bool follows : {true, false}) {
    CoreConfig config = config_of(follows);
    config.restore = "auto";
    TierDriver d(config);
    take_turns(d, 40, kNanosPerMilli);
    EXPECT_EQ(d.core.stats().hidden_percent, 0u) << "as measured";
    const auto loaded = [&] {
      return d.core.stats().moves[static_cast<std::size_t>(CoreLink::kDiskLoad)].ended[0];
    };
    const std::uint64_t before = loaded();
    take_turns(d, 30, 120 * kNanosPerMilli);
    EXPECT_LT(loaded() - before, ShareFollower::kLoadsApart) << "most were declined";
    // Others come, whose blocks are saved.
    for (std::uint32_t i = 0; i < 40; ++i) d.run(1000 + i, run_of(20'000 + 500 * i, 7 * kBlockTokens + 1));
    EXPECT_EQ(d.core.stats().hidden_percent > 50, follows);
    EXPECT_EQ(d.core.stats().hidden_saved_total > 3, follows);
  }
}

// Loads that are given up say how slow the disk is, too.
TEST(ShareFollower, LoadsThatAreGivenUpCount) {
  TierDriver d(config_of(true));
  take_turns(d, 4, kNanosPerMilli);
  for (std::uint64_t i = 0; i < 60 && d.core.stats().hidden_percent == 0; ++i) {
    d.arrive(100 + i, run_of(static_cast<std::uint32_t>(i % 2) * 5'000, 7 * kBlockTokens + 1));
    while (d.in_flight || !d.moves.empty()) {
      const bool loads = d.count(Tier::kDisk, Tier::kDevice) > 0;
      d.now += loads ? 200 * kNanosPerMilli : 0;
      d.end_moves(loads ? MoveResult::kTooSlow : MoveResult::kDone, loads ? 200 * kNanosPerMilli : 0);
      if (d.in_flight) d.done();
    }
  }
  EXPECT_GT(d.core.stats().hidden_percent, 50u);
}

TEST(ShareFollower, CostsThatAreMeasuredCountAtOnce) {
  CoreConfig config = config_of(true);
  TierDriver d(config);
  config.costs.disk_read.bytes_per_second = 50'000;
  d.step(CostsMeasured{config.costs});
  ASSERT_TRUE(d.plan.hidden_share.has_value());
  EXPECT_EQ(*d.plan.hidden_share, hidden_share(CostModel(config.costs), 1000, 250));
  EXPECT_GT(d.plan.hidden_share->percent, 50u);
  d.step(CostsMeasured{config.costs});
  EXPECT_FALSE(d.plan.hidden_share.has_value()) << "as before";
  config.costs.projection = 0;
  d.step(CostsMeasured{config.costs});
  EXPECT_EQ(d.plan.hidden_share, HiddenShare{}) << "nobody knows what projecting costs";
}

}  // namespace
}  // namespace loci
