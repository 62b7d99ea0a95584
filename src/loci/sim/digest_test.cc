// SPDX-License-Identifier: Apache-2.0
// The same scenario and seed give the same report to the byte and the same digest of all that the core put
// out, whatever compiler flags, sanitizers and machine: runs that touch every part of the simulator have
// their digests written here, and every build is compared with them.
//
// A change of what the core decides or the simulator models changes them. Then look whether the change meant
// it, and write down what the failing test prints. If only some builds fail, something is not deterministic.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "loci/base/random.h"
#include "loci/sim/report.h"
#include "loci/sim/scenario.h"

namespace loci::sim {
namespace {

struct Pinned {
  const char* name;
  const char* scenario;
  std::uint64_t core;    // WorldReport::digest
  std::uint64_t report;  // of the report's text
};

constexpr std::array kPinned = {
    Pinned{
        "tiers",
        R"({"model":"llama2-7b","machine":"a100-40g","seed":3,"memory":{"device_gb":3,"host_gb":4,"disk_gb":20},
               "engine":{"eviction":"value","running":8,"deadline_s":60},
               "workload":{"conversations":60,"rate":0.5,"think_s":20},"warm_up":20})",
        0x1971f1ca6d7e6850, 0x730820272dcfb037},
    Pinned{
        "hidden states",
        R"({"model":"llama2-7b","machine":"a100-40g","seed":4,"memory":{"device_gb":6,"host_gb":2,"disk_gb":30},
               "links":{"disk_read_gb_s":6.9},"engine":{"hidden":"auto","running":8,"eviction":"lru"},
               "workload":{"kind":"sharegpt4-hcache","conversations":40,"rate":0.3,"think_s":10},"steady":true})",
        0x7504756453bc5713, 0xa4cf29dd0f66a768},
    Pinned{
        "truncation by a paper's policies",
        R"({"model":"llama2-13b","machine":"a100-80g","seed":5,"memory":{"device_gb":8,"host_gb":8,"disk_gb":40},
               "engine":{"context_tokens":2048,"overflow":"truncate","baseline":"attentionstore","running":8},
               "workload":{"kind":"sharegpt-attentionstore","conversations":40,"rate":0.5,"think_s":5,"tokens_max":0}})",
        0xf5c4be9856d4a21a, 0x03b39e8e469ed446},
    Pinned{"instances that die",
           R"({"model":"llama2-13b","machine":"h800","seed":6,"memory":{"device_gb":8,"host_gb":8},
               "cluster":{"instances":3,"fronts":2,"prefills":1},
               "faults":{"restarts_s":40,"away_s":5,"disk_lost":0.5,"well_s":20,"ill_s":2,"slow":4,"fails":0.1},
               "workload":{"kind":"loogle","conversations":60,"rate":1}})",
           0x68b2594365284bae, 0xe3c1bd745a0ed95b},
};

std::uint64_t digest_of(std::string_view text) {
  std::uint64_t digest = text.size();
  for (const char c : text) digest = mix64(digest ^ static_cast<unsigned char>(c));
  return digest;
}

TEST(Digest, IsThatOfEveryBuild) {
  for (const Pinned& pinned : kPinned) {
    const auto json = parse_scenario_text(pinned.scenario, pinned.name);
    ASSERT_TRUE(json.ok()) << json.status().message();
    const Result<Scenario> scenario = parse_scenario(*json, pinned.name);
    ASSERT_TRUE(scenario.ok()) << scenario.status().message();
    const Result<Trace> trace = load_trace(*scenario);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    const Result<WorldReport> report = run_world(*trace, scenario->world);
    ASSERT_TRUE(report.ok()) << report.status().message();
    ASSERT_GE(report->requests.size(), 100u) << pinned.name;
    const std::uint64_t text = digest_of(report_json(*trace, scenario->world, *report).dump());
    EXPECT_TRUE(report->digest == pinned.core && text == pinned.report)
        << fmt::format("{}: now 0x{:016x}, 0x{:016x}", pinned.name, report->digest, text);
  }
}

}  // namespace
}  // namespace loci::sim
