// SPDX-License-Identifier: Apache-2.0
// What ends or begins with many blocks is spread over steps, so that none of them is long
// (docs/decisions/core-scheduling.md).
#include <gtest/gtest.h>

#include <cstdint>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver.h"

namespace loci {
namespace {

constexpr Nanos kSoon = kNanosPerMilli;

// The request 1 runs, and 2, which had 41 blocks, has just ended.
TierDriver after_a_long_one() {
  CoreConfig config = tier_config(64, 0, 0);
  config.max_batch_tokens = 4096;
  TierDriver d(config);
  d.arrive(1, run_of(0, 40), 100);
  d.arrive(2, run_of(5000, 40 * kBlockTokens + 1));
  d.done();
  while (d.ends.empty()) d.done();
  EXPECT_EQ(d.core.stats().running, 1u);
  return d;
}

TEST(CorePortions, BlocksOfALongSequenceAreLetGoOverSeveralSteps) {
  TierDriver d = after_a_long_one();
  constexpr std::uint32_t kOwn = 2;  // of the one that runs
  std::uint32_t pinned = d.core.stats().blocks_pinned;
  EXPECT_EQ(pinned, kOwn + 41 - 16) << "the deepest have gone at once";
  while (pinned > kOwn) {
    EXPECT_LE(d.plan.wake_at, d.now + kSoon) << "the rest does not wait for an event";
    d.now = d.plan.wake_at;
    d.step(Tick{});
    const std::uint32_t left = d.core.stats().blocks_pinned;
    EXPECT_EQ(left, pinned - kOwn > 16 ? pinned - 16 : kOwn);
    ASSERT_LT(left, pinned);
    pinned = left;
  }
  EXPECT_EQ(d.plan.wake_at, kNever);
}

TEST(CorePortions, WhoeverLacksRoomDoesNotWaitForThem) {
  TierDriver d = after_a_long_one();
  d.arrive(3, run_of(9000, 60 * kBlockTokens));
  d.done();
  EXPECT_EQ(d.starts.back().request, RequestId(3)) << "it has the place of what was not let go yet";
  EXPECT_EQ(d.core.stats().blocks_pinned, 2u + 60u);
}

TEST(CorePortions, OfTheLastOneAllGoesAtOnce) {
  TierDriver d(tier_config(64, 0, 0));
  d.run(1, run_of(5000, 40 * kBlockTokens + 1));
  EXPECT_EQ(d.core.stats().blocks_pinned, 0u) << "nobody waits for the step";
  EXPECT_EQ(d.plan.wake_at, kNever);
}

// Twenty blocks are in host memory, and a pass runs that has no place for who needs them.
TEST(CorePortions, LoadsOfWhoComesNextBeginOverSeveralSteps) {
  CoreConfig config = tier_config(64, 128, 0);
  config.restore = "kv";
  config.preload = "unbounded";
  config.max_batch_tokens = 64;
  config.costs.host_load = {0, 1};
  TierDriver d(config);
  d.run(1, run_of(0, 20 * kBlockTokens));
  d.run(2, run_of(5000, 64 * kBlockTokens - 2));  // takes the whole device
  d.arrive(3, run_of(90'000, 64), 40);
  d.arrive(4, run_of(0, 20 * kBlockTokens + 20));
  EXPECT_EQ(d.starts.back().request, RequestId(3));
  for (const std::size_t begun : {8u, 16u}) {
    EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), begun);
    EXPECT_LE(d.plan.wake_at, d.now + kSoon) << "the rest does not wait for an event";
    d.now = d.plan.wake_at;
    d.step(Tick{});
  }
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 20u);
  EXPECT_EQ(d.plan.wake_at, kNever);
  d.end_moves();
  d.done();
  EXPECT_EQ(d.starts.back().request, RequestId(4));
  EXPECT_EQ(d.starts.back().sources.host, 20 * kBlockTokens) << "they count as what came from there";
  d.finish();
}

}  // namespace
}  // namespace loci
