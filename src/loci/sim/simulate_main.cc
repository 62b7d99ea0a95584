// SPDX-License-Identifier: Apache-2.0
// simulate: random worlds around the production core, a seed each, until one breaks a promise. Each seed runs
// a world that knows what every token must be (core_world.h) and three on modelled hardware on which things
// go wrong (fault_worlds.h): one server, one whose disk has hidden states, and instances behind fronts that
// die.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "loci/base/clock.h"
#include "loci/base/random.h"
#include "loci/sim/core_world.h"
#include "loci/sim/fault_worlds.h"
#include "loci/sim/seed_runner.h"

namespace loci {
namespace {

constexpr std::uint64_t kLargeOneIn = 50;  // of the worlds in which things go wrong

std::uint64_t run_core_world(std::uint64_t seed) {
  constexpr std::array kWorlds = {random_world,         random_window_world, random_tier_world,
                                  random_restore_world, random_shared_world, random_ahead_world,
                                  random_cut_world};
  const Chooser choose = [random = Random(seed)](std::uint64_t bound) mutable { return random.below(bound); };
  const CoreWorldOptions options = kWorlds[seed % kWorlds.size()](choose);
  return World(options, choose).run().digest;
}

std::uint64_t run_faults(std::uint64_t seed) {
  Random random(seed);
  const auto size = seed % kLargeOneIn == 0 ? sim::WorldSize::kLarge : sim::WorldSize::kSmall;
  const std::uint64_t alone = sim::run_fault_world(sim::random_fault_world(random, size)).digest;
  const std::uint64_t cluster = sim::run_fault_world(sim::random_cluster_world(random, size)).digest;
  const std::uint64_t hidden = sim::run_fault_world(sim::random_hidden_world(random, size)).digest;
  return mix64(alone ^ mix64(cluster ^ mix64(hidden)));
}

int simulate(SeedRange seeds, unsigned threads) {
  const SystemClock clock;
  const Nanos began = clock.now();
  const bool terminal = isatty(STDERR_FILENO) == 1;
  const auto seconds = [&] { return static_cast<double>(clock.now() - began) / kNanosPerSecond; };
  const std::uint64_t digest = run_seeds(
      seeds, threads, "make simulate SEEDS=1 FIRST=",
      [](std::uint64_t seed) { return mix64(run_core_world(seed) ^ mix64(run_faults(seed))); },
      [&](std::uint64_t done) {
        if (terminal && done % 20 == 0)
          fmt::print(stderr, "\r{} of {} seeds · {:.0f} s", done, seeds.count, seconds());
      });
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  fmt::print("{} seeds from {} on kept every promise, in {:.1f} s; digest of all they did: {:016x}\n",
             seeds.count, seeds.first, seconds(), digest);
  return 0;
}

}  // namespace
}  // namespace loci

int main(int argc, char** argv) {
  CLI::App app("Random worlds around the core, until one breaks a promise");
  loci::SeedRange seeds{.first = 1, .count = 1000};
  unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  app.add_option("--seeds", seeds.count, "how many")->capture_default_str();
  app.add_option("--first", seeds.first, "the first")->capture_default_str();
  app.add_option("--threads", threads)->check(CLI::Range(1, 256))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return loci::simulate(seeds, threads);
}
