// SPDX-License-Identifier: Apache-2.0
// Which policies are best: eviction orders and admission orders over traces, with too little memory in every
// tier, in virtual time. Prints the tables of docs/decisions/eviction.md.
//
//   policy_benchmark [chat|mooncake|agent ...]
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "loci/policy/admission_order.h"
#include "loci/policy/eviction.h"
#include "loci/sim/tier_load.h"
#include "loci/sim/tier_traces.h"

namespace loci {
namespace {

// What computing and moving state costs somewhere; `token_bytes`: the state of one token.
struct Machine {
  const char* name;
  CostCurves curves;
  std::uint64_t token_bytes;
};

// The default model (135M, 4 bit) on two cores: 2,017 tokens a second in prompts of 512, 863 in prompts of
// 4,096 (docs/performance.md).
Machine two_cores() {
  CostCurves curves;
  curves.token = 400'000;
  curves.attention = {370};
  curves.pass = 3'400'000;
  curves.host_load = curves.host_save = {1'000, 5'000'000'000};
  curves.disk_read = {100'000, 1'000'000'000};
  curves.disk_write = {100'000, 500'000'000};
  return {"135M on two cores", curves, 23'040};
}

// LLaMA-65B on four A100 (AttentionStore §2.3): 2K tokens take 360 ms to compute, and 192 ms to load from
// host memory; disks give less than 5 GB/s.
Machine four_gpus() {
  CostCurves curves;
  curves.token = 160'000;
  curves.attention = {16};
  curves.pass = 40'000'000;
  curves.host_load = curves.host_save = {20'000, 26'000'000'000};
  curves.disk_read = {100'000, 5'000'000'000};
  curves.disk_write = {100'000, 3'000'000'000};
  return {"65B on four A100", curves, 2'500'000};
}

// Capacities, in percent of the blocks that the whole trace leaves.
struct Capacity {
  std::uint32_t device, host, disk;
};

constexpr std::uint32_t kBatchTokens = 512, kScaledBatchLeast = 64;

std::uint32_t batch_of(std::uint32_t scale) { return std::max(kBatchTokens / scale, kScaledBatchLeast); }

// A pass of one row is to a full one as it was.
CostCurves costs_of(const Machine& machine, std::uint32_t scale) {
  CostCurves costs = scaled(machine.curves, scale);
  costs.pass = machine.curves.pass * batch_of(scale) * scale / kBatchTokens;
  return costs;
}

CoreConfig config_of(const Machine& machine, std::uint32_t scale, const TraceSize& size,
                     const Capacity& capacity) {
  const auto share = [&](std::uint32_t percent) {
    return static_cast<std::uint32_t>(size.distinct_blocks * percent / 100);
  };
  CoreConfig config;
  // At least two of the longest requests.
  const std::uint32_t least = 2 * (size.longest_tokens / kBlockTokens + 2);
  config.groups = {{.block_count = std::max(share(capacity.device), least),
                    .host_blocks = share(capacity.host),
                    .disk_blocks = share(capacity.disk),
                    .block_bytes = machine.token_bytes * scale * kBlockTokens}};
  config.layers = 30;
  config.context_tokens = size.longest_tokens + kBlockTokens;
  config.max_batch_tokens = batch_of(scale);
  config.max_running = 16;
  config.max_queued = 1u << 20;
  config.hole_records = config.groups[0].disk_blocks;
  config.costs = costs_of(machine, scale);
  return config;
}

void print_row(const char* eviction, const char* admission, const TierLoadReport& report) {
  const double prompt = static_cast<double>(report.prompt_tokens);
  const auto percent = [prompt](std::uint64_t tokens) { return 100 * static_cast<double>(tokens) / prompt; };
  const std::uint64_t lost =
      report.reusable_tokens - std::min(report.reusable_tokens, report.cached_tokens());
  std::printf("| %-9s | %-11s | %5.1f | %5.1f | %5.1f | %5.1f | %8.1f | %8.2f | %8.2f |\n", eviction,
              admission, percent(report.from[0]), percent(report.from[1]), percent(report.from[2]),
              percent(report.cached_tokens()), static_cast<double>(lost) / 1e3,
              static_cast<double>(report.mean_first_token()) / 1e9,
              static_cast<double>(report.first_token_percentile(90)) / 1e9);
  std::fflush(stdout);
}

// A trace, and how short of memory and how busy the machine is with it.
struct Setting {
  ScaledTrace source;
  bool think_stretches = true;  // with the arrivals
  Capacity capacity;
};

// `load`: what computing takes that no memory saves, over the time in which requests come.
Trace at_load(const Setting& setting, const TraceSize& size, double load) {
  const double wanted = static_cast<double>(size.compute) / load;
  if (setting.think_stretches)
    return stretched(setting.source.trace, wanted / static_cast<double>(size.lasts));
  Trace trace = setting.source.trace;
  const double times = wanted / static_cast<double>(trace.sessions.back().at);
  for (TraceSession& session : trace.sessions)
    session.at = static_cast<Nanos>(static_cast<double>(session.at) * times);
  return trace;
}

void run_table(const Machine& machine, const Setting& setting, double load) {
  const std::uint32_t scale = setting.source.scale;
  const Capacity& capacity = setting.capacity;
  const TraceSize size = size_of(setting.source.trace, CostModel(costs_of(machine, scale)));
  const Trace trace = at_load(setting, size, load);
  const CoreConfig base = config_of(machine, scale, size, capacity);
  std::printf(
      "\n%s, %s: %llu requests, load %.2f; device, host and disk hold %u, %u and %u %% of %llu blocks; at "
      "most "
      "%.1f %% of prompt tokens can be reused\n\n",
      trace.name.c_str(), machine.name, static_cast<unsigned long long>(size.requests), load, capacity.device,
      capacity.host, capacity.disk, static_cast<unsigned long long>(size.distinct_blocks),
      100 * static_cast<double>(size.reusable_tokens) / static_cast<double>(size.prompt_tokens));
  std::printf(
      "| eviction | admission | device %% | host %% | disk %% | reused %% | computed again, k | TTFT mean s "
      "| p90 s "
      "|\n|---|---|---|---|---|---|---|---|---|\n");
  const auto run = [&](std::string_view eviction, std::string_view admission) {
    CoreConfig config = base;
    config.eviction = eviction;
    config.admission = admission;
    print_row(config.eviction.c_str(), config.admission.c_str(), run_tier_load(trace, config));
  };
  for (const std::string_view eviction : kEvictionPolicies) run(eviction, "fcfs");
  for (const std::string_view eviction : {"lru", "lookahead", "value"}) {
    run(eviction, "fpf");
    run(eviction, "relaxed-fpf");
  }
}

int run(const std::vector<std::string>& wanted) {
  const auto is_wanted = [&](const char* name) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
  };
  std::vector<Setting> settings;
  if (is_wanted("chat")) {
    if (auto trace = chat_trace(300, 120 * kNanosPerSecond, 1))
      settings.push_back({std::move(*trace), false, {.device = 4, .host = 12, .disk = 40}});
  }
  if (is_wanted("mooncake")) {
    if (auto trace = mooncake_trace(2000))
      settings.push_back({std::move(*trace), true, {.device = 4, .host = 12, .disk = 40}});
  }
  if (is_wanted("agent")) {
    if (auto trace = agent_trace(60, 15, 1))
      settings.push_back({std::move(*trace), true, {.device = 6, .host = 20, .disk = 60}});
  }
  if (settings.empty()) {
    std::fprintf(
        stderr,
        "policy_benchmark: no trace (expected $LOCI_SHARED_DATA or ../shared/data, and of chat, mooncake, "
        "agent)\n");
    return 1;
  }
  for (const Machine& machine : {two_cores(), four_gpus()}) {
    for (const Setting& setting : settings) run_table(machine, setting, 0.7);
  }
  return 0;
}

}  // namespace
}  // namespace loci

int main(int argc, char** argv) { return loci::run({argv + 1, argv + argc}); }
