// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/bench_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "loci/base/units.h"
#include "loci/cli/bench_client/bench_report.h"
#include "loci/cli/svg_chart.h"

namespace loci {
namespace {

constexpr int kQuantiles = 200;     // points of a distribution
constexpr std::size_t kBins = 40;   // over turns or time, at most
constexpr double kLeastMs = 0.001;  // logarithmic axes begin here at the least
constexpr const char* kColours[2][2] = {{"#c0392b", "#e59866"}, {"#2471a3", "#7fb3d5"}};  // by server

std::string time_text(double ms) {
  return format_duration(static_cast<Nanos>(std::llround(ms * kNanosPerMilli)));
}
std::string seconds_text(double seconds) { return fmt::format("{:g}", seconds); }
std::string count_text(double count) { return fmt::format("{:g}", count); }
std::string percent_text(double percent) { return fmt::format("{:.0f} %", percent); }

double positive(double ms) { return std::max(ms, kLeastMs); }

std::string server_name(const BenchResult& result, std::size_t server) {
  if (result.servers.size() < 2) return "";
  return server == 0 ? "first server, " : "second server, ";
}

// Few ticks stand on the axis, in round numbers of milliseconds.
void choose_ticks(ChartAxis& axis, const std::vector<ChartLine>& lines, bool across) {
  double low = 1e300, high = 0;
  for (const ChartLine& line : lines) {
    for (const auto& [x, y] : line.points) {
      low = std::min(low, across ? x : y);
      high = std::max(high, across ? x : y);
    }
  }
  axis.whole = true;
  axis.factor = high <= 32 * low ? 2 : high <= 1024 * low ? 4 : 10;
}

ChartPanel distribution(const BenchResult& result, const Figure& figure, const std::string& title) {
  ChartPanel panel{.title = title,
                   .x = {.name = "at most", .text = time_text},
                   .y = {.name = "", .text = percent_text, .factor = 0},
                   .lines = {}};
  for (std::size_t server = 0; server < result.servers.size(); ++server) {
    const auto add = [&](TurnKind kind, const char* name, const char* colour) {
      std::vector<double> samples = samples_of(result.servers[server], figure, kind);
      if (samples.empty()) return;
      std::sort(samples.begin(), samples.end());
      ChartLine& line = panel.lines.emplace_back();
      line.name = fmt::format("{}{} ({})", server_name(result, server), name, format_count(samples.size()));
      line.colour = colour;
      for (int i = 0; i <= kQuantiles; ++i) {
        const double share = static_cast<double>(i) / kQuantiles;
        line.points.emplace_back(positive(quantile(samples, share)), 100 * share);
      }
    };
    add(TurnKind::kFirst, "first turns", kColours[server][0]);
    add(TurnKind::kLater, "later turns", kColours[server][1]);
  }
  choose_ticks(panel.x, panel.lines, true);
  return panel;
}

// Where a turn stands: its number, from 1, or when it was due, in seconds.
double place_of(const TurnRecord& turn, bool over_time) {
  return over_time ? static_cast<double>(turn.due) / kNanosPerSecond : turn.id.turn + 1.0;
}

// Divides the turns into bins of equal width. A bin's key is its middle: a turn's number, or seconds.
std::map<double, ServerRun> in_bins(const ServerRun& run, bool over_time) {
  double most = 0;
  for (const TurnRecord& turn : run.turns) most = std::max(most, place_of(turn, over_time));
  double width = most / kBins;
  if (!over_time) width = std::max(1.0, std::ceil(width));
  std::map<double, ServerRun> bins;
  for (const TurnRecord& turn : run.turns) {
    const double place = place_of(turn, over_time);
    // A turn's number is the right end of its bin.
    const double bin = width <= 0 ? 0 : over_time ? std::floor(place / width) : std::ceil(place / width) - 1;
    const double middle = over_time ? (bin + 0.5) * width : bin * width + (1 + width) / 2;
    bins[middle].turns.push_back(turn);
  }
  return bins;
}

ChartPanel course(const BenchResult& result, const Figure& figure, const std::string& title, bool over_time) {
  ChartPanel panel{.title = title,
                   .x = {.name = over_time ? "seconds" : "turn",
                         .text = over_time ? seconds_text : count_text,
                         .factor = 0},
                   .y = {.name = "", .text = time_text},
                   .lines = {}};
  for (std::size_t server = 0; server < result.servers.size(); ++server) {
    ChartLine middle{server_name(result, server) + "median", kColours[server][0], {}};
    ChartLine tail{server_name(result, server) + "90th percentile", kColours[server][1], {}};
    for (const auto& [place, run] : in_bins(result.servers[server], over_time)) {
      const Summary of = summarise(samples_of(run, figure, TurnKind::kAll));
      if (of.count == 0) continue;
      middle.points.emplace_back(place, positive(of.p50));
      tail.points.emplace_back(place, positive(of.p90));
    }
    if (middle.points.empty()) continue;
    panel.lines.push_back(std::move(middle));
    panel.lines.push_back(std::move(tail));
  }
  choose_ticks(panel.y, panel.lines, false);
  return panel;
}

}  // namespace

std::string bench_svg(const BenchResult& result, const BenchOptions& options, const std::string& title) {
  const bool over_time = options.schedule.is_open_loop();
  const std::string where = over_time ? " over time" : " over turns";
  return svg_chart(title, {{distribution(result, kTtft, "time to the first token"),
                            distribution(result, kTbt, "time between tokens")},
                           {course(result, kTtft, "time to the first token" + where, over_time),
                            course(result, kTbt, "time between tokens" + where, over_time)}});
}

}  // namespace loci
