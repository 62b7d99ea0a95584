// SPDX-License-Identifier: Apache-2.0
// The event log of random worlds: what a core did in one is replayed to the same plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "loci/base/folder_testing.h"
#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"
#include "loci/engine/log/event_log.h"
#include "loci/sim/core_world.h"

namespace loci {
namespace {

class EventLogWorlds : public testing::Test {
 protected:
  // The events of a random world, run and logged.
  std::uint64_t write_log(std::uint64_t seed, CoreWorldOptions (*make)(const Chooser&)) {
    const Chooser choose = [random = Random(seed)](std::uint64_t b) mutable { return random.below(b); };
    CoreWorldOptions options = make(choose);
    options.events = std::min(options.events, 400u);
    options.config.chain_secret.fill(0x5a);
    const WorldHistory history = World(options, choose).run();
    Core core = Core::make(options.config).value();
    EventLogWriter writer = EventLogWriter::create(path_, options.config, LoggedSecret::kKept).value();
    for (const auto& [now, event] : history.events) {
      EXPECT_TRUE(writer.append_event(now, event).ok());
      EXPECT_TRUE(writer.append_plan(core.step(now, event)).ok());
    }
    return history.events.size();
  }

  void expect_replays(std::uint64_t seeds, CoreWorldOptions (*make)(const Chooser&)) {
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      const std::uint64_t steps = write_log(seed, make);
      const auto report = replay(path_);
      ASSERT_TRUE(report.ok()) << "seed " << seed << ": " << report.status().to_string();
      EXPECT_EQ(report->steps, steps);
      EXPECT_EQ(report->compared, steps);
      EXPECT_FALSE(report->truncated);
    }
  }

  const TestFolder folder_;
  const std::string path_ = folder_.file("events");
};

TEST_F(EventLogWorlds, ReplayToTheSamePlans) { expect_replays(test_rounds(40, 10), random_world); }
// With moves between tiers, and what a disk held from before.
TEST_F(EventLogWorlds, ReplayTiers) { expect_replays(test_rounds(80, 10), random_tier_world); }
TEST_F(EventLogWorlds, ReplayHistoriesThatAreCut) { expect_replays(test_rounds(60, 10), random_cut_world); }
TEST_F(EventLogWorlds, ReplayAStoreThatServersShare) {
  expect_replays(test_rounds(60, 10), random_shared_world);
}
TEST_F(EventLogWorlds, ReplayPassesAhead) { expect_replays(test_rounds(80, 10), random_ahead_world); }

}  // namespace
}  // namespace loci
