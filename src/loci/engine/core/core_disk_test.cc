// SPDX-License-Identifier: Apache-2.0
// What a disk keeps from one process to the next: what is found, dated, saved at a stop, and given up.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

TEST(CoreDisk, AProcessGoesOnWithWhatTheLastOneLeftOnDisk) {
  const CoreConfig config = tier_config(4, 0, 16);
  const std::vector<RecoveredEntry> entries = left_on_disk(config, run_of(0, 96));
  ASSERT_EQ(entries.size(), 3u);
  TierDriver d(config, false);
  d.arrive(1, run_of(500, 40));
  while (d.in_flight) d.done();
  EXPECT_TRUE(d.moves.empty()) << "nothing is written before all is known";
  Recovered found{{entries.begin(), entries.begin() + 1}, 1000, false},
      rest{{entries.begin() + 1, entries.end()}, 1000, true};
  rest.entries[0].entry.tokens[3] = TokenId(99);  // forged: the key is not the tokens'
  d.step(found);
  EXPECT_EQ(d.core.stats().recovered_total, 1u);
  EXPECT_TRUE(d.core.stats().recovers) << "there may be more";
  d.step(rest);
  EXPECT_EQ(d.core.stats().recovered_total, 1u);
  EXPECT_FALSE(d.core.stats().recovers);
  EXPECT_EQ(d.core.stats().orphans_total, 2u) << "and what follows it has no way to it";
  d.end_moves();
  d.arrive(2, run_of(0, 100));
  EXPECT_EQ(d.starts.back().sources.disk, 32u);
  d.finish();
}

// Else a server that is stopped soon after its start would lose what it has computed.
TEST(CoreDisk, AStopSavesOnceItIsKnownWhatTheDiskHas) {
  const CoreConfig config = tier_config(4, 0, 16);
  for (const bool answers : {true, false}) {
    TierDriver d(config, false);
    d.arrive(1, run_of(500, 70));
    while (d.in_flight) d.done();
    d.step(Drain{.deadline = d.now + kNanosPerSecond});
    EXPECT_FALSE(d.plan.drained) << "nothing is written before all is known";
    EXPECT_EQ(d.plan.wake_at, d.now + kNanosPerSecond);
    if (answers) {
      d.step(Recovered{{}, 0, true});
      EXPECT_FALSE(d.plan.drained);
      d.end_moves();
      EXPECT_GE(d.on_disk.size(), 2u);
    } else {
      d.now = d.plan.wake_at;
      d.step(Tick{});
      EXPECT_TRUE(d.on_disk.empty());
    }
    EXPECT_TRUE(d.plan.drained);
  }
  TierDriver idle(config, false);
  idle.step(Drain{.deadline = idle.now + kNanosPerSecond});
  EXPECT_TRUE(idle.plan.drained) << "there is nothing to save";
}

// Else what is used every day is as old after a restart as on the day when it was saved.
TEST(CoreDisk, UsesDateTheDisksRecordsAgain) {
  CoreConfig config = tier_config(8, 0, 16);
  config.state_ttl = 80 * kNanosPerSecond;
  TierDriver d(config);
  std::uint64_t id = 0;
  const auto dated_after = [&](Nanos time) {
    d.now += time;
    d.record_changes.clear();
    d.run(++id, run_of(0, 100));
    return std::count_if(d.record_changes.begin(), d.record_changes.end(),
                         [](const RecordChange& change) { return change.kind == RecordChange::Kind::kUsed; });
  };
  EXPECT_EQ(dated_after(0), 0) << "they are written with their date";
  EXPECT_EQ(dated_after(9 * kNanosPerSecond), 0) << "an eighth of the time to live has not passed";
  EXPECT_EQ(dated_after(2 * kNanosPerSecond), 3);
  EXPECT_EQ(dated_after(9 * kNanosPerSecond), 0);
  EXPECT_EQ(dated_after(2 * kNanosPerSecond), 3);
  for (const RecordChange& change : d.record_changes) {
    EXPECT_TRUE(std::any_of(d.on_disk.begin(), d.on_disk.end(), [&](const Move& move) {
      return move.entry.key == change.entry.key && move.parts.front().to == change.slot;
    }));
  }
}

TEST(CoreDisk, StateThatNobodyUsesExpires) {
  CoreConfig config = tier_config(4, 8, 8);
  config.state_ttl = 100 * kNanosPerSecond;
  TierDriver d(config);
  d.run(1, run_of(0, 100));
  for (int i = 0; i < 40; ++i) {
    d.now += 20 * kNanosPerSecond;
    d.step(Tick{});
  }
  const CoreStats stats = d.core.stats();
  EXPECT_EQ(stats.tiers[0].free, 4u);
  EXPECT_EQ(stats.tiers[1].free, 8u);
  EXPECT_EQ(stats.tiers[2].free, 8u);
  d.arrive(2, run_of(0, 100));
  EXPECT_EQ(d.missed(MissReason::kExpired), 96u);
  d.finish();
}

// Other models' servers share the disk: its room changes while it is used.
TEST(CoreDisk, ADiskWithLessRoomGivesUpWhatWasUsedLongestAgo) {
  TierDriver d(tier_config(4, 0, 16));
  for (std::uint64_t id = 1; id <= 4; ++id) d.run(id, run_of(static_cast<std::uint32_t>(id) * 1000, 96));
  EXPECT_EQ(d.core.stats().tiers[2].free, 4u);
  d.record_changes.clear();
  d.step(DiskRoom{{6}});
  EXPECT_EQ(d.core.stats().tiers[2].slots, 6u);
  EXPECT_EQ(d.core.stats().tiers[2].free, 0u);
  const auto forgotten =
      std::count_if(d.record_changes.begin(), d.record_changes.end(),
                    [](const RecordChange& change) { return change.kind == RecordChange::Kind::kForget; });
  EXPECT_EQ(forgotten, 6) << "the disk is told, so that it gives the space back";
  d.run(5, run_of(4000, 101));
  EXPECT_GE(d.starts.back().cached_tokens, 96u) << "the last stayed";
  d.run(6, run_of(6000, 200));
  EXPECT_LE(d.core.stats().tiers[2].slots - d.core.stats().tiers[2].free, 6u);
  d.step(DiskRoom{{0}});
  EXPECT_EQ(d.core.stats().tiers[2].slots, 0u);
  d.run(7, run_of(7000, 200));
  d.step(DiskRoom{{16}});
  EXPECT_EQ(d.core.stats().tiers[2].free, 16u) << "nothing was saved where there was no room";
}

// A whole disk given up in one step would hold up whoever decodes.
TEST(CoreDisk, ADiskWithMuchLessRoomGivesUpAPortionInAStep) {
  TierDriver d(tier_config(4, 0, 100));
  for (std::uint64_t id = 1; id <= 40; ++id) d.run(id, run_of(static_cast<std::uint32_t>(id) * 1000, 96));
  EXPECT_EQ(d.core.stats().tiers[2].free, 0u);
  std::vector<std::size_t> portions;
  for (Event event = DiskRoom{{10}}; portions.size() < 3; event = Tick{}) {
    d.record_changes.clear();
    d.step(event);
    portions.push_back(d.record_changes.size());
    if (portions.size() < 3) {
      EXPECT_LE(d.plan.wake_at, d.now + kNanosPerMilli) << "it goes on soon";
    }
  }
  EXPECT_EQ(portions, (std::vector<std::size_t>{32, 32, 26}));
  d.core.check_invariants();
  EXPECT_EQ(d.core.stats().tiers[2].free, 0u);
}

}  // namespace
}  // namespace loci
