// SPDX-License-Identifier: Apache-2.0
// Requests whose clients do not take what they say (Pause).
#include <gtest/gtest.h>

#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

Pause pause(std::uint64_t id, bool paused = true) { return {.request = RequestId(id), .paused = paused}; }

TEST(CorePause, APausedRequestLeavesTheBatchAndGoesOnWithItsState) {
  TierDriver d(tier_config(8, 0, 0));
  d.arrive(1, run_of(0, 40), 20);
  d.arrive(2, run_of(100, 40), 40);
  d.done();
  d.done();
  EXPECT_EQ(d.spans(), "1:41+1 2:40+1");
  d.step(pause(1));
  d.done();
  EXPECT_EQ(d.spans(), "2:41+1") << "the token that was being made still counts, and none follows";
  for (int i = 0; i < 5; ++i) d.done();
  EXPECT_EQ(d.spans(), "2:46+1");
  EXPECT_EQ(d.core.stats().queued, 0u) << "it is in no queue";
  EXPECT_EQ(d.core.stats().blocks_pinned, 2u) << "and holds no memory";
  d.step(pause(1, false));
  d.done();
  EXPECT_EQ(d.spans(), "2:47+1 1:42+1") << "nothing was let go meanwhile, and nothing is computed again";
  d.finish();
  ASSERT_EQ(d.ends.size(), 2u);
  EXPECT_EQ(d.ends[0].usage.completion_tokens, 20u);
}

TEST(CorePause, OthersTakeItsMemoryAndTiersBringItBack) {
  TierDriver d(tier_config(4, 8, 0));
  d.arrive(1, run_of(0, 70), 20);
  d.done();
  d.step(pause(1));
  d.done();
  d.end_moves();
  EXPECT_FALSE(d.in_flight) << "nobody else is there";
  d.run(2, run_of(500, 100));
  d.step(pause(1, false));
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 3u) << "the end of what it has, and two blocks before that";
  d.rows = 0;
  d.finish();
  EXPECT_EQ(d.rows, 18u) << "one for each token that was missing";
  EXPECT_EQ(d.ends.back().usage.completion_tokens, 20u);
  EXPECT_EQ(d.ends.back().request, RequestId(1));
}

TEST(CorePause, WhoWaitsLeavesTheQueueAndComesBackToItsPlace) {
  CoreConfig config = tier_config(8, 0, 0);
  config.max_running = 1;
  TierDriver d(config);
  d.arrive(1, run_of(0, 10), 3);
  d.arrive(2, run_of(100, 10), 3);
  d.arrive(3, run_of(200, 10), 3);
  d.step(pause(2));
  EXPECT_EQ(d.core.stats().queued, 1u);
  d.step(pause(2, false));
  EXPECT_EQ(d.core.stats().queued, 2u);
  d.finish();
  ASSERT_EQ(d.ends.size(), 3u);
  EXPECT_EQ(d.ends[1].request, RequestId(2)) << "it is still the second that came";
}

TEST(CorePause, APausedRequestCanEndInEveryWay) {
  TierDriver d(tier_config(8, 0, 0));
  d.passes_take_time = false;
  d.arrive(1, run_of(0, 10), 30);
  d.done();
  d.step(pause(1));
  d.done();
  EXPECT_FALSE(d.in_flight);
  d.step(Cancel{RequestId(1)});
  EXPECT_EQ(d.ends.back().reason, FinishReason::kCancelled);
  Arrival late{RequestId(2), "group", run_of(100, 10), 30, 0, {}, 50};
  d.step(late);
  d.step(pause(2));
  d.done();
  EXPECT_EQ(d.plan.wake_at, 50) << "its deadline holds";
  d.now = 50;
  d.step(Tick{});
  EXPECT_EQ(d.ends.back().reason, FinishReason::kDeadline);
  d.step(pause(2, false));
  d.step(pause(99));
  EXPECT_TRUE(d.plan.outputs.empty()) << "who is not there is ignored";
}

TEST(CorePause, PausesAreBounded) {
  CoreConfig config = tier_config(8, 0, 0);
  config.max_queued = 1;
  config.max_running = 2;
  TierDriver d(config);
  d.arrive(1, run_of(0, 10), 30);
  d.done();
  d.arrive(2, run_of(100, 10), 30);
  d.done();
  d.step(pause(1));
  d.step(pause(2));
  d.done();
  EXPECT_EQ(d.spans(), "2:10+1") << "the second goes on as before";
}

}  // namespace
}  // namespace loci
