// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_driver_testing.h"
#include "loci/engine/testing/core_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace loci {
namespace {

TEST(Core, DecodesGoFirstThenPromptsInChunks) {
  CoreDriver d(config_of(64, 40));
  d.arrive(1, run_of(0, 10), 20);
  EXPECT_EQ(d.spans(), "1:0+10");
  d.arrive(2, run_of(100, 100), 20);
  d.arrive(3, run_of(300, 5), 20);
  d.done();
  EXPECT_EQ(d.spans(), "1:10+1 2:0+39");
  EXPECT_EQ(d.plan.pass->spans[1].logits, LogitsWanted::kNone);
  d.done();
  EXPECT_EQ(d.spans(), "1:11+1 2:39+39");
  d.done();
  EXPECT_EQ(d.spans(), "1:12+1 2:78+22 3:0+5");
  EXPECT_EQ(d.plan.pass->spans[1].logits, LogitsWanted::kLast);
  EXPECT_EQ(d.plan.pass->spans[1].tables[0].blocks.size(), 4u);
  d.done();
  EXPECT_EQ(d.spans(), "1:13+1 2:100+1 3:5+1");
  d.finish();
  EXPECT_EQ(d.finished(1).usage.completion_tokens, 20u);
  EXPECT_EQ(d.finished(1).reason, FinishReason::kLength);
  EXPECT_EQ(d.core.stats().blocks_pinned, 0u);
}

TEST(Core, ASecondTurnContinuesInPlace) {
  CoreDriver d(config_of(64));
  d.arrive(1, run_of(0, 40), 5);
  d.finish();
  // The last sampled token was never computed: 44 of the 45 tokens have state.
  const Tokens history = run_of(0, 40) + Tokens(5, d.token);
  d.arrive(2, history + run_of(500, 60), 1);
  EXPECT_EQ(d.spans(), "2:44+61");
  EXPECT_TRUE(d.plan.pass->copies.empty());
  EXPECT_EQ(d.all<Started>().back().cached_tokens, 44u);
  d.finish();
  EXPECT_EQ(d.finished(2).usage.cached_tokens, 44u);
  // A short turn stays inside the tail.
  d.arrive(3, history + run_of(500, 60) + Tokens(1, d.token) + run_of(900, 2), 1);
  EXPECT_EQ(d.spans(), "3:105+3");
  EXPECT_TRUE(d.plan.pass->copies.empty());
}

TEST(Core, AForkCopiesWhatItShares) {
  CoreDriver d(config_of(64));
  d.arrive(1, run_of(0, 50), 1);
  d.finish();
  d.arrive(2, run_of(0, 42) + run_of(800, 3), 1);
  ASSERT_EQ(d.plan.pass->copies.size(), 1u);
  EXPECT_EQ(d.plan.pass->copies[0].tokens, 10u);
  EXPECT_EQ(d.spans(), "2:42+3");
  d.finish();
  // The original is as it was.
  d.arrive(3, run_of(0, 50) + run_of(900, 1), 1);
  EXPECT_EQ(d.spans(), "3:50+1");
}

TEST(Core, TheLastTokenOfAKnownPromptIsComputedInABlockOfItsOwn) {
  CoreDriver d(config_of(64));
  d.arrive(1, run_of(0, 64), 1);
  d.finish();
  const std::uint32_t free_before = d.core.stats().blocks_free;
  d.arrive(2, run_of(0, 64), 1);
  EXPECT_EQ(d.spans(), "2:63+1");
  ASSERT_EQ(d.plan.pass->copies.size(), 1u);
  EXPECT_EQ(d.plan.pass->copies[0].tokens, 31u);
  EXPECT_NE(d.plan.pass->copies[0].from, d.plan.pass->copies[0].to);
  d.finish();
  EXPECT_EQ(d.core.stats().blocks_free, free_before) << "the second block with the same bits was dropped";
}

TEST(Core, WhatTwoLackIsComputedOnce) {
  CoreDriver d(config_of(64, 48));
  d.arrive(1, run_of(0, 70) + run_of(300, 5), 4);
  EXPECT_EQ(d.spans(), "1:0+48");
  d.arrive(2, run_of(0, 70) + run_of(400, 5), 4);
  d.done();
  EXPECT_EQ(d.spans(), "1:48+27") << "the second waits for the block that the first fills";
  d.done();
  EXPECT_EQ(d.spans(), "1:75+1 2:64+11");
  d.finish();
  EXPECT_EQ(d.finished(2).usage.completion_tokens, 4u);
}

TEST(Core, WhoWaitsTakesOverWhenTheFirstEnds) {
  CoreDriver d(config_of(64, 48));
  d.arrive(1, run_of(0, 90), 4);
  d.arrive(2, run_of(0, 70) + run_of(400, 5), 4);
  d.done();
  EXPECT_EQ(d.spans(), "1:48+42");
  d.step(Cancel{RequestId(1)});
  EXPECT_TRUE(d.all<Finished>().empty()) << "a pass in flight ends first";
  d.done(0);
  EXPECT_EQ(d.finished(1).reason, FinishReason::kCancelled);
  EXPECT_EQ(d.spans(), "2:48+27");
}

TEST(Core, AHoleIsASpanOfTheSamePass) {
  CoreConfig config = config_of(6);
  config.eviction = "fifo";
  config.decode_reserve_percent = 0;
  CoreDriver d(config);
  d.arrive(1, run_of(0, 65), 1);  // blocks 0, 1, and one of a token
  d.finish();
  d.now = 10;
  d.arrive(2, run_of(0, 64) + run_of(200, 64), 1);  // two more, later
  d.finish();
  d.now = 20;
  d.arrive(3, run_of(700, 65), 1);  // takes the last and the two oldest: that of the token, and block 1
  d.finish();
  d.arrive(4, run_of(0, 64) + run_of(200, 40), 1);
  EXPECT_EQ(d.spans(), "4:32+32 4:103+1");
  EXPECT_FALSE(d.plan.spans[0].sample);
  EXPECT_TRUE(d.plan.spans[1].sample);
  d.finish();
  EXPECT_EQ(d.finished(4).usage.cached_tokens, 71u);
}

TEST(Core, TheLatestIsSuspendedWhenBlocksRunOut) {
  CoreConfig config = config_of(4);
  config.decode_reserve_percent = 0;
  CoreDriver d(config);
  d.arrive(1, run_of(0, 40), 50);
  d.arrive(2, run_of(500, 40), 40);
  d.finish();
  EXPECT_EQ(d.finished(1).usage.suspensions, 0u);
  EXPECT_EQ(d.finished(2).usage.suspensions, 1u);
  EXPECT_EQ(d.finished(1).usage.completion_tokens, 50u);
  EXPECT_EQ(d.finished(2).usage.completion_tokens, 40u);
  EXPECT_EQ(d.all<Started>().size(), 2u);
  EXPECT_EQ(d.core.stats().suspensions_total, 1u);
}

TEST(Core, TheReserveKeepsNewcomersOut) {
  CoreConfig config = config_of(10);
  config.decode_reserve_percent = 30;
  CoreDriver d(config);
  d.arrive(1, run_of(0, 150), 90);  // 5 blocks, and up to 3 more
  d.arrive(2, run_of(500, 90), 1);  // 3 would leave 2 of the 3
  d.done();
  EXPECT_EQ(d.core.stats().queued, 1u);
  d.finish();
  EXPECT_EQ(d.finished(2).usage.completion_tokens, 1u);
}

TEST(Core, NoMoreIsKeptThanRepliesCanComeTo) {
  CoreConfig config = config_of(10);
  config.decode_reserve_percent = 30;
  CoreDriver d(config);
  d.arrive(1, run_of(0, 150), 11);   // 5 blocks, and none more: the last token has no state
  d.arrive(2, run_of(500, 90), 30);  // 3 blocks, and one more
  d.arrive(3, run_of(900, 20), 1);   // 1 would leave 1
  d.arrive(4, run_of(1300, 20), 1);  // 1 would leave none for the second
  d.done();
  EXPECT_EQ(d.core.stats().queued, 1u);
  d.finish();
  EXPECT_EQ(d.core.stats().suspensions_total, 0u);
  EXPECT_EQ(d.finished(2).usage.completion_tokens, 30u);
  EXPECT_EQ(d.finished(4).usage.completion_tokens, 1u);
}

TEST(Core, RefusesWhatCanNeverFit) {
  CoreConfig config = config_of(4);
  config.context_tokens = 100;
  CoreDriver d(config);
  d.arrive(1, run_of(0, 100));
  ASSERT_EQ(d.all<Rejected>().size(), 1u);
  EXPECT_EQ(d.all<Rejected>()[0].status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(d.all<Rejected>()[0].status.field(), "prompt");
  EXPECT_NE(d.all<Rejected>()[0].status.message().find("at most 99"), std::string::npos);
  EXPECT_EQ(d.core.stats().rejections_total, 0u) << "the server took all that it could";
  d.arrive(2, run_of(0, 99), 1000);
  d.finish();
  EXPECT_EQ(d.finished(2).reason, FinishReason::kLength);
  EXPECT_EQ(d.finished(2).usage.completion_tokens, 1u) << "the context is full";

  config.context_tokens = 1000;
  CoreDriver small(config);
  small.arrive(1, run_of(0, 128));
  ASSERT_EQ(small.all<Rejected>().size(), 1u);
  EXPECT_NE(small.all<Rejected>()[0].status.message().find("4 blocks of 32 tokens"), std::string::npos);
  small.arrive(2, run_of(0, 127), 5);
  small.finish();
  EXPECT_EQ(small.finished(2).usage.completion_tokens, 1u);
}

TEST(Core, AFullQueueSaysWhenToTryAgain) {
  CoreConfig config = config_of(64);
  config.max_running = 1;
  config.max_queued = 2;
  CoreDriver d(config);
  for (std::uint64_t id = 1; id <= 4; ++id) d.arrive(id, run_of(0, 5), 1);
  ASSERT_EQ(d.all<Rejected>().size(), 1u);
  EXPECT_EQ(d.all<Rejected>()[0].status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(d.all<Rejected>()[0].retry_after, kNanosPerSecond) << "no rate was seen yet";
  d.now = kNanosPerSecond;
  d.done();
  d.now += 3 * kNanosPerSecond;
  d.done();  // the second end, three seconds after the first
  for (std::uint64_t id = 5; id <= 8; ++id) d.arrive(id, run_of(0, 5), 1);
  ASSERT_EQ(d.all<Rejected>().size(), 3u);
  EXPECT_EQ(d.all<Rejected>()[1].retry_after, 3 * kNanosPerSecond);
  EXPECT_EQ(d.all<Rejected>()[2].retry_after, 6 * kNanosPerSecond) << "the places are taken in turn";
  EXPECT_EQ(d.core.stats().rejections_total, 3u);
}

TEST(Core, CancelsAndDeadlines) {
  CoreConfig config = config_of(64);
  config.max_running = 1;
  CoreDriver d(config);
  d.arrive(1, run_of(0, 40), 100, 1000);
  d.arrive(2, run_of(0, 40), 100, 500);
  d.arrive(3, run_of(0, 40), 100);
  EXPECT_EQ(d.plan.wake_at, 500);
  d.step(Cancel{RequestId(3)});
  EXPECT_EQ(d.finished(3).reason, FinishReason::kCancelled) << "who only waits ends at once";
  d.step(Cancel{RequestId(3)});
  d.step(Cancel{RequestId(99)});
  d.now = 500;
  d.step(Tick{});
  EXPECT_EQ(d.finished(2).reason, FinishReason::kDeadline);
  EXPECT_EQ(d.plan.wake_at, 1000);
  d.now = 1001;
  d.step(Tick{});
  EXPECT_EQ(d.plan.wake_at, kNever);
  d.done();
  EXPECT_EQ(d.finished(1).reason, FinishReason::kDeadline);
  EXPECT_EQ(d.finished(1).usage.completion_tokens, 0u);
  EXPECT_EQ(d.all<Finished>().size(), 3u);
  // What was computed is kept.
  d.arrive(4, run_of(0, 41), 1);
  EXPECT_EQ(d.all<Started>().back().cached_tokens, 40u);
}

TEST(Core, DrainsWhatIsThere) {
  CoreConfig config = config_of(64);
  config.max_running = 1;
  CoreDriver d(config);
  d.arrive(1, run_of(0, 10), 3);
  d.arrive(2, run_of(0, 10), 3);
  d.step(Drain{});
  d.arrive(3, run_of(0, 10), 3);
  EXPECT_EQ(d.all<Rejected>().at(0).status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(d.core.stats().rejections_total, 1u);
  EXPECT_FALSE(d.plan.drained);
  d.finish();
  EXPECT_TRUE(d.plan.drained);
  EXPECT_EQ(d.finished(2).usage.completion_tokens, 3u);

  CoreDriver cut(config);
  cut.arrive(1, run_of(0, 10), 1000);
  cut.arrive(2, run_of(0, 10), 1000);
  cut.step(Drain{50});
  EXPECT_EQ(cut.plan.wake_at, 50);
  cut.now = 60;
  cut.step(Tick{});
  EXPECT_EQ(cut.finished(2).reason, FinishReason::kDeadline);
  EXPECT_FALSE(cut.plan.drained) << "the pass in flight ends first";
  cut.done();
  EXPECT_EQ(cut.finished(1).reason, FinishReason::kDeadline);
  EXPECT_TRUE(cut.plan.drained);
}

// So a replay tells their ends in the same order, whatever its table of requests is like.
TEST(Core, ADrainEndsWhatIsLeftInTheOrderOfIds) {
  CoreConfig config = config_of(64);
  config.max_running = 1;
  CoreDriver d(config);
  d.arrive(1, run_of(0, 10), 1000);
  for (const std::uint64_t id : {31, 7, 500, 2, 64}) d.arrive(id, run_of(0, 10), 1000);
  d.step(Drain{50});
  d.now = 60;
  d.step(Tick{});
  std::vector<std::uint64_t> ended;
  for (const Finished& finished : d.all<Finished>()) ended.push_back(finished.request.value);
  EXPECT_EQ(ended, (std::vector<std::uint64_t>{2, 7, 31, 64, 500}));
}

TEST(Core, StopTokensEndARequestButNotTooEarly) {
  CoreDriver d(config_of(64));
  d.token = TokenId(3);
  Arrival arrival{RequestId(1), "g", run_of(10, 4), 50, 4, {TokenId(9), TokenId(3)}, kNever};
  d.step(arrival);
  d.finish();
  EXPECT_EQ(d.finished(1).reason, FinishReason::kStop);
  EXPECT_EQ(d.finished(1).usage.completion_tokens, 4u);
  EXPECT_EQ(d.all<TokenSampled>().size(), 4u) << "the stop token counts";
  arrival.request = RequestId(2);
  arrival.stop_tokens.clear();
  d.step(arrival);
  d.finish();
  EXPECT_EQ(d.finished(2).usage.completion_tokens, 50u) << "ignore_eos";
}

TEST(Core, APoisonedSpanIsPlannedAgain) {
  CoreDriver d(config_of(64, 48));
  d.arrive(1, run_of(0, 60), 2);
  d.done(0);
  EXPECT_EQ(d.spans(), "1:0+48");
  d.done();
  EXPECT_EQ(d.spans(), "1:48+12");
  d.done(0);
  EXPECT_EQ(d.spans(), "1:48+12");
  d.done();
  EXPECT_EQ(d.spans(), "1:60+1");
  d.done(0);
  EXPECT_EQ(d.spans(), "1:60+1");
  d.finish();
  EXPECT_EQ(d.finished(1).usage.completion_tokens, 2u);
}

TEST(Core, WhatStaysPoisonedEnds) {
  CoreDriver d(config_of(64));
  d.arrive(1, run_of(0, 60), 2);
  d.done();
  for (std::uint32_t i = 0; i + 1 < kPoisonedPassesMax; ++i) d.done(0);
  d.done();  // one good pass in between
  d.finish();
  EXPECT_EQ(d.finished(1).reason, FinishReason::kLength);
  d.arrive(2, run_of(500, 60), 2);
  d.arrive(3, run_of(700, 10), 40);
  for (std::uint32_t i = 0; i < kPoisonedPassesMax; ++i) {
    EXPECT_EQ(d.all<Finished>().size(), 1u) << i;
    d.done(i < 2 ? 0 : 1);  // from then on the third request decodes before it
  }
  EXPECT_EQ(d.finished(2).reason, FinishReason::kFailed);
  d.finish();
  EXPECT_EQ(d.finished(3).reason, FinishReason::kLength) << "the others go on";
  EXPECT_EQ(d.core.stats().blocks_pinned, 0u);
}

// What one client says is just what the other's model generates: a generated block becomes whole while a
// prompt's same block is half filled. The prompt's block gets the whole copy, and its table follows.
TEST(Core, AGeneratedBlockRepairsAPromptsOwn) {
  CoreDriver d(config_of(64));
  d.token = TokenId(5);
  d.arrive(1, Tokens(29, TokenId(5)), 30);
  d.done();  // 29 have state; the 30th is being computed
  d.arrive(2, Tokens(40, TokenId(5)), 1);
  d.done();  // 30; the second copies them and computes the rest
  ASSERT_EQ(d.spans(), "1:30+1 2:30+10");
  const SlotId first = d.plan.pass->spans[0].tables[0].blocks[0],
               second = d.plan.pass->spans[1].tables[0].blocks[0];
  ASSERT_NE(first, second);
  d.done(1);  // the copy stands, the rest is poisoned
  EXPECT_EQ(d.spans(), "1:31+1 2:30+10");
  d.done(1);  // the first's block is whole
  EXPECT_EQ(d.spans(), "1:32+1 2:32+8");
  EXPECT_EQ(d.plan.pass->spans[1].tables[0].blocks[0], first);
  EXPECT_EQ(d.plan.pass->spans[0].tables[0].blocks[0], first);
  d.finish();
  EXPECT_EQ(d.core.stats().blocks_pinned, 0u);
}

TEST(Core, DecodesReadTheirTablesWithoutACopy) {
  CoreDriver d(config_of(64, 256));
  d.arrive(1, run_of(0, 200), 60);
  d.done();
  const auto first = d.in_flight->pass->spans.front().tables.front().blocks;
  ASSERT_EQ(first.size(), 7u);
  for (std::uint32_t position = 201; position < 7 * kBlockTokens; ++position) {
    d.done();
    ASSERT_EQ(d.in_flight->pass->spans.front().position, position);
    EXPECT_EQ(d.in_flight->pass->spans.front().tables.front().blocks.begin(), first.begin());
  }
  d.finish();
}

TEST(Core, GroupsShareNothing) {
  CoreDriver d(config_of(64));
  d.arrive(1, run_of(0, 100), 1);
  d.finish();
  Arrival other{RequestId(2), "other", run_of(0, 100), 1, 0, {}, kNever};
  d.step(other);
  EXPECT_EQ(d.all<Started>().back().cached_tokens, 0u);
}

TEST(Core, NamesTheFieldOfABadConfiguration) {
  const auto field = [](auto change) {
    CoreConfig config = config_of(4);
    change(config);
    const auto core = Core::make(config);
    return core.ok() ? std::string("none") : core.status().field();
  };
  EXPECT_EQ(field([](CoreConfig&) {}), "none");
  EXPECT_EQ(field([](CoreConfig& c) { c.groups[0].block_count = 0; }), "block_count");
  EXPECT_EQ(field([](CoreConfig& c) { c.groups.clear(); }), "groups");
  EXPECT_EQ(field([](CoreConfig& c) {
              c.groups = {{.window = 5, .block_count = 1}, {.window = 5, .block_count = 1}};
            }),
            "window");
  EXPECT_EQ(field([](CoreConfig& c) { c.layers = 0; }), "layers");
  EXPECT_EQ(field([](CoreConfig& c) { c.context_tokens = 1; }), "context_tokens");
  EXPECT_EQ(field([](CoreConfig& c) { c.max_batch_tokens = 0; }), "max_batch_tokens");
  EXPECT_EQ(field([](CoreConfig& c) { c.max_running = 0; }), "max_running");
  EXPECT_EQ(field([](CoreConfig& c) { c.max_queued = 0; }), "max_queued");
  EXPECT_EQ(field([](CoreConfig& c) { c.decode_reserve_percent = 91; }), "decode_reserve_percent");
  EXPECT_EQ(field([](CoreConfig& c) { c.eviction = "best"; }), "eviction");
}

}  // namespace
}  // namespace loci
