// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "loci/base/printable.h"
#include "loci/base/units.h"

namespace loci {
namespace {

using OrderedJson = nlohmann::ordered_json;

struct KindName {
  TurnKind kind;
  const char* key;
  const char* label;
};
constexpr std::array<KindName, 3> kKinds = {{{TurnKind::kFirst, "first_turns", "first turns"},
                                             {TurnKind::kLater, "later_turns", "later turns"},
                                             {TurnKind::kAll, "all_turns", "all turns"}}};

// Three significant digits or so, and thousands told apart.
std::string number(double value) {
  if (value >= 1000) return format_count(static_cast<std::uint64_t>(value + 0.5));
  return fmt::format("{:.{}f}", value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

// The figures of a table; of no samples there are none.
std::string of_samples(const Summary& summary, double Summary::* figure) {
  return summary.count == 0 ? "-" : number(summary.*figure);
}

std::string ratio_text(const std::optional<PairedRatio>& ratio) {
  if (!ratio) return "-";
  return fmt::format("{:.2f} ({:.2f} to {:.2f})", ratio->ratio, ratio->low, ratio->high);
}

std::string throughput_line(const ServerRun& run) {
  const Throughput rate = throughput_of(run);
  return fmt::format("{} replies in {:.2f} s: {} requests/s, {} output tokens/s, {} prompt tokens/s",
                     format_count(rate.requests), rate.seconds, number(rate.requests_per_second),
                     number(rate.output_tokens_per_second), number(rate.prompt_tokens_per_second));
}

std::string goodput_line(const ServerRun& run, const Objective& objective) {
  const Goodput goodput = goodput_of(run, objective);
  return fmt::format("goodput: {} of {} turns ({:.1f} %), {} requests/s, had {}\n",
                     format_count(goodput.good), format_count(goodput.of), 100 * goodput.share,
                     number(goodput.requests_per_second), describe(objective));
}

std::string lateness_line(const ServerRun& run) {
  const std::vector<double> late = lateness_of(run);
  const Summary s = summarise(late);
  return fmt::format(
      "turns were sent {} ms late on average, p99 {}, at most {}; times count from when a turn was due\n",
      number(s.mean), number(s.p99), number(late.empty() ? 0 : *std::ranges::max_element(late)));
}

std::size_t turns_of(const ServerRun& run, TurnKind kind) { return samples_of(run, kLatency, kind).size(); }

std::string interval_text(const std::optional<SummaryIntervals>& all, Interval SummaryIntervals::* one) {
  return all ? fmt::format("{} to {}", number((*all.*one).low), number((*all.*one).high)) : std::string("-");
}

std::optional<SummaryIntervals> intervals_of(const ServerRun& run, const Figure& figure, TurnKind kind) {
  return bootstrap(clustered_samples_of(run, figure, kind));
}

std::string one_table(const ServerRun& run) {
  std::string out;
  for (const KindName& kind : kKinds) {
    const std::size_t turns = turns_of(run, kind.kind);
    // The same as another part of the table.
    if (turns == 0 || (kind.kind == TurnKind::kAll && turns == turns_of(run, TurnKind::kFirst))) continue;
    out += fmt::format("\n{:<24}{:>10}{:>18}{:>10}{:>10}{:>18}{:>10}\n",
                       fmt::format("{} ({})", kind.label, format_count(turns)), "mean", "95 % interval",
                       "p50", "p90", "95 % interval", "p99");
    for (const Figure* figure : kFigures) {
      const Summary s = summarise(samples_of(run, *figure, kind.kind));
      const std::optional<SummaryIntervals> intervals = intervals_of(run, *figure, kind.kind);
      out += fmt::format("  {:<22}{:>10}{:>18}{:>10}{:>10}{:>18}{:>10}\n", figure->label,
                         of_samples(s, &Summary::mean), interval_text(intervals, &SummaryIntervals::mean),
                         of_samples(s, &Summary::p50), of_samples(s, &Summary::p90),
                         interval_text(intervals, &SummaryIntervals::p90), of_samples(s, &Summary::p99));
    }
  }
  return out;
}

std::string two_tables(const BenchResult& result) {
  std::string out;
  const ServerRun& a = result.servers[0];
  const ServerRun& b = result.servers[1];
  for (const KindName& kind : kKinds) {
    if (turns_of(a, kind.kind) == 0 && turns_of(b, kind.kind) == 0) continue;
    const std::string head = fmt::format("{} ({})", kind.label, format_count(turns_of(a, kind.kind)));
    out += fmt::format("\n{:<21}{:>10}{:>10}{:>10}   {:>11}{:>10}{:>10}   {}\n", head, "1st: mean", "p50",
                       "p90", "2nd: mean", "p50", "p90", "2nd / 1st");
    for (const Figure* figure : kFigures) {
      const Summary x = summarise(samples_of(a, *figure, kind.kind));
      const Summary y = summarise(samples_of(b, *figure, kind.kind));
      out += fmt::format("  {:<19}{:>11}{:>10}{:>10}   {:>11}{:>10}{:>10}   {}\n", figure->label,
                         of_samples(x, &Summary::mean), of_samples(x, &Summary::p50),
                         of_samples(x, &Summary::p90), of_samples(y, &Summary::mean),
                         of_samples(y, &Summary::p50), of_samples(y, &Summary::p90),
                         ratio_text(ratio_of(result, *figure, kind.kind)));
    }
  }
  return out;
}

OrderedJson summary_json(const Summary& s) {
  return {{"count", s.count}, {"mean", s.mean}, {"p50", s.p50}, {"p90", s.p90}, {"p99", s.p99}};
}

OrderedJson figure_json(const ServerRun& run, const Figure& figure, TurnKind kind) {
  OrderedJson out = summary_json(summarise(samples_of(run, figure, kind)));
  const std::optional<SummaryIntervals> intervals = intervals_of(run, figure, kind);
  if (!intervals) return out;
  const auto add = [&](const char* name, const Interval& one) {
    out["interval_95"][name] = {one.low, one.high};
  };
  add("mean", intervals->mean);
  add("p50", intervals->p50);
  add("p90", intervals->p90);
  add("p99", intervals->p99);
  return out;
}

OrderedJson turn_json(const TurnRecord& turn) {
  OrderedJson out = {{"conversation", turn.id.conversation},
                     {"turn", turn.id.turn},
                     {"due_ns", turn.due},
                     {"sent_ns", turn.sent},
                     {"first_ns", turn.first},
                     {"ended_ns", turn.ended},
                     {"prompt_tokens", turn.prompt_tokens},
                     {"cached_tokens", turn.cached_tokens},
                     {"output_tokens", turn.output_tokens}};
  if (!turn.error.empty()) out["error"] = turn.error;
  return out;
}

OrderedJson server_json(const ServerRun& run, const BenchOptions& options, const Objective& objective) {
  const Throughput rate = throughput_of(run);
  OrderedJson out = {{"url", run.url}, {"model", run.model}};
  out["requests"] = {
      {"completed", rate.requests}, {"failed", run.turns.size() - rate.requests}, {"skipped", run.skipped}};
  out["seconds"] = rate.seconds;
  out["throughput"] = {{"requests_per_second", rate.requests_per_second},
                       {"output_tokens_per_second", rate.output_tokens_per_second},
                       {"prompt_tokens_per_second", rate.prompt_tokens_per_second}};
  for (const KindName& kind : kKinds) {
    for (const Figure* figure : kFigures) {
      out[kind.key][figure->key] = figure_json(run, *figure, kind.kind);
    }
  }
  out["lateness_ms"] = summary_json(summarise(lateness_of(run)));
  if (objective.asks()) {
    const Goodput goodput = goodput_of(run, objective);
    out["goodput"] = {{"objective", describe(objective)},
                      {"good", goodput.good},
                      {"of", goodput.of},
                      {"share", goodput.share},
                      {"requests_per_second", goodput.requests_per_second}};
  }
  out["remarks"] = remarks(run, options);
  out["turns"] = OrderedJson::array();
  for (const TurnRecord& turn : run.turns) out["turns"].push_back(turn_json(turn));
  return out;
}

OrderedJson ratio_json(const std::optional<PairedRatio>& ratio) {
  if (!ratio) return nullptr;
  return {{"pairs", ratio->pairs}, {"ratio", ratio->ratio}, {"low", ratio->low}, {"high", ratio->high}};
}

}  // namespace

std::string format_report(const BenchResult& result, const BenchOptions& options,
                          const Objective& objective) {
  std::string out;
  const bool two = result.servers.size() == 2;
  for (std::size_t i = 0; i < result.servers.size(); ++i) {
    const ServerRun& run = result.servers[i];
    const char* which = !two ? "" : i == 0 ? "first server: " : "second server: ";
    // What a server says could act on a terminal.
    out += fmt::format("{}{}, model {}\n  {}\n", which, run.url, printable(run.model, LineEnds::kReplace),
                       throughput_line(run));
    if (objective.asks()) out += "  " + goodput_line(run, objective);
    if (options.schedule.is_open_loop()) out += "  " + lateness_line(run);
    for (const std::string& remark : remarks(run, options))
      out += "  note: " + printable(remark, LineEnds::kReplace) + "\n";
  }
  if (two) {
    out += fmt::format("throughput, second / first: {}; all ratios with a 95 % interval over pairs\n",
                       ratio_text(throughput_ratio(result)));
  }
  if (!two) out += "95 % intervals: by bootstrap over conversations, whose turns are alike\n";
  return out + (two ? two_tables(result) : one_table(result.servers[0]));
}

OrderedJson report_json(const BenchResult& result, const BenchOptions& options, const Objective& objective,
                        const OrderedJson& workload) {
  OrderedJson out = {{"loci_bench", 1}, {"workload", workload}, {"interrupted", result.interrupted}};
  out["servers"] = OrderedJson::array();
  for (const ServerRun& run : result.servers) out["servers"].push_back(server_json(run, options, objective));
  if (result.servers.size() < 2) return out;
  OrderedJson& ratios = out["second_over_first"];
  ratios["throughput"] = ratio_json(throughput_ratio(result));
  for (const KindName& kind : kKinds) {
    for (const Figure* figure : kFigures) {
      ratios[kind.key][figure->key] = ratio_json(ratio_of(result, *figure, kind.kind));
    }
  }
  return out;
}

}  // namespace loci
