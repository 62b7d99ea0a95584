// SPDX-License-Identifier: Apache-2.0
// Random worlds: thousands of seeds of core_world.h. LOCI_WORLD_SEEDS=N runs more of them,
// LOCI_WORLD_FIRST_SEED=S begins elsewhere (to repeat one: S and N = 1).
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"
#include "loci/engine/log/event_log_codec.h"
#include "loci/sim/core_world.h"

namespace loci {
namespace {

// In slow builds: most paths are taken in each of a few worlds.
constexpr std::uint64_t kOneWorldOf = 20;

volatile std::uint64_t current_seed = 0;

// A violation aborts: say in which world.
void say_seed(int) {
  char text[64];
  const int size = std::snprintf(text, sizeof text, "in the world of seed %llu\n",
                                 static_cast<unsigned long long>(current_seed));
  if (size > 0) [[maybe_unused]]
    const auto written = ::write(2, text, static_cast<std::size_t>(size));
}

std::uint64_t from_environment(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

Chooser chooser(std::uint64_t seed) {
  return [random = Random(seed)](std::uint64_t bound) mutable { return random.below(bound); };
}

class CoreWorlds : public testing::Test {
 protected:
  void SetUp() override { previous_ = std::signal(SIGABRT, say_seed); }
  void TearDown() override { std::signal(SIGABRT, previous_); }

 private:
  void (*previous_)(int) = SIG_DFL;
};

// Sums over worlds, to show that they are not idle.
struct Totals {
  std::uint64_t events = 0, generated = 0, cached = 0, copies = 0, inner_spans = 0, kept_rows = 0;
  std::uint64_t evictions = 0, suspensions = 0, public_rows = 0;
  std::uint64_t loads = 0, early_reads = 0, saves = 0, pauses = 0, restarts = 0, after_restart = 0;
  std::array<std::uint64_t, kRestoreRules.size()> partial_loads{};
  std::uint64_t partial_holes = 0, partial_copies = 0, failed_loads = 0;
  std::uint64_t followed = 0, gone_on = 0, wasted = 0;
  std::uint64_t ends_saved = 0, ends_loaded = 0, window_ends_loaded = 0, ends_continued = 0;
  std::uint64_t shared_loads = 0, shared_lies = 0;
  std::uint64_t peer_wanted = 0, peer_given = 0, peer_cut = 0, peer_rounds = 0;
  std::uint64_t cuts = 0, rotated = 0, rotated_ahead = 0;
  std::uint64_t digest = 0;  // the same before and after a change that is to change no plan

  void add(const WorldHistory& history) {
    digest = mix64(digest ^ history.digest);
    events += history.events.size();
    generated += history.stats.tokens_generated_total;
    cached += history.stats.tokens_cached_total;
    copies += history.copies;
    inner_spans += history.holes;
    kept_rows += history.kept_rows;
    evictions += history.stats.evictions_total;
    suspensions += history.stats.suspensions_total;
    public_rows += history.public_rows;
    loads += history.loads;
    early_reads += history.early_reads;
    for (std::size_t i = 0; i < partial_loads.size(); ++i) partial_loads[i] += history.partial_loads[i];
    partial_holes += history.partial_holes;
    partial_copies += history.partial_copies;
    failed_loads += history.failed_loads;
    saves += history.saves;
    ends_saved += history.ends_saved;
    ends_loaded += history.ends_loaded;
    window_ends_loaded += history.window_ends_loaded;
    ends_continued += history.ends_continued;
    pauses += history.pauses;
    restarts += history.restarts;
    after_restart += history.after_restart;
    followed += history.followed;
    gone_on += history.gone_on;
    wasted += history.stats.spans_wasted_total;
    shared_loads += history.shared_loads;
    shared_lies += history.shared_lies;
    peer_wanted += history.peer_parts_wanted;
    peer_given += history.peer_parts_given;
    peer_cut += history.peer_parts_cut;
    peer_rounds += history.peer_rounds_given;
    cuts += history.cuts;
    rotated += history.rotated;
    rotated_ahead += history.rotated_ahead;
  }
  void print() const {
    std::printf(
        "%llu events, %llu generated, %llu cached, %llu copies, %llu inner spans, %llu rows of them that one "
        "group had, %llu evictions, %llu suspensions\n",
        (unsigned long long)events, (unsigned long long)generated, (unsigned long long)cached,
        (unsigned long long)copies, (unsigned long long)inner_spans, (unsigned long long)kept_rows,
        (unsigned long long)evictions, (unsigned long long)suspensions);
    std::printf(
        "%llu loads, %llu of them read before they ended, %llu that failed, %llu saves, %llu pauses, %llu "
        "restarts, %llu loads from before\n",
        (unsigned long long)loads, (unsigned long long)early_reads, (unsigned long long)failed_loads,
        (unsigned long long)saves, (unsigned long long)pauses, (unsigned long long)restarts,
        (unsigned long long)after_restart);
    std::printf("%llu ends of sequences saved, %llu loaded, %llu of them in models with windows\n",
                (unsigned long long)ends_saved, (unsigned long long)ends_loaded,
                (unsigned long long)window_ends_loaded);
    std::printf("requests that loaded a part, by plan:");
    for (std::size_t i = 0; i < partial_loads.size(); ++i)
      std::printf(" %s %llu", kRestoreRules[i].data(), (unsigned long long)partial_loads[i]);
    std::printf("; %llu of them with holes, %llu with copies\n", (unsigned long long)partial_holes,
                (unsigned long long)partial_copies);
    std::printf(
        "%llu spans went on from samples on the device, %llu behind prompts, %llu of all for nothing\n",
        (unsigned long long)followed, (unsigned long long)gone_on, (unsigned long long)wasted);
    std::printf("%llu loads from a shared store, %llu of what it had not\n", (unsigned long long)shared_loads,
                (unsigned long long)shared_lies);
    std::printf(
        "%llu blocks wanted by peers, %llu parts given, %llu cut off; %llu rounds behind first ones\n",
        (unsigned long long)peer_wanted, (unsigned long long)peer_given, (unsigned long long)peer_cut,
        (unsigned long long)peer_rounds);
    std::printf("%llu histories cut, %llu blocks rotated, %llu of them began ahead of admission\n",
                (unsigned long long)cuts, (unsigned long long)rotated, (unsigned long long)rotated_ahead);
    std::printf("digest of all plans: %016llx\n", (unsigned long long)digest);
  }
};

Totals run_worlds(CoreWorldOptions (*make)(const Chooser&), std::uint64_t seeds) {
  const std::uint64_t first = from_environment("LOCI_WORLD_FIRST_SEED", 1);
  Totals totals;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    current_seed = seed;
    const Chooser choose = chooser(seed);
    const CoreWorldOptions options = make(choose);
    const WorldHistory history = World(options, choose).run();
    totals.add(history);

    // 8. Same events, same plans.
    // (After a restart the history begins anew.)
    if (seed % 4 != 0) continue;
    Core again = Core::make(options.config).value();
    for (std::size_t i = 0; i < history.events.size(); ++i) {
      const Plan plan = again.step(history.events[i].first, history.events[i].second);
      EXPECT_EQ(plan_digest(plan), history.plan_digests[i]) << "seed " << seed << ", step " << i;
      if (testing::Test::HasFailure()) return totals;
    }
  }
  totals.print();
  return totals;
}

TEST_F(CoreWorlds, KeepEveryPromise) {
  const std::uint64_t seeds = from_environment("LOCI_WORLD_SEEDS", test_rounds(1000, kOneWorldOf));
  const Totals totals = run_worlds(random_world, seeds);
  if (seeds >= 1000) {
    EXPECT_GT(totals.suspensions, seeds / 10);
    EXPECT_GT(totals.pauses, seeds / 2);
    EXPECT_GT(totals.evictions, seeds);
    EXPECT_GT(totals.copies, seeds);
    EXPECT_GT(totals.public_rows, seeds);
    EXPECT_GT(totals.cached, totals.generated / 20);
    EXPECT_EQ(totals.kept_rows, 0u);
  }
}

TEST_F(CoreWorlds, KeepEveryPromiseWithWindows) {
  const std::uint64_t seeds = from_environment("LOCI_WORLD_SEEDS", test_rounds(500, kOneWorldOf));
  const Totals totals = run_worlds(random_window_world, seeds);
  if (seeds >= 500) {
    EXPECT_GT(totals.suspensions, seeds / 10);
    EXPECT_GT(totals.evictions, seeds);
    EXPECT_GT(totals.copies, seeds);
    EXPECT_GT(totals.cached, totals.generated / 20);
    EXPECT_GT(totals.kept_rows, seeds);
  }
}

TEST_F(CoreWorlds, KeepEveryPromiseWithTiers) {
  const std::uint64_t seeds = from_environment("LOCI_WORLD_SEEDS", test_rounds(1000, kOneWorldOf));
  const Totals totals = run_worlds(random_tier_world, seeds);
  if (seeds >= 1000) {
    EXPECT_GT(totals.loads, seeds / 2);
    EXPECT_GT(totals.early_reads, seeds / 2);
    EXPECT_GT(totals.saves, seeds * 10);
    EXPECT_GT(totals.restarts, seeds / 10);
    EXPECT_GT(totals.after_restart, seeds / 40);
    EXPECT_GT(totals.ends_saved, seeds / 2);
    EXPECT_GT(totals.ends_loaded, seeds / 40);
  }
}

TEST_F(CoreWorlds, KeepEveryPromiseWithWindowsAndTiers) {
  const std::uint64_t seeds = from_environment("LOCI_WORLD_SEEDS", test_rounds(600, kOneWorldOf));
  const Totals totals = run_worlds(random_window_tier_world, seeds);
  if (seeds >= 600) {
    EXPECT_GT(totals.ends_saved, seeds * 5);
    EXPECT_GT(totals.window_ends_loaded, seeds / 2);
    EXPECT_GT(totals.after_restart, seeds);
    EXPECT_GT(totals.suspensions, seeds / 20);
    EXPECT_GT(totals.kept_rows, seeds);
    for (const RestoreRule rule : {RestoreRule::kTokenWise, RestoreRule::kNaiveHybrid, RestoreRule::kAuto})
      EXPECT_GT(totals.partial_loads[static_cast<std::size_t>(rule)], 0u) << restore_rule_name(rule);
  }
}

TEST_F(CoreWorlds, KeepEveryPromiseWhateverIsLoadedAndWhateverComputed) {
  const std::uint64_t seeds = from_environment("LOCI_WORLD_SEEDS", test_rounds(400, kOneWorldOf));
  const Totals totals = run_worlds(random_restore_world, seeds);
  if (seeds >= 400) {
    // (Pensieve's rule mixes only where a request's state lies in two tiers, which is rare here.)
    for (const RestoreRule rule : {RestoreRule::kTokenWise, RestoreRule::kTokenWiseRounded,
                                   RestoreRule::kNaiveHybrid, RestoreRule::kAuto}) {
      EXPECT_GT(totals.partial_loads[static_cast<std::size_t>(rule)], seeds / 100) << restore_rule_name(rule);
    }
    EXPECT_GT(totals.partial_holes, seeds / 20);
    EXPECT_GT(totals.partial_copies, seeds / 100);
    EXPECT_GT(totals.failed_loads, seeds / 10);
    EXPECT_GT(totals.loads, seeds * 5);
    EXPECT_GT(totals.early_reads, seeds);
    EXPECT_GT(totals.after_restart, seeds / 10);
  }
}

TEST_F(CoreWorlds, KeepEveryPromiseWithAStoreThatServersShare) {
  const std::uint64_t seeds = from_environment("LOCI_WORLD_SEEDS", test_rounds(600, kOneWorldOf));
  const Totals totals = run_worlds(random_shared_world, seeds);
  if (seeds >= 600) {
    EXPECT_GT(totals.shared_loads, seeds / 10);
    EXPECT_GT(totals.shared_lies, seeds / 30);
    EXPECT_GT(totals.peer_given, seeds / 3);
    EXPECT_GT(totals.peer_rounds, seeds / 3);
    EXPECT_GT(totals.peer_cut, seeds / 100);
    EXPECT_GT(totals.restarts, seeds / 10);
  }
}

TEST_F(CoreWorlds, KeepEveryPromiseWhereHistoriesAreCut) {
  const std::uint64_t seeds = from_environment("LOCI_WORLD_SEEDS", test_rounds(600, kOneWorldOf));
  const Totals totals = run_worlds(random_cut_world, seeds);
  if (seeds >= 600) {
    EXPECT_GT(totals.cuts, seeds * 10);
    EXPECT_GT(totals.rotated, seeds);
    EXPECT_GT(totals.rotated_ahead, seeds / 100);
    EXPECT_GT(totals.early_reads, seeds / 2);
    EXPECT_GT(totals.restarts, seeds / 10);
  }
}

TEST_F(CoreWorlds, KeepEveryPromiseWithPassesAhead) {
  const std::uint64_t seeds = from_environment("LOCI_WORLD_SEEDS", test_rounds(600, kOneWorldOf));
  const Totals totals = run_worlds(random_ahead_world, seeds);
  if (seeds >= 600) {
    EXPECT_GT(totals.followed, totals.generated / 4);
    EXPECT_GT(totals.gone_on, seeds);
    EXPECT_GT(totals.wasted, seeds);
    EXPECT_GT(totals.suspensions, seeds / 10);
    EXPECT_GT(totals.evictions, seeds);
    EXPECT_GT(totals.copies, seeds / 2);
    EXPECT_GT(totals.public_rows, seeds);
    EXPECT_GT(totals.loads, seeds);
    EXPECT_GT(totals.early_reads, seeds / 2);
    EXPECT_GT(totals.kept_rows, seeds / 2);
  }
}

// With room for everything, what is cached is exactly what a naive model knows.
TEST_F(CoreWorlds, FindAllStateThatIsThere) {
  for (std::uint64_t seed = 1; seed <= test_rounds(300, kOneWorldOf); ++seed) {
    current_seed = seed;
    const Chooser choose = chooser(seed ^ 0x5eed);
    CoreWorldOptions options = random_world(choose);
    if (seed % 3 == 0) options = random_window_world(choose);
    for (CoreGroup& group : options.config.groups) group.block_count = 4000;
    options.config.context_tokens = 400;
    options.cancels = options.deadlines = options.drain = false;
    options.poison_one_in = 0;
    options.publics = false;  // whoever finds a public block goes on behind it
    options.config.reuse = true;
    options.live_max = seed % 2 == 0 ? 1 : 6;
    options.events = 150;
    options.nothing_is_evicted = true;
    options.memory_rooms = false;
    const WorldHistory history = World(options, choose).run();
    ASSERT_EQ(history.stats.evictions_total, 0u);
  }
}

// Where everything was saved, who continues a sequence after a restart goes on from its very end.
TEST_F(CoreWorlds, NothingOfASequenceThatGoesOnIsComputedAgain) {
  const std::uint64_t first = from_environment("LOCI_WORLD_FIRST_SEED", 1);
  const std::uint64_t seeds = from_environment("LOCI_WORLD_SEEDS", test_rounds(300, kOneWorldOf));
  std::uint64_t continued = 0, loaded = 0, window_ends = 0, restarts = 0;
  for (std::uint64_t seed = first; seed < first + seeds; ++seed) {
    current_seed = seed;
    const Chooser choose = chooser(seed ^ 0xe4d5);
    CoreWorldOptions options = seed % 3 == 0 ? random_world(choose) : random_window_world(choose);
    CoreConfig& config = options.config;
    for (CoreGroup& group : config.groups) {
      group.block_count = group.disk_blocks = 4000;
      group.block_bytes = 1000;
      if (seed % 4 == 0) group.host_blocks = 4000;
    }
    config.hole_records = 4000;
    config.saves_max = 400;
    config.context_tokens = 600;
    config.restore = "kv";
    config.reuse = true;
    options.deadlines = options.drain = options.publics = options.pauses = options.memory_rooms = false;
    options.poison_one_in = options.grammar_end_one_in = 0;
    options.live_max = 1;
    options.turn_tokens_max = 150;
    options.events = 200;
    options.ends_are_found = options.restarts = true;
    const WorldHistory history = World(options, choose).run();
    continued += history.ends_continued;
    loaded += history.after_restart;
    window_ends += history.window_ends_loaded;
    restarts += history.restarts;
  }
  std::printf("%llu sequences went on, %llu restarts, %llu loads from before, %llu ends with windows\n",
              (unsigned long long)continued, (unsigned long long)restarts, (unsigned long long)loaded,
              (unsigned long long)window_ends);
  if (seeds < 300) return;
  EXPECT_GT(continued, 500u);
  EXPECT_GT(restarts, 150u);
  EXPECT_GT(window_ends, 50u);
}

}  // namespace
}  // namespace loci
