// SPDX-License-Identifier: Apache-2.0
// What a reply is told of its prompt's state, when loads fail after it was admitted.
#include "loci/engine/core/prompt_sources.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

std::uint32_t because(const ContextSources& sources, MissReason reason) {
  return sources.computed[static_cast<std::size_t>(reason)];
}

// Ends the moves that have begun. Loads of the sequence's block `lost` end so.
void end_moves_but(TierDriver& d, std::uint32_t lost, MoveResult result) {
  MovesEnded ended;
  for (const Move& move : std::exchange(d.moves, {})) {
    const bool fails = move.to == Tier::kDevice && move.entry.depth == lost + 1;
    ended.moves.push_back({move.id, fails ? result : MoveResult::kDone, 0});
  }
  d.step(ended);
}

// The disk has three blocks of the prompt, and one of them does not come.
TEST(PromptSources, WhatDoesNotComeCountsAsComputed) {
  for (const auto& [result, reason] : {std::pair{MoveResult::kDamaged, MissReason::kDamaged},
                                       {MoveResult::kFailed, MissReason::kDamaged},
                                       {MoveResult::kTooSlow, MissReason::kTooSlow}}) {
    for (const bool reads : {false, true}) {
      TierDriver d(tier_config(4, 0, 16));
      d.run(1, run_of(0, 96));
      d.run(2, run_of(1000, 120));
      const CoreStats before = d.core.stats();
      d.arrive(3, run_of(0, 106));
      ASSERT_EQ(d.starts.back().sources.disk, 96u);
      d.rows = 0;
      end_moves_but(d, 1, result);
      d.done(reads ? 3 : 0);
      d.finish();
      ASSERT_EQ(d.ends.back().usage.prompt_tokens, 106u);
      EXPECT_EQ(d.ends.back().usage.cached_tokens, 64u);
      ASSERT_EQ(d.restores.back().request, RequestId(3));
      const ContextSources& from = d.restores.back().sources;
      EXPECT_EQ(from.disk, 64u);
      EXPECT_EQ(because(from, reason), 32u);
      EXPECT_EQ(because(from, MissReason::kNeverSeen), 10u);
      const CoreStats after = d.core.stats();
      EXPECT_EQ(after.tokens_cached_total - before.tokens_cached_total, 64u);
      EXPECT_EQ(after.tokens_from_total[2] - before.tokens_from_total[2], 64u);
      const auto missed = static_cast<std::size_t>(reason);
      EXPECT_EQ(after.tokens_missed_total[missed] - before.tokens_missed_total[missed], 32u);
    }
  }
}

// Behind a narrow window the request goes on from an earlier place, and computes what had come, too: rows of
// the last pass, which samples, and of those before it count once.
TEST(PromptSources, BehindANarrowWindowAllThatIsComputedCounts) {
  CoreConfig config = tier_config(16, 0, 64);
  config.restore = "kv";
  config.groups.push_back(config.groups.front());  // layers that see all, and layers that see 64 tokens
  config.groups.back().window = 64;
  config.groups.back().block_count = 4;
  TierDriver d(config);
  for (const auto& [id, tokens] : {std::pair{1u, 128u}, {2u, 256u}}) {
    d.arrive(id, run_of(0, tokens), 4);
    d.finish();
  }
  d.run(3, run_of(5000, 500));  // takes the whole device
  d.arrive(4, run_of(0, 268));
  ASSERT_GE(d.starts.back().cached_tokens, 255u);
  ASSERT_EQ(d.starts.back().sources.device, 0u);
  end_moves_but(d, 7, MoveResult::kDamaged);
  d.rows = 0;
  d.done(4);
  d.finish();
  EXPECT_EQ(d.ends.back().usage.cached_tokens, 268 - d.rows);
  EXPECT_LT(d.ends.back().usage.cached_tokens, 192u);
  EXPECT_EQ(d.restores.back().sources.cached(), 268 - d.rows);
}

// A request that is cancelled before its first sample is told what was found, and counted.
TEST(PromptSources, WhoEndsBeforeItsFirstSampleIsCounted) {
  TierDriver d(tier_config(4, 0, 16));
  d.arrive(1, run_of(0, 96));
  d.step(Cancel{RequestId(1)});
  EXPECT_EQ(d.core.stats().tokens_prompt_total, 0u);
  d.done();
  ASSERT_EQ(d.ends.back().reason, FinishReason::kCancelled);
  ASSERT_EQ(d.restores.size(), 1u);
  EXPECT_EQ(because(d.restores.back().sources, MissReason::kNeverSeen), 96u);
  EXPECT_EQ(d.core.stats().tokens_prompt_total, 96u);
}

// Nothing else was charged for them: who computes what did not come takes the machine's time for it.
TEST(PromptSources, ItsTenantIsChargedForWhatDoesNotCome) {
  for (const bool fails : {false, true}) {
    CoreConfig config = tier_config(64, 0, 256);
    config.max_running = 1;
    config.context_tokens = 40 * kBlockTokens;
    TierDriver d(config);
    d.run(1, run_of(0, 640), "a");
    for (std::uint32_t id = 2; id < 6; ++id) d.run(id, run_of(5000 * id, 1000), "c");
    d.arrive(6, run_of(0, 650), 40, "a");
    ASSERT_GE(d.starts.back().cached_tokens, 640u);
    d.arrive(7, run_of(90'000, 100), 1, "b");
    d.arrive(8, run_of(91'000, 100), 1, "a");
    d.arrive(9, run_of(92'000, 100), 1, "b");
    d.end_moves(fails ? MoveResult::kTooSlow : MoveResult::kDone);
    d.done(fails ? 6 : 0);
    d.finish();
    std::vector<std::uint64_t> order;
    for (const Started& one : d.starts) order.push_back(one.request.value);
    const std::vector<std::uint64_t> charged = {1, 2, 3, 4, 5, 6, 7, 9, 8};
    const std::vector<std::uint64_t> not_charged = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    EXPECT_EQ(order, fails ? charged : not_charged);
  }
}

}  // namespace
}  // namespace loci
