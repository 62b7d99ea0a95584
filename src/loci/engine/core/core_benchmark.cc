// SPDX-License-Identifier: Apache-2.0
// What a step costs: decodes alone, and admission of a prompt that the index knows.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_events_testing.h"

namespace loci {
namespace {

CoreConfig config_of(std::uint32_t blocks) {
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = blocks}};
  config.layers = 30;
  config.context_tokens = 1 << 20;
  config.max_batch_tokens = 8192;
  return config;
}

// One step that ends a pass of `batch` decodes and plans the next; contexts of `context` tokens.
void step_decodes(benchmark::State& state) {
  const auto batch = static_cast<std::uint32_t>(state.range(0));
  const auto context = static_cast<std::size_t>(state.range(1));
  Core core = Core::make(config_of(200'000)).value();
  Plan plan;
  Nanos now = 0;
  for (std::uint32_t i = 1; i <= batch; ++i) {
    Plan next = core.step(now, Arrival{RequestId(i), "g", tokens_of(i, context), 1u << 30, 0, {}, kNever});
    if (next.pass) plan = std::move(next);
  }
  while (core.stats().running < batch || plan.spans.size() < batch ||
         plan.pass->spans[0].tokens.size() != 1) {
    plan = core.step(++now, pass_done(plan));
  }
  for (auto _ : state) {
    const PassDone event = pass_done(plan);
    plan = core.step(++now, event);
  }
  if (plan.spans.size() != batch) state.SkipWithError("the batch has changed");
}
// (Contexts grow by one token a step: few enough steps that they stay about as long.)
BENCHMARK(step_decodes)->Iterations(2000)->Args({1, 500})->Args({8, 500})->Args({8, 8000})->Args({64, 500});

// The same with a pass ahead: the step ends the first of two passes in flight and plans the one behind the
// second.
void step_decodes_ahead(benchmark::State& state) {
  const auto batch = static_cast<std::uint32_t>(state.range(0));
  CoreConfig config = config_of(200'000);
  config.passes_ahead = 1;
  Core core = Core::make(config).value();
  std::deque<Plan> flights;
  Nanos now = 0;
  const auto step = [&](const Event& event) {
    Plan plan = core.step(++now, event);
    if (plan.pass) flights.push_back(std::move(plan));
  };
  const auto end_first = [&] {
    const PassDone event = pass_done(flights.front());
    flights.pop_front();
    step(event);
  };
  for (std::uint32_t i = 1; i <= batch; ++i) {
    step(Arrival{.request = RequestId(i),
                 .tenant = "g",
                 .prompt = tokens_of(i, static_cast<std::size_t>(state.range(1))),
                 .max_new_tokens = 1u << 30,
                 .stop_tokens = {},
                 .dropped = {},
                 .follows = true});
  }
  for (std::uint32_t i = 0; i < 4 * batch + 8; ++i) {
    end_first();
    step(Tick{});
  }
  for (auto _ : state) end_first();
  if (flights.size() != 2 || flights.back().spans.size() != batch)
    state.SkipWithError("the batch has changed");
}
BENCHMARK(step_decodes_ahead)->Iterations(2000)->Args({1, 500})->Args({8, 500})->Args({64, 500});

// An arrival whose whole prompt but the end is in the index, and its end.
void admit_known_prompt(benchmark::State& state) {
  const auto tokens = static_cast<std::size_t>(state.range(0));
  Core core = Core::make(config_of(200'000)).value();
  const std::vector<TokenId> prompt = tokens_of(1, tokens);
  std::uint64_t id = 0;
  Nanos now = 0;
  const auto serve = [&] {
    Plan plan = core.step(++now, Arrival{RequestId(++id), "g", prompt, 1, 0, {}, kNever});
    while (plan.pass) plan = core.step(++now, pass_done(plan));
  };
  serve();
  for (auto _ : state) serve();
  state.counters["per_block"] =
      benchmark::Counter(static_cast<double>(tokens / kBlockTokens),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(admit_known_prompt)->Arg(512)->Arg(8000);

// A start: the disk's entries, in batches of a thousand, become blocks of the index.
void recover(benchmark::State& state) {
  constexpr std::uint32_t kDepth = 128;
  const auto count = static_cast<std::uint32_t>(state.range(0)) / kDepth * kDepth;
  CoreConfig config = config_of(1000);
  config.groups.front().disk_blocks = count;
  config.groups.front().block_bytes = 720 << 10;
  LeftOnDisk disk(config);
  for (std::uint32_t i = 0; i < count / kDepth; ++i)
    disk.add("g", tokens_of(i, kDepth * kBlockTokens), age_of(i));
  const std::vector<Recovered> events = disk.events(1024);
  for (auto _ : state) {
    Core core = Core::make(config).value();
    for (const Recovered& event : events) core.step(0, event);
    if (core.stats().recovered_total != count) state.SkipWithError("not all was taken over");
  }
  state.counters["per_entry"] =
      benchmark::Counter(static_cast<double>(count),
                         benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}
BENCHMARK(recover)->Unit(benchmark::kMillisecond)->Arg(100'000)->Arg(1'000'000);

}  // namespace
}  // namespace loci

BENCHMARK_MAIN();
