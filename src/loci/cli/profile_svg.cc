// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/profile_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "loci/base/units.h"
#include "loci/compute/backend.h"

namespace loci {
namespace {

constexpr double kWidth = 380, kHeight = 240, kLeft = 80, kTop = 70, kGap = 110, kLegend = 150;
constexpr std::uint64_t kTransferMin = 4 << 10, kTransferMax = 64 << 20;  // bytes

struct Line {
  std::string name, colour;
  std::vector<std::pair<double, double>> points;
};

struct Panel {
  std::string title, x_name;
  std::string (*x_text)(double);
  std::string (*y_text)(double);
  double x_step = 4, y_step = 10;  // between ticks, a factor
  std::vector<Line> lines;
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '&': out += "&amp;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string count_text(double x) { return format_count(static_cast<std::uint64_t>(std::llround(x))); }
std::string bytes_text(double x) { return format_bytes(static_cast<std::uint64_t>(std::llround(x))); }
std::string time_text(double y) { return format_duration(static_cast<Nanos>(std::llround(y))); }
std::string rate_text(double y) { return bytes_text(y) + "/s"; }

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

// Places of values on a logarithmic axis.
struct Axis {
  double low = 1, high = 1;  // values
  double from = 0, to = 0;   // places
  double at(double value) const { return from + (to - from) * std::log(value / low) / std::log(high / low); }
};

std::string draw(const Panel& panel, double left) {
  Axis x{.low = 1e300, .high = 0, .from = left, .to = left + kWidth};
  Axis y{.low = 1e300, .high = 0, .from = kTop + kHeight, .to = kTop};
  for (const Line& line : panel.lines) {
    for (const auto& [at, value] : line.points) {
      x = {std::min(x.low, at), std::max(x.high, at), x.from, x.to};
      y = {std::min(y.low, value), std::max(y.high, value), y.from, y.to};
    }
  }
  const double step = std::log(panel.y_step);
  y.low = std::pow(panel.y_step, std::floor(std::log(y.low) / step));
  y.high = std::max(y.low * panel.y_step, std::pow(panel.y_step, std::ceil(std::log(y.high) / step)));
  x.high = std::max(x.high, x.low * 2);
  std::string out = text_at(left + kWidth / 2, kTop - 14, "middle", panel.title);
  for (double tick = y.low; tick <= y.high * 1.001; tick *= panel.y_step) {
    out += fmt::format("<path d=\"M{:.1f} {:.1f}h{:.1f}\" stroke=\"#ddd\"/>\n", left, y.at(tick), kWidth);
    out += text_at(left - 6, y.at(tick) + 4, "end", panel.y_text(tick));
  }
  for (double tick = x.low; tick <= x.high * 1.001; tick *= panel.x_step) {
    out += fmt::format("<path d=\"M{:.1f} {:.1f}v{:.1f}\" stroke=\"#eee\"/>\n", x.at(tick), kTop, kHeight);
    out += text_at(x.at(tick), kTop + kHeight + 16, "middle", panel.x_text(tick));
  }
  out += text_at(left + kWidth / 2, kTop + kHeight + 36, "middle", panel.x_name);
  double legend = kTop + kHeight + 60;
  for (const Line& line : panel.lines) {
    out += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"", line.colour);
    for (const auto& [at, value] : line.points) out += fmt::format("{:.1f},{:.1f} ", x.at(at), y.at(value));
    out += "\"/>\n";
    out += fmt::format("<path d=\"M{:.1f} {:.1f}h24\" stroke=\"{}\" stroke-width=\"2\"/>\n", left, legend - 4,
                       line.colour);
    out += text_at(left + 32, legend, "start", line.name);
    legend += 18;
  }
  return out;
}

// Values of at least 1: the axis is logarithmic.
double positive(Nanos time) { return static_cast<double>(std::max<Nanos>(time, 1)); }

Panel blocks_panel(const CostProfile& profile, std::uint64_t block_bytes) {
  const CostModel model(profile.curves);
  Panel panel{.title = fmt::format("a block of {} tokens ({})", kBlockTokens, format_bytes(block_bytes)),
              .x_name = "tokens before it",
              .x_text = count_text,
              .y_text = time_text,
              .lines = {}};
  const std::uint32_t deepest = 1u << std::max<std::size_t>(model.curves().attention.size() - 1, 6);
  const auto line = [&](std::string name, std::string colour, const auto& cost) {
    Line& to = panel.lines.emplace_back(std::move(name), std::move(colour),
                                        std::vector<std::pair<double, double>>());
    for (std::uint32_t before = kBlockTokens; before <= deepest; before *= 2)
      to.points.emplace_back(before, positive(cost(before)));
  };
  line("computed", "#c0392b", [&](std::uint32_t before) { return model.compute(before, kBlockTokens); });
  line("loaded from host memory", "#2471a3",
       [&](std::uint32_t) { return model.load(Tier::kHost, block_bytes); });
  if (!profile.disk_directory.empty())
    line("loaded from disk", "#1e8449", [&](std::uint32_t) { return model.load(Tier::kDisk, block_bytes); });
  return panel;
}

Panel links_panel(const CostProfile& profile) {
  const CostModel model(profile.curves);
  Panel panel{.title = "links",
              .x_name = "bytes of a transfer",
              .x_text = bytes_text,
              .y_text = rate_text,
              .x_step = 16,
              .y_step = 32,
              .lines = {}};
  const auto line = [&](std::string name, std::string colour, const auto& time) {
    Line& to = panel.lines.emplace_back(std::move(name), std::move(colour),
                                        std::vector<std::pair<double, double>>());
    for (std::uint64_t bytes = kTransferMin; bytes <= kTransferMax; bytes *= 2)
      to.points.emplace_back(static_cast<double>(bytes),
                             std::max(1.0, static_cast<double>(bytes) * 1e9 / positive(time(bytes))));
  };
  line("host to device", "#2471a3", [&](std::uint64_t bytes) { return model.load(Tier::kHost, bytes); });
  line("device to host", "#85c1e9", [&](std::uint64_t bytes) { return model.save(Tier::kHost, bytes); });
  if (profile.disk_directory.empty()) return panel;
  line("disk, reading", "#1e8449", [&](std::uint64_t bytes) { return model.load(Tier::kDisk, bytes); });
  line("disk, writing", "#82e0aa", [&](std::uint64_t bytes) { return model.save(Tier::kDisk, bytes); });
  if (profile.disk_reads.size() < 2) return panel;
  Line& sizes = panel.lines.emplace_back("disk, many reads of a size", "#145a32",
                                         std::vector<std::pair<double, double>>());
  for (const ReadRate& rate : profile.disk_reads) {
    sizes.points.emplace_back(static_cast<double>(rate.bytes), static_cast<double>(rate.bytes_per_second));
  }
  return panel;
}

}  // namespace

std::string profile_svg(const CostProfile& profile, std::uint64_t block_bytes) {
  const double width = kLeft + kWidth + kGap + kWidth + 40, height = kTop + kHeight + kLegend;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      width, height);
  out += text_at(width / 2, 26, "middle",
                 fmt::format("{} on {} ({}), {}", profile.model, profile.machine.cpu, profile.machine.backend,
                             profile.measured_at));
  out += draw(blocks_panel(profile, block_bytes), kLeft);
  out += draw(links_panel(profile), kLeft + kWidth + kGap);
  return out + "</svg>\n";
}

}  // namespace loci
