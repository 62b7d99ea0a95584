// SPDX-License-Identifier: Apache-2.0
// State that is deleted with what was said, in every tier (forgotten.h).
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/forgotten.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

// Deleted with what was said: gone from every tier, but for what another conversation hangs from.
TEST(CoreForget, WhatIsForgottenIsInNoTier) {
  TierDriver d(tier_config(16, 16, 16));
  Tokens other = run_of(0, 40);
  for (int i = 0; i < 60; ++i) other.push_back(TokenId(7));
  d.run(1, run_of(0, 110));  // three blocks and a tail
  d.run(2, other);           // shares the first block
  d.record_changes.clear();
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = run_of(0, 110)});
  EXPECT_EQ(d.record_changes.size(), 3u) << "the disk forgets blocks 1 and 2, and the end";
  for (const RecordChange& change : d.record_changes) EXPECT_EQ(change.kind, RecordChange::Kind::kForget);
  d.arrive(3, run_of(0, 110));
  EXPECT_EQ(d.starts.back().cached_tokens, 40u)
      << "the other one's first block, and what it shares of its second";
  d.finish();
  d.arrive(4, other);
  EXPECT_EQ(d.starts.back().cached_tokens, 99u) << "nothing of the other one is gone";
  d.finish();
}

TEST(CoreForget, WhatIsForgottenWhileItIsSavedGoesThen) {
  TierDriver d(tier_config(8, 8, 8));
  d.arrive(1, run_of(0, 110));
  d.done();
  ASSERT_FALSE(d.moves.empty());
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = run_of(0, 110)});
  EXPECT_EQ(d.core.stats().forgets_waiting, 1u);
  d.finish();
  const CoreStats stats = d.core.stats();
  EXPECT_EQ(stats.forgets_waiting, 0u);
  for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk})
    EXPECT_EQ(stats.tiers[static_cast<std::size_t>(tier)].free, 8u);
}

// A turn that was stopped, say: nobody can tell its tokens.
TEST(CoreForget, WhatGoesOnFromWhatIsForgottenGoesWithIt) {
  TierDriver d(tier_config(16, 16, 16));
  Tokens longer = run_of(0, 110), other = run_of(0, 105);
  for (std::uint32_t i = 0; i < 90; ++i) longer.push_back(TokenId(500 + i));
  for (std::uint32_t i = 0; i < 30; ++i) other.push_back(TokenId(900 + i));
  d.run(1, run_of(0, 110));
  d.run(2, longer);
  d.run(3, other);
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = run_of(0, 110)});
  EXPECT_EQ(d.core.stats().forgets_waiting, 0u);
  d.arrive(4, longer);
  EXPECT_EQ(d.starts.back().cached_tokens, 105u) << "what the other one knows as well";
  d.finish();
  d.arrive(5, other);
  EXPECT_EQ(d.starts.back().cached_tokens, 134u) << "it parted before the end";
  d.finish();
}

// The same where slower tiers alone have what goes on: all of the chain, not its end alone.
TEST(CoreForget, WhatGoesOnFromWhatIsForgottenGoesFromSlowerTiersToo) {
  const CoreConfig config = tier_config(12, 0, 32);
  Tokens longer = run_of(0, 110);
  for (std::uint32_t i = 0; i < 178; ++i) longer.push_back(TokenId(500 + i));
  for (const Tokens& forgotten : {run_of(0, 110), run_of(0, 96)}) {
    TierDriver d(config, false);
    d.step(Recovered{left_on_disk(config, longer), 1000, true});
    ASSERT_EQ(d.core.stats().tiers[2].free, 32u - 9u);
    d.step(Forget{.tenant = "group", .salt = {}, .tokens = forgotten});
    EXPECT_EQ(d.core.stats().forgets_waiting, 0u);
    EXPECT_EQ(d.core.stats().tiers[2].free, 32u);
    EXPECT_EQ(d.record_changes.size(), 9u) << "the disk forgets all of them";
  }
}

// "Hi", and a reply to it: others begin so.
TEST(CoreForget, WhatGoesOnFromLessThanABlockStays) {
  TierDriver d(tier_config(16, 16, 16));
  d.run(1, run_of(0, 20));
  d.run(2, run_of(0, 110));
  const std::uint32_t host = d.core.stats().tiers[1].free, disk = d.core.stats().tiers[2].free;
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = run_of(0, 20)});
  EXPECT_EQ(d.core.stats().forgets_waiting, 0u);
  EXPECT_LE(d.core.stats().tiers[1].free, host + 1) << "its own end alone";
  EXPECT_LE(d.core.stats().tiers[2].free, disk + 1);
}

// Its next turn is on its way, and is given up.
TEST(CoreForget, WhatIsForgottenWhileItIsGoneOnWithGoesThen) {
  TierDriver d(tier_config(16, 0, 0));
  d.run(1, run_of(0, 96));
  d.arrive(2, run_of(0, 110));
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = run_of(0, 97)});
  EXPECT_EQ(d.core.stats().forgets_waiting, 1u);
  d.step(Cancel{RequestId(2)});
  d.done(2);
  d.finish();
  EXPECT_EQ(d.core.stats().forgets_waiting, 0u);
  EXPECT_EQ(d.core.stats().tiers[0].free, 16u);
}

TEST(CoreForget, WhatIsForgottenBeforeTheDiskIsKnownDoesNotComeBack) {
  const CoreConfig config = tier_config(8, 0, 16);
  const std::vector<RecoveredEntry> entries = left_on_disk(config, run_of(0, 96));
  ASSERT_EQ(entries.size(), 3u);
  TierDriver d(config, false);
  d.step(Recovered{{entries[0]}, 1000, false});
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = run_of(0, 100)});
  d.step(Recovered{{entries[1], entries[2]}, 1000, true});
  d.step(Tick{});
  EXPECT_EQ(d.record_changes.size(), 3u) << "the disk forgets them";
  d.arrive(2, run_of(0, 100));
  EXPECT_EQ(d.starts.back().cached_tokens, 0u);
  d.finish();
}

// Too many deletions wait for the disk; those of the tenant that sent them are given up.
TEST(CoreForget, DeletionsAreGivenUpOfWhoHasMost) {
  const CoreConfig config = tier_config(8, 0, 16);
  const std::vector<RecoveredEntry> entries = left_on_disk(config, run_of(0, 96));
  TierDriver d(config, false);
  d.step(Forget{.tenant = "group", .salt = {}, .tokens = run_of(0, 100)});
  for (std::uint32_t i = 0; i < kForgottenMax + 9; ++i)
    d.step(Forget{.tenant = "flood", .salt = {}, .tokens = run_of(i, 1)});
  const CoreStats stats = d.core.stats();
  EXPECT_EQ(stats.forgets_waiting, kForgottenMax);
  EXPECT_EQ(stats.forgets_given_up_total, 10u);
  d.step(Recovered{entries, 1000, true});
  EXPECT_EQ(d.record_changes.size(), 3u) << "what was deleted first, and by another, is forgotten at once";
  while (d.core.stats().forgets_waiting > 0) d.step(Tick{});
}

TEST(CoreForget, NobodyForgetsForAnother) {
  TierDriver d(tier_config(16, 0, 16));
  d.run(1, run_of(0, 110), "a");
  d.step(Forget{.tenant = "b", .salt = {}, .tokens = run_of(0, 110)});
  d.step(Forget{.tenant = "a", .salt = "salt", .tokens = run_of(0, 110)});
  d.step(Forget{.tenant = "a", .salt = {}, .tokens = {}});
  d.arrive(2, run_of(0, 110), 1, "a");
  EXPECT_EQ(d.starts.back().cached_tokens, 109u);
  d.finish();
}

}  // namespace
}  // namespace loci
