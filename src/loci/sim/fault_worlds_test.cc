// SPDX-License-Identifier: Apache-2.0
// Worlds with faults: tests that faults occur, that nothing is lost, and that a seed gives the same run
// again.
#include "loci/sim/fault_worlds.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <set>

#include "loci/base/mutex.h"
#include "loci/base/rounds_testing.h"
#include "loci/sim/ledger.h"
#include "loci/sim/report.h"
#include "loci/sim/seed_runner.h"

namespace loci::sim {
namespace {

WorldReport run_seed(std::uint64_t seed, WorldSize size) {
  Random random(seed);
  return run_fault_world(random_fault_world(random, size));
}

TEST(FaultWorlds, LoseNothingWhateverGoesWrong) {
  std::uint64_t failed = 0, poisoned = 0, restarts = 0, recovered = 0, from_disk = 0;
  std::array<std::uint64_t, kOutcomes> outcomes{};
  const std::uint64_t seeds = test_rounds(400);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    const WorldReport report = run_seed(seed, WorldSize::kSmall);
    failed += report.failed_moves;
    poisoned += report.poisoned_spans;
    restarts += report.restarts;
    recovered += report.recovered;
    for (const RequestRecord& record : report.requests) {
      ++outcomes[static_cast<std::size_t>(record.outcome)];
      from_disk += record.from[2];
    }
  }
  // Or they show nothing.
  EXPECT_GT(failed, seeds);
  EXPECT_GT(poisoned, seeds / 40);
  EXPECT_GT(restarts, seeds / 2);
  EXPECT_GT(recovered, seeds / 2);
  EXPECT_GT(from_disk, seeds);
  for (const Outcome outcome : {Outcome::kDone, Outcome::kCancelled, Outcome::kDeadline, Outcome::kFailed,
                                Outcome::kRejected, Outcome::kTooLong}) {
    EXPECT_GT(outcomes[static_cast<std::size_t>(outcome)], seeds / 40) << outcome_name(outcome);
  }
}

TEST(FaultWorlds, LargeOnesLoseNothingEither) {
  std::uint64_t restarts = 0;
  for (std::uint64_t seed = 1; seed <= test_rounds(10); ++seed)
    restarts += run_seed(seed, WorldSize::kLarge).restarts;
  // In this one the original of a block that is to be rotated later leaves the device for what is loaded
  // ahead.
  restarts += run_seed(2600, WorldSize::kLarge).restarts;
  EXPECT_GT(restarts, 0u);
}

void expect_seeds_repeat(FaultWorld (*make)(Random&, WorldSize), std::uint64_t seeds) {
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    const auto run = [&] {
      Random random(seed);
      const FaultWorld world = make(random, WorldSize::kSmall);
      const WorldReport report = run_fault_world(world);
      return std::pair(report.digest, report_json(world.trace, world.options, report).dump());
    };
    EXPECT_EQ(run(), run()) << seed;
  }
}

WorldReport run_hidden(std::uint64_t seed, WorldSize size) {
  Random random(seed);
  return run_fault_world(random_hidden_world(random, size));
}

TEST(HiddenFaultWorlds, LoseNothingWhateverGoesWrong) {
  std::uint64_t saved = 0, loaded = 0, not_captured = 0, failed = 0, poisoned = 0, recovered = 0, hidden = 0;
  Nanos projecting = 0, waits = 0;
  const std::uint64_t seeds = test_rounds(300);
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    const WorldReport report = run_hidden(seed, WorldSize::kSmall);
    saved += report.hidden_saved;
    loaded += report.hidden_loaded;
    not_captured += report.hidden_not_captured;
    projecting += report.projecting_time;
    waits += report.capture_wait;
    failed += report.failed_moves;
    poisoned += report.poisoned_spans;
    recovered += report.recovered;
    for (const RequestRecord& record : report.requests) hidden += record.hidden;
  }
  // Or they show nothing.
  EXPECT_GT(saved, 4 * seeds);
  EXPECT_GT(loaded, seeds);
  EXPECT_GT(not_captured, seeds / 20);
  EXPECT_GT(projecting, 0);
  EXPECT_GT(waits, 0) << "direct saves make passes longer";
  EXPECT_GT(failed, seeds / 2);
  EXPECT_GT(poisoned, seeds / 60);
  EXPECT_GT(recovered, seeds / 2);
  EXPECT_GT(hidden, seeds * kBlockTokens);
}

TEST(HiddenFaultWorlds, LargeOnesLoseNothingEither) {
  std::uint64_t loaded = 0;
  for (std::uint64_t seed = 1; seed <= test_rounds(6); ++seed)
    loaded += run_hidden(seed, WorldSize::kLarge).hidden_loaded;
  EXPECT_GT(loaded, 0u);
}

TEST(HiddenFaultWorlds, ASeedRepeats) { expect_seeds_repeat(random_hidden_world, 20); }

WorldReport run_cluster(std::uint64_t seed, WorldSize size) {
  Random random(seed);
  return run_fault_world(random_cluster_world(random, size));
}

TEST(ClusterFaultWorlds, LoseNothingWhicheverInstanceDies) {
  const std::uint64_t seeds = test_rounds(300);
  ClusterReport all;
  std::uint64_t deaths = 0, disks_lost = 0, from_peers = 0, recovered = 0, rested = 0;
  std::array<std::uint64_t, kOutcomes> outcomes{};
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    SCOPED_TRACE(seed);
    const WorldReport report = run_cluster(seed, WorldSize::kSmall);
    deaths += report.restarts;
    disks_lost += report.disks_lost;
    recovered += report.recovered;
    all.moved += report.cluster.moved;
    all.lost += report.cluster.lost;
    all.refused += report.cluster.refused;
    all.tokens_again += report.cluster.tokens_again;
    all.feed_gaps += report.cluster.feed_gaps;
    all.feeds_broken += report.cluster.feeds_broken;
    all.prefilled += report.cluster.prefilled;
    all.prefills_failed += report.cluster.prefills_failed;
    all.peer_blocks += report.cluster.peer_blocks;
    all.peer_blocks_gone += report.cluster.peer_blocks_gone;
    all.peer_bytes_lost += report.cluster.peer_bytes_lost;
    for (const RequestRecord& record : report.requests) {
      ++outcomes[static_cast<std::size_t>(record.outcome)];
      from_peers += record.from[3];
      rested += record.moved > 0 && record.outcome == Outcome::kDone;
    }
  }
  // Or they show nothing.
  EXPECT_GT(deaths, seeds);
  EXPECT_GT(disks_lost, seeds / 4);
  EXPECT_GT(recovered, seeds / 4);
  EXPECT_GT(all.moved, seeds / 10);
  EXPECT_GT(rested, seeds / 20) << "requests that outlive their instance are done";
  EXPECT_GT(all.lost, 0u) << "two instances died with a request";
  EXPECT_GT(all.refused, seeds / 10);
  EXPECT_GT(all.tokens_again, seeds / 10);
  EXPECT_GT(all.feeds_broken, seeds / 2);
  EXPECT_GT(all.feed_gaps, 3 * seeds) << "each begin of a feed is one";
  EXPECT_GT(all.prefilled, seeds / 4);
  EXPECT_GT(all.prefills_failed, seeds / 20);
  EXPECT_GT(all.peer_blocks, seeds / 4);
  EXPECT_GT(all.peer_blocks_gone, 0u);
  EXPECT_GT(all.peer_bytes_lost, 0u);
  EXPECT_GT(from_peers, seeds);
  for (const Outcome outcome : {Outcome::kDone, Outcome::kCancelled, Outcome::kDeadline, Outcome::kFailed,
                                Outcome::kRejected, Outcome::kTooLong}) {
    EXPECT_GT(outcomes[static_cast<std::size_t>(outcome)], 0u) << outcome_name(outcome);
  }
}

TEST(ClusterFaultWorlds, LargeOnesLoseNothingEither) {
  std::uint64_t moved = 0;
  for (std::uint64_t seed = 1; seed <= test_rounds(4); ++seed)
    moved += run_cluster(seed, WorldSize::kLarge).cluster.moved;
  EXPECT_GT(moved, 0u);
}

TEST(ClusterFaultWorlds, ASeedRepeats) { expect_seeds_repeat(random_cluster_world, 10); }

TEST(FaultWorlds, ASeedRepeats) { expect_seeds_repeat(random_fault_world, 20); }

// What is ill is slower by its factor, and a world without faults is as it was.
TEST(Faults, AreWellWhereNothingIsAskedFor) {
  Faults none({});
  EXPECT_EQ(none.first_turn(Links::kHostLoad), kNever);
  EXPECT_EQ(none.until_restart(), kNever);
  EXPECT_EQ(none.speed(Links::kDiskRead, 0), 1);
  EXPECT_EQ(none.result_of({.from = Tier::kDisk}), MoveResult::kDone);
  Faults some({.seed = 3, .well = 1000, .ill = 10, .slow = 4, .fails = 1});
  double well = 0, ill = 0;
  for (int i = 0; i < 2000; ++i) {
    ill += static_cast<double>(some.turn(Links::kDiskRead));
    EXPECT_EQ(some.speed(Links::kDiskRead, 0), 0.25);
    EXPECT_EQ(some.speed(Links::kDiskWrite, 0), 1);
    EXPECT_NE(some.result_of({.from = Tier::kDisk}), MoveResult::kDone);
    EXPECT_EQ(some.result_of({.from = Tier::kHost}), MoveResult::kDone);
    well += static_cast<double>(some.turn(Links::kDiskRead));
  }
  EXPECT_NEAR(well / 2000, 1000, 60);
  EXPECT_NEAR(ill / 2000, 10, 1);
}

TEST(LedgerDeathTest, NamesWhatDoesNotAddUp) {
  CoreStats stats;
  const Ledger empty;
  empty.check_end(stats);
  Ledger one;
  one.arrived();
  EXPECT_DEATH(one.check(stats), "each request that arrived is live or has ended");
  one.ended();
  one.sampled();
  EXPECT_DEATH(one.check(stats), "each sampled token is told of");
  stats.tokens_generated_total = 1;
  one.began({.link = CoreLink::kHostSave, .bytes = 100});
  EXPECT_DEATH(one.check(stats), "each move is in flight or has ended");
  one.ended({.link = CoreLink::kHostSave, .bytes = 60}, MoveResult::kFailed);
  EXPECT_DEATH(one.check(stats), "each move ends once, with its result");
  ++stats.moves[static_cast<std::size_t>(CoreLink::kHostSave)]
        .ended[static_cast<std::size_t>(MoveResult::kFailed)];
  one.check(stats);
  EXPECT_DEATH(one.check_end(stats), "bytes that began to move have ended or were lost");
}

TEST(LedgerDeathTest, CountsEachFormByItself) {
  CoreStats stats;
  const Ledger::Load hidden{CoreLink::kDiskLoad, StateForm::kHidden, 100};
  Ledger one;
  one.began(hidden);
  one.ended(hidden, MoveResult::kDone);
  ++stats.moves[static_cast<std::size_t>(CoreLink::kDiskLoad)].ended[0];
  EXPECT_DEATH(one.check_end(stats), "blocks move as hidden states as often as the core says");
  ++stats.hidden_loaded_total;
  one.check_end(stats);
  Ledger other;  // it began as keys and values
  other.began({CoreLink::kDiskLoad, StateForm::kKeysAndValues, 100});
  other.ended(hidden, MoveResult::kDone);
  EXPECT_DEATH(other.check_end(stats), "bytes that began to move have ended or were lost");
}

TEST(SeedRunner, RunsEachSeedOnceWhateverTheThreads) {
  std::uint64_t digests[2];
  for (const unsigned threads : {1u, 3u}) {
    Mutex mutex;
    std::multiset<std::uint64_t> seen;
    std::uint64_t told = 0;
    digests[threads == 3] = run_seeds(
        {5, 40}, threads, "again ",
        [&](std::uint64_t seed) {
          const MutexLock lock(mutex);
          seen.insert(seed);
          return seed * 3;
        },
        [&](std::uint64_t done) { EXPECT_EQ(done, ++told); });
    EXPECT_EQ(seen.size(), 40u);
    EXPECT_EQ(*seen.begin(), 5u);
    EXPECT_EQ(std::set<std::uint64_t>(seen.begin(), seen.end()).size(), 40u);
    EXPECT_EQ(told, 40u);
  }
  EXPECT_EQ(digests[0], digests[1]);
}

TEST(SeedRunnerDeathTest, SaysHowToRepeatTheSeedThatFails) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto none = [](std::uint64_t) {};
  const auto fail = [](std::uint64_t seed) -> std::uint64_t {
    if (seed == 7) std::abort();
    return 0;
  };
  EXPECT_DEATH(run_seeds({1, 20}, 2, "make simulate SEEDS=1 FIRST=", fail, none),
               "seed 7 failed; to repeat it: make simulate SEEDS=1 FIRST=7");
}

}  // namespace
}  // namespace loci::sim
