// SPDX-License-Identifier: Apache-2.0
// What a plan costs: the prices of blocks, or of places, and the search, for contexts of `range` tokens.
#include <benchmark/benchmark.h>

#include <array>

#include "loci/compute/backend.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/restore_plan.h"

namespace loci {
namespace {

// The blocks lie in turn in so many tiers: the disk, host memory, the store that servers share.
void plan_for(benchmark::State& state, std::uint32_t tiers) {
  constexpr std::array kTiersInTurn = {Tier::kDisk, Tier::kHost, Tier::kShared};
  CostCurves curves;
  curves.attention.clear();
  for (int i = 0; i < 16; ++i) curves.attention.push_back(Nanos{900} << i);
  const CostModel costs(curves);
  const auto count = static_cast<std::uint32_t>(state.range(0)) / kBlockTokens;
  for (auto _ : state) {
    RestoreProblem problem;
    problem.blocks.reserve(count);
    for (std::uint32_t i = 0; i < count; ++i) {
      const Tier from = kTiersInTurn[i % tiers];
      problem.blocks.push_back({.number = i,
                                .from = from,
                                .compute = costs.compute(i * kBlockTokens, kBlockTokens),
                                .load = from == Tier::kHost ? 400'000 : 20'000'000,
                                .charge = 100'000});
    }
    problem.layers = 30;
    problem.computed_anyway = problem.first_reading = 100'000'000;
    benchmark::DoNotOptimize(plan_restore(problem, RestoreRule::kAuto));
  }
}

// Behind a window: each block's end is a place, and the disk has all state that is seen there.
void places(benchmark::State& state) {
  CostCurves curves;
  curves.attention.clear();
  for (int i = 0; i < 16; ++i) curves.attention.push_back(Nanos{900} << i);
  const CostModel costs(curves);
  const auto tokens = static_cast<std::uint32_t>(state.range(0)), count = tokens / kBlockTokens;
  for (auto _ : state) {
    std::vector<PlaceNeeds> needs(count);
    for (std::uint32_t i = 0; i < count; ++i)
      needs[i].bytes[static_cast<std::size_t>(Tier::kDisk)] = (count - 1 - i) * std::uint64_t{128 << 10};
    std::vector<RestoreProblem> problems;
    for (const std::size_t i : places_to_price(needs)) {
      const auto rows = static_cast<std::uint32_t>(i + 1) * kBlockTokens;
      const Nanos compute = costs.compute(tokens - rows, rows);
      problems.push_back({.computed_anyway = compute, .first_reading = compute, .layers = 26});
      problems.back().blocks.push_back({.load = static_cast<Nanos>(needs[i].bytes[2]), .charge = 100'000});
    }
    benchmark::DoNotOptimize(choose_place(problems, RestoreRule::kAuto));
  }
}

void one_tier(benchmark::State& state) { plan_for(state, 1); }
void two_tiers(benchmark::State& state) { plan_for(state, 2); }
void three_tiers(benchmark::State& state) { plan_for(state, 3); }
BENCHMARK(places)->Range(1 << 10, 1 << 17);
BENCHMARK(one_tier)->Range(1 << 10, 1 << 15);
BENCHMARK(two_tiers)->Range(1 << 10, 1 << 15);
BENCHMARK(three_tiers)->Range(1 << 10, 1 << 15);

}  // namespace
}  // namespace loci

BENCHMARK_MAIN();
