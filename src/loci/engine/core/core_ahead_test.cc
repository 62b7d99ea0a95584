// SPDX-License-Identifier: Apache-2.0
// The pass that is planned while another is in flight.
#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"

namespace loci {
namespace {

CoreConfig ahead_config(std::uint32_t blocks, std::uint32_t batch = 512) {
  CoreConfig config = config_of(blocks, batch);
  config.passes_ahead = 1;
  return config;
}

// Drives a core with passes ahead; every sample is `token`.
class AheadDriver {
 public:
  explicit AheadDriver(const CoreConfig& config) : core(Core::make(config).value()) {}

  const Plan& step(const Event& event) {
    plan = core.step(0, event);
    core.check_invariants();
    if (plan.pass) flights.push_back(plan);
    for (const Output& output : plan.outputs) {
      if (const auto* finished = std::get_if<Finished>(&output)) ended.push_back(*finished);
      if (const auto* started = std::get_if<Started>(&output)) cached = started->cached_tokens;
    }
    return plan;
  }
  const Plan& arrive(std::uint64_t id, const Tokens& prompt, std::uint32_t max_new, bool follows = true,
                     Tokens stop = {}) {
    return step(Arrival{.request = RequestId(id),
                        .tenant = "group",
                        .prompt = prompt,
                        .max_new_tokens = max_new,
                        .stop_tokens = std::move(stop),
                        .dropped = {},
                        .follows = follows});
  }
  const Plan& more() { return step(Tick{}); }
  // Ends the first pass in flight; span `poisoned` has failed.
  const Plan& done(std::size_t poisoned = SIZE_MAX) {
    const Plan flight = std::move(flights.front());
    flights.pop_front();
    return step(pass_done(flight, token, poisoned));
  }
  std::string spans() const { return spans_of(plan); }

  Core core;
  TokenId token{7};
  Plan plan;
  std::deque<Plan> flights;
  std::vector<Finished> ended;
  std::uint32_t cached = 0;
};

TEST(CoreAhead, GoesOnFromASampleThatIsNotKnownYet) {
  AheadDriver d(ahead_config(64));
  d.arrive(1, run_of(0, 10), 4);
  EXPECT_EQ(d.spans(), "1:0+10");
  d.more();
  EXPECT_EQ(d.spans(), "1:10+1<0");
  EXPECT_EQ(d.plan.pass->spans[0].logits, LogitsWanted::kLast);
  d.more();
  EXPECT_FALSE(d.plan.pass) << "two are in flight";
  d.done();
  EXPECT_EQ(d.spans(), "1:11+1<0");
  d.done();
  EXPECT_EQ(d.spans(), "1:12+1<0") << "the fourth token, which is the last";
  d.done();
  EXPECT_EQ(d.spans(), "");
  d.done();
  ASSERT_EQ(d.ended.size(), 1u);
  EXPECT_EQ(d.ended[0].reason, FinishReason::kLength);
  EXPECT_EQ(d.ended[0].usage.completion_tokens, 4u);
  EXPECT_EQ(d.core.stats().spans_wasted_total, 0u);
  EXPECT_EQ(d.core.stats().passes_ahead_total, 3u);
}

TEST(CoreAhead, WhatTheHostMustSeeSitsOut) {
  AheadDriver d(ahead_config(64));
  d.arrive(1, run_of(0, 10), 9, false);
  d.more();
  EXPECT_FALSE(d.plan.pass);
  d.arrive(2, run_of(100, 5), 9);
  EXPECT_EQ(d.spans(), "2:0+5") << "others take the pass ahead";
  d.done();
  EXPECT_EQ(d.spans(), "2:5+1<0 1:10+1");
  d.done();
  EXPECT_EQ(d.spans(), "2:6+1<0");
}

TEST(CoreAhead, ArrivalsJoinThePassAhead) {
  AheadDriver d(ahead_config(64));
  d.arrive(1, run_of(0, 10), 9);
  d.arrive(2, run_of(100, 20), 9);
  EXPECT_EQ(d.spans(), "1:10+1<0 2:0+20");
  d.arrive(3, run_of(200, 20), 9);
  EXPECT_FALSE(d.plan.pass);
  d.done();
  EXPECT_EQ(d.spans(), "1:11+1<0 2:20+1<1 3:0+20");
}

// The reply that stops is told at once; what its last span reads and writes stays until that has ended, and
// the state of a token that was never there is nobody's.
TEST(CoreAhead, AStopWastesTheSpanBehindIt) {
  AheadDriver d(ahead_config(64));
  d.arrive(1, run_of(0, 40), 9, true, {d.token});
  d.more();
  EXPECT_EQ(d.spans(), "1:40+1<0");
  d.done();
  ASSERT_EQ(d.ended.size(), 1u);
  EXPECT_EQ(d.ended[0].reason, FinishReason::kStop);
  EXPECT_EQ(d.core.stats().running, 0u);
  EXPECT_EQ(d.core.stats().blocks_pinned, 2u);
  EXPECT_EQ(d.core.stats().spans_wasted_total, 1u);
  d.done();
  EXPECT_EQ(d.core.stats().blocks_pinned, 0u);
  Tokens next = run_of(0, 40);
  next.push_back(d.token);
  next.push_back(TokenId(1000));
  d.arrive(2, next, 1);
  EXPECT_EQ(d.cached, 40u) << "the stop token's state was computed for nothing";
}

TEST(CoreAhead, AStopAtABlocksEndFreesTheBlockThatWasBegun) {
  AheadDriver d(ahead_config(2));
  d.arrive(1, run_of(0, 32), 9, true, {d.token});
  d.more();
  ASSERT_EQ(d.spans(), "1:32+1<0");
  EXPECT_EQ(d.plan.pass->spans[0].tables[0].blocks.size(), 2u);
  EXPECT_EQ(d.core.stats().blocks_free, 0u);
  d.done();
  EXPECT_EQ(d.core.stats().blocks_free, 0u);
  d.done();
  EXPECT_EQ(d.core.stats().blocks_free, 1u);
  EXPECT_EQ(d.core.stats().blocks_pinned, 0u);
}

TEST(CoreAhead, WhatFollowsAPoisonedSpanIsWasted) {
  AheadDriver d(ahead_config(64));
  d.arrive(1, run_of(0, 32), 9);
  d.arrive(2, run_of(100, 10), 9);
  EXPECT_EQ(d.spans(), "1:32+1<0 2:0+10");
  d.done(0);
  EXPECT_EQ(d.spans(), "2:10+1<1") << "the first waits until its wasted span has ended";
  d.done();
  EXPECT_EQ(d.spans(), "2:11+1<0 1:0+32");
  d.done();
  EXPECT_EQ(d.spans(), "2:12+1<0 1:32+1<1");
  EXPECT_EQ(d.core.stats().spans_wasted_total, 1u);
}

TEST(CoreAhead, ACancelEndsWithTheFirstPassAndKeepsWhatTheSecondUses) {
  AheadDriver d(ahead_config(64));
  d.arrive(1, run_of(0, 10), 9);
  d.more();
  d.step(Cancel{RequestId(1)});
  EXPECT_TRUE(d.ended.empty());
  d.done();
  ASSERT_EQ(d.ended.size(), 1u);
  EXPECT_EQ(d.ended[0].reason, FinishReason::kCancelled);
  EXPECT_EQ(d.core.stats().blocks_pinned, 1u);
  d.done();
  EXPECT_EQ(d.core.stats().blocks_pinned, 0u);
}

// Who would have to be suspended may be in the pass in flight: that one ends first.
TEST(CoreAhead, NobodyIsSuspendedWhileAPassIsInFlight) {
  CoreConfig config = ahead_config(4);
  config.decode_reserve_percent = 0;
  AheadDriver d(config);
  d.arrive(1, run_of(0, 62), 60);
  d.arrive(2, run_of(100, 62), 60);
  EXPECT_EQ(d.spans(), "1:62+1<0 2:0+62");
  d.done();
  EXPECT_EQ(d.spans(), "1:63+1<0 2:62+1<1");
  d.done();
  EXPECT_FALSE(d.plan.pass) << "the first needs a block, and all are taken";
  EXPECT_EQ(d.core.stats().suspensions_total, 0u);
  d.done();
  EXPECT_EQ(d.core.stats().suspensions_total, 1u);
  EXPECT_EQ(d.spans(), "1:64+1");
  d.more();
  EXPECT_EQ(d.spans(), "1:65+1<0");
}

TEST(CoreAhead, PromptsGoOnBehindThePassInFlightInOrder) {
  AheadDriver d(ahead_config(64, 40));
  d.arrive(1, run_of(0, 100), 9);
  EXPECT_EQ(d.spans(), "1:0+40");
  d.arrive(2, run_of(200, 30), 9);
  EXPECT_EQ(d.spans(), "1:40+40");
  d.done();
  EXPECT_EQ(d.spans(), "1:80+20 2:0+20") << "the first comes first";
  d.done();
  EXPECT_EQ(d.spans(), "1:100+1<0 2:20+10");
  d.done();
  EXPECT_EQ(d.spans(), "1:101+1<0 2:30+1<1");
}

TEST(CoreAhead, APoisonedPromptIsComputedAgainFromWhereItWas) {
  AheadDriver d(ahead_config(64, 40));
  d.arrive(1, run_of(0, 100), 9);
  d.more();
  d.done(0);
  EXPECT_FALSE(d.plan.pass) << "what went on behind it is wasted";
  d.done();
  EXPECT_EQ(d.spans(), "1:0+40");
}

// With a window no prompt overtakes one whose next chunk has no slots yet.
TEST(CoreAhead, NoPromptOvertakesOneThatWaitsForItsWindow) {
  CoreConfig config = ahead_config(64, 40);
  config.groups.push_back({.window = 32, .block_count = 64});
  AheadDriver d(config);
  d.arrive(1, run_of(0, 100), 9);
  EXPECT_EQ(d.spans(), "1:0+40");
  d.arrive(2, run_of(200, 30), 9);
  EXPECT_FALSE(d.plan.pass);
  d.done();
  EXPECT_EQ(d.spans(), "1:40+40");
}

// Two requests complete the same block; one of them has its own slot in a pass in flight then.
TEST(CoreAhead, TwoThatSayTheSameShareTheirBlocksInTheEnd) {
  CoreConfig config = ahead_config(64);
  config.max_batch_tokens = 33;
  AheadDriver d(config);
  d.arrive(1, run_of(0, 31), 9);
  d.arrive(2, run_of(0, 31), 9, false);
  while (d.ended.size() < 2) {
    d.done();
    d.more();
  }
  while (!d.flights.empty()) d.done();
  EXPECT_EQ(d.core.stats().blocks_pinned, 0u);
  EXPECT_EQ(d.core.stats().blocks_free + 2, d.core.stats().blocks_total) << "a whole block and a tail";
}

TEST(CoreAhead, RefusesMoreThanOne) {
  CoreConfig config = ahead_config(8);
  config.passes_ahead = 2;
  EXPECT_EQ(Core::make(config).status().field(), "passes_ahead");
}

}  // namespace
}  // namespace loci
