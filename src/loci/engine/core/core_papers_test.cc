// SPDX-License-Identifier: Apache-2.0
// The papers' mechanisms, from their figures: what the core does in the situations that they draw.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"
#include "loci/policy/eviction.h"

namespace loci {
namespace {

// The first token of what each move in flight to a tier brings.
std::vector<std::uint32_t> moved_to(const TierDriver& d, Tier tier) {
  std::vector<std::uint32_t> first;
  for (const Move& move : d.moves) {
    if (move.to == tier) first.push_back(move.entry.tokens.front().value);
  }
  return first;
}

CoreConfig pensieve_config(std::uint32_t device, std::uint32_t host) {
  CoreConfig config = tier_config(device, host, 0);
  config.eviction = "retention";
  config.save = "ahead";
  config.restore = "pensieve";
  config.preload = "off";
  config.lookahead_requests = 0;
  return config;
}

// Pensieve §4.3.2: copied to the host when less than a quarter of the slots are available, in the policy's
// order; reclaimed when another conversation needs the slot, and not before.
TEST(CorePapers, SwapOutBeginsAtTheThresholdAndSlotsAreReclaimedLazily) {
  TierDriver d(pensieve_config(20, 64));
  std::uint64_t id = 0;
  const auto talk = [&](std::uint32_t conversation) {
    d.now += kNanosPerSecond;
    d.run(++id, run_of(1000 * conversation, 64));
  };
  const auto on_host = [&] { return 64 - d.core.stats().tiers[1].free; };
  for (std::uint32_t conversation = 1; conversation <= 7; ++conversation) talk(conversation);
  EXPECT_EQ(on_host(), 0u) << "six slots are free, five are a quarter";
  d.now += kNanosPerSecond;
  d.arrive(++id, run_of(8000, 64));
  EXPECT_EQ(moved_to(d, Tier::kHost), std::vector<std::uint32_t>{1000})
      << "four are free: one is copied, the leading block of who has been idle longest";
  d.finish();
  EXPECT_EQ(on_host(), 1u) << "with that one five are available";

  const std::uint64_t evicted = d.core.stats().evictions_total;
  d.now += kNanosPerSecond;
  d.arrive(++id, run_of(1000, 65));  // one block more
  EXPECT_EQ(d.starts.back().sources.device, 64u) << "its slot was not given to anybody";
  d.finish();
  talk(9);
  EXPECT_EQ(d.core.stats().evictions_total, evicted) << "nothing is evicted while slots are free";
  talk(10);
  EXPECT_EQ(d.core.stats().evictions_total, evicted + 1) << "one slot was free, two were needed";
  d.arrive(++id, run_of(2000, 65));
  EXPECT_EQ(d.starts.back().sources.host, 32u) << "of who was idle longest then the leading block";
  EXPECT_EQ(d.starts.back().sources.device, 32u);
  d.finish();
}

// Pensieve's figure 5: dropped | on the host | on the device | new, in one pass.
TEST(CorePapers, ARequestOfFourSegmentsIsOnePass) {
  TierDriver d(pensieve_config(8, 4));
  const auto talk = [&d](std::uint64_t id, const Tokens& prompt) {
    d.now += kNanosPerSecond;
    d.run(id, prompt);
  };
  talk(1, run_of(0, 192));  // six blocks: two slots are free
  talk(2, run_of(1000,
                 128));  // takes those and 1's two leading ones, which no host has; the next two are copied
  talk(3, run_of(2000, 64));  // takes their slots
  d.now += kNanosPerSecond;
  d.rows = 0;
  d.arrive(4, run_of(0, 212));
  EXPECT_EQ(d.count(Tier::kHost, Tier::kDevice), 2u);
  EXPECT_EQ(d.spans(), "4:0+64 4:192+20") << "two sub-requests of one context";
  ASSERT_TRUE(d.in_flight);
  EXPECT_EQ(d.in_flight->pass->spans[0].tables.front().blocks.size(), 2u);
  EXPECT_EQ(d.in_flight->pass->spans[1].tables.front().blocks.size(), 7u) << "all of it is attended to";
  const ContextSources& from = d.starts.back().sources;
  EXPECT_EQ(from.host, 64u);
  EXPECT_EQ(from.device, 64u);
  EXPECT_EQ(d.missed(MissReason::kEvicted), 64u);
  EXPECT_EQ(d.missed(MissReason::kNeverSeen), 20u);
  d.finish();
  EXPECT_EQ(d.rows, 84u);
}

// Berkeley §V.F, by what of each prompt is where: `order`: of the requests' starts, all of which arrived
// while another one ran.
std::vector<std::uint64_t> starts_after(TierDriver& d, std::size_t before) {
  d.finish();
  std::vector<std::uint64_t> order;
  for (std::size_t i = before; i < d.starts.size(); ++i) order.push_back(d.starts[i].request.value);
  return order;
}

CoreConfig fpf_config(const std::string& admission) {
  CoreConfig config = tier_config(8, 24, 64);
  config.admission = admission;
  config.restore = "kv";
  config.preload = "off";
  config.lookahead_requests = 0;
  config.max_running = 1;
  return config;
}

// What follows is, for requests of 70 tokens each: 10 on the device, 11 on the host, 12 a half on the device
// and the rest nowhere, 13 on the disk, 14 nowhere.
void place_everywhere(TierDriver& d) {
  std::uint64_t id = 100;
  d.run(++id, run_of(13'000, 64));
  for (std::uint32_t i = 0; i < 6; ++i)
    d.run(++id, run_of(50'000 + 1000 * i, 128));  // the host is full of these
  d.run(++id, run_of(11'000, 64));
  for (std::uint32_t i = 6; i < 8; ++i) d.run(++id, run_of(50'000 + 1000 * i, 128));  // the device is
  d.run(++id, run_of(12'000, 32));
  d.run(++id, run_of(10'000, 64));
  d.arrive(99, run_of(90'000, 5), 3);
}

TEST(CorePapers, RelaxedFpfWeighsWhereAllOfAPromptIs) {
  for (const std::string admission : {"fpf", "relaxed-fpf"}) {
    TierDriver d(fpf_config(admission));
    place_everywhere(d);
    const std::size_t before = d.starts.size();
    for (const std::uint32_t id : {14u, 13u, 12u, 11u, 10u}) d.arrive(id, run_of(1000 * id, 70));
    EXPECT_EQ(starts_after(d, before), (std::vector<std::uint64_t>{10, 11, 12, 13, 14})) << admission;
  }
}

// (now - arrival) * (4 - N): who is nowhere and has waited four times as long comes before who is at hand.
TEST(CorePapers, RelaxedFpfLetsNobodyStarve) {
  for (const std::string admission : {"fpf", "relaxed-fpf"}) {
    TierDriver d(fpf_config(admission));
    place_everywhere(d);
    const std::size_t before = d.starts.size();
    d.arrive(14, run_of(14'000, 70));
    d.now += 10 * kNanosPerSecond;
    d.arrive(10, run_of(10'000, 70));
    d.now += kNanosPerSecond;
    const bool relaxed = admission == "relaxed-fpf";
    EXPECT_EQ(starts_after(d, before).front(), relaxed ? 14u : 10u) << admission;
  }
}

// A system prompt on the device makes a stranger no nearer than the part of its prompt that it is.
TEST(CorePapers, ASharedBeginningDoesNotMakeAStrangerNear) {
  TierDriver d(fpf_config("fpf"));
  place_everywhere(d);
  const std::size_t before = d.starts.size();
  d.arrive(20, run_of(10'000, 32) + run_of(77'000, 150));  // a block of it is on the device
  d.arrive(11, run_of(11'000, 70));                        // all of it is on the host
  EXPECT_EQ(starts_after(d, before).front(), 11u);
}

// With a hole: two blocks are dropped, two on the host, two on the device.
TEST(CorePapers, FpfAndRelaxedFpfCountHoles) {
  for (const std::string admission : {"fpf", "relaxed-fpf"}) {
    CoreConfig config = pensieve_config(8, 4);
    config.admission = admission;
    config.max_running = 1;
    TierDriver d(config);
    const auto talk = [&d](std::uint64_t id, const Tokens& prompt) {
      d.now += kNanosPerSecond;
      d.run(id, prompt);
    };
    talk(1, run_of(0, 192));
    talk(2, run_of(1000, 128));
    talk(3, run_of(2000, 32));
    d.arrive(4, run_of(9000, 5), 3);
    const std::size_t before = d.starts.size();
    d.arrive(5, run_of(7000, 100));                   // nowhere
    d.arrive(6, run_of(0, 200));                      // about 1.4
    d.arrive(7, run_of(1000, 128) + run_of(500, 3));  // on the device
    d.now += kNanosPerSecond;                         // all have waited about as long
    EXPECT_EQ(starts_after(d, before), (std::vector<std::uint64_t>{7, 6, 5})) << admission;
  }
}

// Of prompts of more than 512 blocks some blocks stand for others.
TEST(CorePapers, FpfLooksAtLongPromptsAtEvenDistances) {
  CoreConfig config = tier_config(1300, 2600, 0);
  config.admission = "fpf";
  config.preload = "off";
  config.max_running = 1;
  TierDriver d(config);
  d.run(1, run_of(0, 1100 * kBlockTokens));
  d.run(2, run_of(100'000,
                  700 * kBlockTokens));  // what the device had of the first is on the host now, or in part
  d.arrive(4, run_of(900'000, 5), 3);
  const std::size_t before = d.starts.size();
  d.arrive(5, run_of(300'000, 1200 * kBlockTokens));                   // nowhere
  d.arrive(6, run_of(0, 1100 * kBlockTokens) + run_of(500, 3));        // mostly on the host
  d.arrive(7, run_of(100'000, 700 * kBlockTokens) + run_of(600, 40));  // on the device
  EXPECT_EQ(starts_after(d, before), (std::vector<std::uint64_t>{7, 6, 5}));
}

// AttentionStore's figure 9, with host memory and disk full of what waiting jobs need.
class CorePapersFigureNine : public testing::Test {
 protected:
  static CoreConfig config(std::uint32_t host) {
    CoreConfig config = tier_config(2, host, 4);
    config.eviction = "lookahead";
    config.restore = "pensieve";  // what the disk has comes by way of the host
    return jobs(std::move(config));
  }
  static CoreConfig jobs(CoreConfig config) {
    config.preload = "off";
    config.swap_out_percent = 100;
    config.max_running = 1;
    config.lookahead_requests = kLookaheadUnlimited;
    return config;
  }
  // All four sessions are on the disk, the last ones on the host too; a job is executing.
  TierDriver made(std::uint32_t host) const { return made(config(host)); }
  TierDriver made(const CoreConfig& config) const {
    TierDriver d(config);
    std::uint64_t id = 100;
    for (const Tokens& session : {a, b, c, e}) {
      d.now += kNanosPerSecond;
      d.run(++id, session);
    }
    EXPECT_EQ(d.core.stats().tiers[1].free, 0u);
    EXPECT_EQ(d.core.stats().tiers[2].free, 0u);
    d.arrive(50, run_of(900, 20), 30);
    return d;
  }
  static const Started& start_of(const TierDriver& d, std::uint64_t request) {
    return *std::ranges::find(d.starts, RequestId(request), &Started::request);
  }

  // Five jobs wait. The third continues the executing one, whose first block is saved. It takes the room of
  // what the fifth needs, once the queue has been looked at again.
  void expect_a_save_takes_the_tail(TierDriver& d) const {
    d.arrive(1, c + next);
    d.arrive(2, a + next);
    d.arrive(3, executing + next);
    d.arrive(4, e + next);
    d.arrive(5, b + next);
    d.end_moves();
    while (d.spans() != "50:32+1") d.done();  // its first block is whole
    d.end_moves();
    EXPECT_EQ(d.core.stats().tiers[2].evictions_total, 0u) << "nobody is known to need it";
    d.arrive(6, run_of(7000, 5));
    d.end_moves();
    EXPECT_EQ(d.core.stats().tiers[2].evictions_total, 1u) << "the third is known to, before the last";
    d.finish();
    ASSERT_EQ(d.ends.size(), 11u);
    for (std::uint64_t job = 1; job <= 4; ++job) EXPECT_EQ(start_of(d, job).cached_tokens, 32u) << job;
  }

  const Tokens a = run_of(1000, 32), b = run_of(2000, 32), c = run_of(3000, 32), e = run_of(4000, 32);
  const Tokens next = run_of(50, 3);
  const Tokens executing = run_of(900, 20) + Tokens(12, TokenId(7));  // the job's first block
};

TEST_F(CorePapersFigureNine, TheHostGivesUpTheWindowsTailForWhatComesSooner) {
  TierDriver d = made(2);  // c and e
  d.arrive(1, c + next);
  d.arrive(2, a + next);
  EXPECT_EQ(moved_to(d, Tier::kHost), std::vector<std::uint32_t>{1000}) << "for e, which nobody needs";
  d.end_moves();
  d.arrive(3, e + next);
  d.arrive(4, b + next);
  EXPECT_TRUE(moved_to(d, Tier::kHost).empty()) << "the host has what is needed before";
  d.finish();
  ASSERT_EQ(d.ends.size(), 9u);
  for (std::uint64_t job = 1; job <= 4; ++job) EXPECT_EQ(start_of(d, job).cached_tokens, 32u) << job;
}

// What the job leaves is wanted by the third; the disk gives up what the last one needs for it, which is then
// nowhere.
TEST_F(CorePapersFigureNine, TheDiskGivesUpTheWindowsTailOutOfTheSystem) {
  TierDriver d = made(3);  // b, c and e
  ASSERT_NO_FATAL_FAILURE(expect_a_save_takes_the_tail(d));
  EXPECT_EQ(start_of(d, 5).cached_tokens, 0u);
  EXPECT_EQ(start_of(d, 5).sources.computed[static_cast<std::size_t>(MissReason::kEvicted)], 32u);
}

// The same whatever the host and the disk give up first: what waits is exempt as long as nobody who waits
// needs the room sooner.
TEST_F(CorePapersFigureNine, WhateverTheEvictionNoSaveTakesWhatWaitsOutOfTheSystem) {
  for (const std::string_view eviction : kEvictionPolicies) {
    SCOPED_TRACE(eviction);
    CoreConfig config = jobs(tier_config(2, 3, 4));
    config.eviction = eviction;
    config.restore = "kv";  // what the host has not got comes from the disk
    TierDriver d = made(config);
    ASSERT_NO_FATAL_FAILURE(expect_a_save_takes_the_tail(d));
  }
}

// Where there is no disk the host is the last tier.
TEST_F(CorePapersFigureNine, WhateverTheEvictionNoSaveTakesWhatTheHostAloneHas) {
  for (const std::string_view eviction : kEvictionPolicies) {
    SCOPED_TRACE(eviction);
    CoreConfig config = jobs(tier_config(2, 4, 0));
    config.eviction = eviction;
    config.restore = "kv";
    TierDriver d = made(config);
    d.arrive(1, c + next);
    d.arrive(2, a + next);
    d.arrive(3, e + next);
    d.arrive(4, b + next);
    while (d.spans() != "50:32+1") d.done();
    d.end_moves();
    EXPECT_EQ(d.core.stats().tiers[1].evictions_total, 0u);
    d.finish();
    for (std::uint64_t job = 1; job <= 4; ++job) EXPECT_EQ(start_of(d, job).cached_tokens, 32u) << job;
  }
}

}  // namespace
}  // namespace loci
