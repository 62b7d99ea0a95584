// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/scenario_baseline.h"

#include <fmt/format.h>

#include "loci/sim/json_text.h"

namespace loci::sim {
namespace {

void refuse_other_policies(const ScenarioBaseline& baseline, const PolicySet& found, Fields& engine) {
  const PolicySet& set = baseline.set.policies;
  const auto expect = [&](const char* field, const auto& one, const auto& of_set) {
    if (one == of_set) return;
    engine.wrong(field, fmt::format("{}, which {} has, or nothing", of_set, baseline.name),
                 shown(engine.raw(field)));
  };
  expect("eviction", found.eviction, set.eviction);
  expect("admission", found.admission, set.admission);
  expect("admission_looks", found.admission_looks, set.admission_looks);
  expect("restore", found.restore, set.restore);
  expect("reuse", found.reuse, set.reuse);
  expect("save", found.save, set.save);
  expect("swap_out_percent", found.swap_out_percent, set.swap_out_percent);
  expect("swap_chunk_tokens", found.swap_chunk_tokens, set.swap_chunk_tokens);
  expect("decode_reserve_percent", found.decode_reserve_percent, set.decode_reserve_percent);
  expect("lookahead_requests", found.lookahead_requests, set.lookahead_requests);
  expect("prefetch_percent", found.prefetch_percent, set.prefetch_percent);
  expect("preload", found.preload, set.preload);
  expect("preload_retries", found.preload_retries, set.preload_retries);
  expect("batch", found.batch, set.batch);
}

}  // namespace

std::optional<ScenarioBaseline> read_policies(Fields& engine, PolicySet& policies) {
  std::optional<ScenarioBaseline> baseline;
  std::string name;
  engine.read("baseline", name);
  if (!name.empty()) {
    const Result<Baseline> found = find_baseline(name);
    if (!found.ok()) {
      engine.wrong("baseline", "one of " + joined(kBaselines), name);
      return std::nullopt;
    }
    baseline = {name, *found};
    policies = found->policies;
  }
  engine.read("eviction", policies.eviction, {"lru", "fifo", "random", "retention", "lookahead", "value"});
  engine.read("admission", policies.admission, {"fcfs", "fpf", "relaxed-fpf"});
  engine.read("admission_looks", policies.admission_looks, 1, 1u << 20);
  engine.read("restore", policies.restore,
              {"kv", "recompute", "pensieve", "token-wise", "token-wise-rounded", "naive-hybrid", "hidden",
               "hcache", "auto"});
  engine.read("reuse", policies.reuse);
  engine.read("save", policies.save, {"through", "ahead", "off"});
  engine.read("swap_out_percent", policies.swap_out_percent, 0, 100);
  engine.read("swap_chunk_tokens", policies.swap_chunk_tokens, kBlockTokens, kSwapChunkTokensMax);
  if (const std::uint32_t chunk = policies.swap_chunk_tokens; chunk % kBlockTokens != 0)
    engine.wrong("swap_chunk_tokens",
                 fmt::format("a multiple of {} up to {}", kBlockTokens, kSwapChunkTokensMax),
                 std::to_string(chunk));
  engine.read("decode_reserve_percent", policies.decode_reserve_percent, 0, 90);
  engine.read("lookahead_requests", policies.lookahead_requests, 0, kLookaheadUnlimited);
  engine.read("prefetch_percent", policies.prefetch_percent, 0, 100);
  engine.read("preload", policies.preload, {"off", "buffer", "unbounded"});
  engine.read("preload_retries", policies.preload_retries, 0, kPreloadRetriesMax);
  engine.read("batch", policies.batch, {"unified", "split"});
  if (baseline) refuse_other_policies(*baseline, policies, engine);
  return baseline;
}

void refuse_contradictions(const ScenarioBaseline& baseline, const WorldOptions& world, Fields& scenario) {
  const auto& [name, set] = baseline;
  const auto refuse = [&](const char* part, const std::string& field, const std::string& expected) {
    scenario.wrong(fmt::format("{}.{}", part, field), expected, shown(scenario.raw(part).at(field)));
  };
  const auto refuse_tier = [&](const std::string& tier) {
    const bool by_bytes = scenario.raw("memory").contains(tier + "_gb");
    refuse("memory", tier + (by_bytes ? "_gb" : "_tokens"),
           fmt::format("nothing, since {} has no such tier", name));
  };
  const CoreGroup& group = world.core.groups.front();
  if (group.host_blocks > 0 && !set.host_tier) refuse_tier("host");
  if (group.disk_blocks > 0 && !set.disk_tier) refuse_tier("disk");
  if (world.core.pass_time != kNever)
    refuse("engine", "pass_time_ms", fmt::format("nothing, since {} limits no pass's time", name));
  if (world.stateless && set.policies.reuse)
    refuse("engine", "stateless", fmt::format("false, since {} reuses state", name));
  if ((world.overflow == Overflow::kTruncate) != set.truncates) {
    refuse("engine", "overflow",
           set.truncates ? fmt::format("truncate, which {} does", name)
                         : fmt::format("stop or cut, since {} truncates no history", name));
  }
  if (world.cluster.peers && world.cluster.instances > 0)
    refuse("cluster", "peers", fmt::format("false, since {} reads nothing from peers", name));
  if (world.cluster.prefills > 0)
    refuse("cluster", "prefills", fmt::format("0, since {} reads nothing from peers", name));
}

}  // namespace loci::sim
