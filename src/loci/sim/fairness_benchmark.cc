// SPDX-License-Identifier: Apache-2.0
// How much heavy clients delay others on the arena's trace, with fair shares and with first come, first
// served. Times are virtual, the counters are the result: the others' p50, p90 and p99 time to the first
// token in ms (-1: refused).
#include <benchmark/benchmark.h>

#include "loci/sim/client_load.h"

namespace loci {
namespace {

void heavy_client(benchmark::State& state) {
  const auto arena = arena_clients();
  const std::vector<LoadRequest> alone = arena ? *arena : drawn_clients(1);
  const auto times = static_cast<std::uint32_t>(state.range(0));
  const std::vector<LoadRequest> requests = times == 0 ? alone : with_heavy_client(alone, times);
  ClientLoadOptions options = default_load_options();
  options.one_tenant = state.range(1) == 0;
  LoadReport report;
  for (auto _ : state) report = run_load(requests, options);
  state.SetLabel(arena ? "arena-clients" : "drawn clients");
  for (const std::uint32_t percent : {50u, 90u, 99u}) {
    const Nanos time = percentile_of_others(requests, report, percent);
    state.counters["p" + std::to_string(percent) + "_ms"] =
        time == kNever ? -1 : static_cast<double>(time) / 1e6;
  }
  state.counters["suspensions"] = static_cast<double>(report.suspensions);
}
BENCHMARK(heavy_client)
    ->ArgNames({"times", "fair"})
    ->ArgsProduct({{0, 1, 10, 30}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace loci

BENCHMARK_MAIN();
