// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "loci/base/units.h"
#include "loci/cli/bench_client/bench_report.h"

namespace loci {
namespace {

double ms(Nanos nanos) { return static_cast<double>(nanos) / kNanosPerMilli; }

bool counts(const TurnRecord& turn, TurnKind kind) {
  if (!turn.error.empty()) return false;
  return kind == TurnKind::kAll || (kind == TurnKind::kFirst) == (turn.id.turn == 0);
}

double mean_gap_ms(const TurnRecord& turn) {
  if (turn.gaps.empty()) return 0;
  Nanos sum = 0;
  for (const Nanos gap : turn.gaps) sum += gap;
  return ms(sum) / static_cast<double>(turn.gaps.size());
}

// Of TBT the request's mean. nullopt: the request has none.
std::optional<double> value_of(const TurnRecord& turn, const Figure& figure) {
  if (&figure == &kTtft) return ms(turn.first - turn.due);
  if (&figure == &kTbt) return turn.gaps.empty() ? std::nullopt : std::optional(mean_gap_ms(turn));
  if (&figure == &kLatency) return ms(turn.ended - turn.due);
  if (&figure == &kPromptTokens) return static_cast<double>(turn.prompt_tokens);
  if (&figure == &kCachedTokens) return static_cast<double>(turn.cached_tokens);
  if (&figure == &kOutputTokens) return static_cast<double>(turn.output_tokens);
  if (turn.output_tokens == 0) return std::nullopt;
  return ms(turn.ended - turn.due) / static_cast<double>(turn.output_tokens);
}

using ByTurn = std::map<std::pair<std::uint32_t, std::uint32_t>, const TurnRecord*>;

ByTurn by_turn(const ServerRun& run, TurnKind kind) {
  ByTurn out;
  for (const TurnRecord& turn : run.turns) {
    if (counts(turn, kind)) out.emplace(std::pair(turn.id.conversation, turn.id.turn), &turn);
  }
  return out;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

}  // namespace

std::vector<ClusteredSample> clustered_samples_of(const ServerRun& run, const Figure& figure, TurnKind kind) {
  std::vector<ClusteredSample> out;
  for (const TurnRecord& turn : run.turns) {
    if (!counts(turn, kind)) continue;
    if (&figure == &kTbt) {
      for (const Nanos gap : turn.gaps) out.push_back({ms(gap), turn.id.conversation});
    } else if (const std::optional<double> value = value_of(turn, figure)) {
      out.push_back({*value, turn.id.conversation});
    }
  }
  return out;
}

std::vector<double> samples_of(const ServerRun& run, const Figure& figure, TurnKind kind) {
  std::vector<double> out;
  for (const ClusteredSample& sample : clustered_samples_of(run, figure, kind)) out.push_back(sample.value);
  return out;
}

std::vector<double> lateness_of(const ServerRun& run) {
  std::vector<double> out;
  for (const TurnRecord& turn : run.turns) {
    if (turn.sent > 0) out.push_back(ms(turn.sent - turn.due));
  }
  return out;
}

Goodput goodput_of(const ServerRun& run, const Objective& objective) {
  Goodput out{.of = run.turns.size() + run.skipped};
  const auto within = [](const std::optional<double>& value, const std::optional<double>& most) {
    return !most || !value || *value <= *most;
  };
  for (const TurnRecord& turn : run.turns) {
    if (!turn.error.empty()) continue;
    out.good += within(value_of(turn, kTtft), objective.ttft_ms) &&
                within(value_of(turn, kTbt), objective.tbt_ms) &&
                within(value_of(turn, kLatency), objective.latency_ms);
  }
  if (out.of > 0) out.share = static_cast<double>(out.good) / static_cast<double>(out.of);
  const double seconds = static_cast<double>(run.busy) / kNanosPerSecond;
  if (seconds > 0) out.requests_per_second = static_cast<double>(out.good) / seconds;
  return out;
}

Throughput throughput_of(const ServerRun& run) {
  Throughput out;
  out.seconds = static_cast<double>(run.busy) / kNanosPerSecond;
  out.requests = samples_of(run, kLatency, TurnKind::kAll).size();
  if (out.seconds <= 0) return out;
  out.requests_per_second = static_cast<double>(out.requests) / out.seconds;
  out.output_tokens_per_second = sum_of(samples_of(run, kOutputTokens, TurnKind::kAll)) / out.seconds;
  out.prompt_tokens_per_second = sum_of(samples_of(run, kPromptTokens, TurnKind::kAll)) / out.seconds;
  return out;
}

std::optional<PairedRatio> ratio_of(const BenchResult& result, const Figure& figure, TurnKind kind) {
  const ByTurn first = by_turn(result.servers.at(0), kind);
  const ByTurn second = by_turn(result.servers.at(1), kind);
  std::vector<std::pair<double, double>> pairs;
  for (const auto& [id, turn] : first) {
    const auto other = second.find(id);
    if (other == second.end()) continue;
    const std::optional<double> a = value_of(*turn, figure);
    const std::optional<double> b = value_of(*other->second, figure);
    if (a && b) pairs.emplace_back(*a, *b);
  }
  return paired_ratio(pairs);
}

std::optional<PairedRatio> throughput_ratio(const BenchResult& result) {
  const std::vector<Nanos>& first = result.servers.at(0).rounds;
  const std::vector<Nanos>& second = result.servers.at(1).rounds;
  std::vector<std::pair<double, double>> pairs;
  // As much is done in less time: the times the other way around.
  for (std::size_t i = 0; i < std::min(first.size(), second.size()); ++i) {
    pairs.emplace_back(static_cast<double>(second[i]), static_cast<double>(first[i]));
  }
  return paired_ratio(pairs);
}

std::vector<std::string> remarks(const ServerRun& run, const BenchOptions& options) {
  const RequestOptions& request = options.request;
  std::vector<std::string> out;
  std::uint64_t failed = 0, uncounted = 0, odd = 0, silent = 0, pieces = 0, tokens = 0;
  const std::string* error = nullptr;
  for (const TurnRecord& turn : run.turns) {
    if (!turn.error.empty()) {
      ++failed;
      if (error == nullptr) error = &turn.error;
      continue;
    }
    uncounted += turn.counts_known ? 0 : 1;
    const std::uint32_t asked = turn.asked_tokens > 0 ? turn.asked_tokens : request.max_tokens;
    odd += request.ignore_eos && turn.output_tokens != asked ? 1 : 0;
    silent += turn.first == turn.ended ? 1 : 0;
    pieces += turn.gaps.size() + 1;
    tokens += turn.output_tokens;
  }
  if (failed > 0) {
    out.push_back(
        fmt::format("{} requests failed and {} turns behind them were not sent; the first error: {}",
                    format_count(failed), format_count(run.skipped), *error));
  }
  if (uncounted > 0) {
    out.push_back(
        fmt::format("{} replies came without usage: their output tokens are pieces of text, and "
                    "their prompt tokens count as none",
                    format_count(uncounted)));
  }
  if (odd > 0) {
    out.push_back(
        fmt::format("{} replies were not as long as was asked: the server does not heed ignore_eos, or its "
                    "context was full",
                    format_count(odd)));
  }
  if (silent > 0) {
    out.push_back(
        fmt::format("{} replies had no text: their TTFT is their whole time", format_count(silent)));
  }
  if (10 * pieces < 9 * tokens) {
    out.push_back(fmt::format("a piece of a stream carries {:.1f} tokens: TBT is the time between pieces",
                              static_cast<double>(tokens) / static_cast<double>(pieces)));
  }
  const double prompts = sum_of(samples_of(run, kPromptTokens, TurnKind::kFirst));
  const double cached = sum_of(samples_of(run, kCachedTokens, TurnKind::kFirst));
  // A chat template's own text is common to all.
  if (cached > 0.5 * prompts) {
    // Most traces say what their prompts have in common, and the seed changes nothing in it.
    const bool is_trace = !options.schedule.times.empty();
    out.push_back(fmt::format(
        "{:.0f} % of the first turns' prompts were cached: {}", 100 * cached / prompts,
        is_trace ? "the trace's prompts have text in common, or the server has seen them before (then start "
                   "it without that state)"
                 : "the server has seen this text before (another --seed makes another)"));
  }
  return out;
}

}  // namespace loci
