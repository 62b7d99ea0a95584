// SPDX-License-Identifier: Apache-2.0
// What a prompt of 4,000 tokens (16 KiB of text, 64 chunks of 256 bytes) costs in a front's memory of a
// million entries, and in its copies of what eight instances published: aim 40 us for a match or an
// insertion.
#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "loci/policy/routing/held_prompts.h"
#include "loci/policy/routing/prompt_tree.h"

namespace loci {
namespace {

constexpr std::size_t kChunks = 64, kPrompts = 16'384;

struct Prompts {
  std::mt19937_64 random{7};
  std::vector<std::vector<std::uint64_t>> keys;
  PromptTree tree{1'000'000, 3600 * kNanosPerSecond};
  Prompts() : keys(kPrompts, std::vector<std::uint64_t>(kChunks)) {
    for (auto& prompt : keys) {
      for (std::uint64_t& key : prompt) key = random();
      tree.insert(prompt, static_cast<std::uint32_t>(random() % 8), 0);
    }
  }
};

void match(benchmark::State& state) {
  Prompts prompts;
  const std::vector<std::uint32_t> instances = {0, 1, 2, 3, 4, 5, 6, 7};
  std::size_t at = 0;
  for (auto _ : state)
    benchmark::DoNotOptimize(prompts.tree.match(prompts.keys[at++ * 97 % kPrompts], instances, 1));
}
BENCHMARK(match)->Unit(benchmark::kMicrosecond);

void insert(benchmark::State& state) {
  Prompts prompts;
  std::size_t at = 0;
  for (auto _ : state) prompts.tree.insert(prompts.keys[at++ * 97 % kPrompts], 3, 1);
}
BENCHMARK(insert)->Unit(benchmark::kMicrosecond);

// A prompt that every one of so many instances was sent: a system prompt that all tenants' requests begin
// with.
void insert_of_many_holders(benchmark::State& state) {
  Prompts prompts;
  const auto holders = static_cast<std::uint32_t>(state.range(0));
  for (std::uint32_t one = 0; one < holders; ++one) prompts.tree.insert(prompts.keys[0], one, 0);
  std::uint32_t at = 0;
  for (auto _ : state) prompts.tree.insert(prompts.keys[0], at++ % holders, 1);
}
BENCHMARK(insert_of_many_holders)->Arg(8)->Arg(1'000)->Unit(benchmark::kMicrosecond);

void match_of_many_holders(benchmark::State& state) {
  Prompts prompts;
  std::vector<std::uint32_t> holders(static_cast<std::size_t>(state.range(0)));
  for (std::uint32_t one = 0; one < holders.size(); ++one) {
    holders[one] = one;
    prompts.tree.insert(prompts.keys[0], one, 0);
  }
  for (auto _ : state) benchmark::DoNotOptimize(prompts.tree.match(prompts.keys[0], holders, 1));
}
BENCHMARK(match_of_many_holders)->Arg(8)->Arg(1'000)->Unit(benchmark::kMicrosecond);

// What eight instances published: a front's index of them.
struct Published {
  std::mt19937_64 random{7};
  std::vector<std::vector<std::uint64_t>> names;
  std::vector<HeldPrompts> held{8, HeldPrompts(1 << 18, 7)};
  Published() : names(kPrompts, std::vector<std::uint64_t>(kChunks)) {
    for (auto& prompt : names) {
      HeldPrompts& one = held[random() % held.size()];
      for (std::uint64_t& name : prompt) {
        name = random() & ~std::uint64_t{3};
        one.set(name, Tier::kHost);
      }
    }
  }
};

void match_published(benchmark::State& state) {
  Published published;
  std::size_t at = 0;
  for (auto _ : state) {
    for (const HeldPrompts& one : published.held)
      benchmark::DoNotOptimize(one.match(published.names[at * 97 % kPrompts], 0, 1'024));
    ++at;
  }
}
BENCHMARK(match_published)->Unit(benchmark::kMicrosecond);

void insert_published(benchmark::State& state) {
  Published published;
  std::size_t at = 0;
  for (auto _ : state) {
    const auto& prompt = published.names[at++ * 97 % kPrompts];
    for (const std::uint64_t name : prompt) published.held[at % 8].set(name, Tier::kDevice);
    state.PauseTiming();
    for (const std::uint64_t name : prompt) published.held[at % 8].set(name, std::nullopt);
    state.ResumeTiming();
  }
}
BENCHMARK(insert_published)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace loci
