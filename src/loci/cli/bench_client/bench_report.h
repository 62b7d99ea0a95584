// SPDX-License-Identifier: Apache-2.0
// What a run's records mean: figures, a table, JSON. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "loci/cli/bench_client/bench_run.h"
#include "loci/cli/bench_client/objective.h"
#include "loci/cli/bench_client/samples.h"

namespace loci {

// Of a conversation's turns, which.
enum class TurnKind : std::uint8_t { kFirst, kLater, kAll };

// One figure of each request (or each gap), for a table's row.
struct Figure {
  const char* key;    // in JSON
  const char* label;  // in the table
};
inline constexpr Figure kTtft{"ttft_ms", "TTFT, ms"};
inline constexpr Figure kTbt{"tbt_ms", "TBT, ms"};
inline constexpr Figure kLatency{"latency_ms", "latency, ms"};
inline constexpr Figure kNormalised{"latency_ms_per_output_token", "latency/token, ms"};
inline constexpr Figure kPromptTokens{"prompt_tokens", "prompt tokens"};
inline constexpr Figure kCachedTokens{"cached_tokens", "cached tokens"};
inline constexpr Figure kOutputTokens{"output_tokens", "output tokens"};
inline constexpr const Figure* kFigures[] = {&kTtft,         &kTbt,          &kLatency,     &kNormalised,
                                             &kPromptTokens, &kCachedTokens, &kOutputTokens};

// The samples of a figure in the turns that have a whole reply. One value a request; of TBT one a gap.
std::vector<double> samples_of(const ServerRun& run, const Figure& figure, TurnKind kind);
// The same with their conversations.
std::vector<ClusteredSample> clustered_samples_of(const ServerRun& run, const Figure& figure, TurnKind kind);
// Milliseconds between when each turn was due and when it was sent.
std::vector<double> lateness_of(const ServerRun& run);

struct Throughput {
  std::uint64_t requests = 0;
  double seconds = 0;
  double requests_per_second = 0;
  double output_tokens_per_second = 0;
  double prompt_tokens_per_second = 0;
};
Throughput throughput_of(const ServerRun& run);

// The turns that kept the objective, of all that there were to send.
struct Goodput {
  std::uint64_t good = 0;
  std::uint64_t of = 0;
  double share = 0;
  double requests_per_second = 0;
};
Goodput goodput_of(const ServerRun& run, const Objective& objective);

// Of two servers, second / first, by request; of throughput by round.
std::optional<PairedRatio> ratio_of(const BenchResult& result, const Figure& figure, TurnKind kind);
std::optional<PairedRatio> throughput_ratio(const BenchResult& result);

// What a reader must know to judge the figures; each is one sentence.
std::vector<std::string> remarks(const ServerRun& run, const BenchOptions& options);

// Figures of one server have 95 % intervals, by bootstrap over its conversations.
std::string format_report(const BenchResult& result, const BenchOptions& options, const Objective& objective);
// All figures, and every request's record. `options` go in as they are.
nlohmann::ordered_json report_json(const BenchResult& result, const BenchOptions& options,
                                   const Objective& objective, const nlohmann::ordered_json& workload);

}  // namespace loci
