// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace loci {
namespace {

constexpr double kWidth = 380, kHeight = 240, kLeft = 80, kTop = 70, kGap = 110, kRight = 40;
constexpr double kBelow = 60, kLegendLine = 18;  // of a panel: its axis, and a line's name
constexpr int kLinearTicks = 6;                  // about so many

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

std::string text_at(double x, double y, std::string_view anchor, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor,
                     escaped(text));
}

// Places of values on an axis, and its ticks.
class Places {
 public:
  // Values reach from `low` to `high`, places from `from` to `to`.
  Places(const ChartAxis& axis, double low, double high, double from, double to)
      : low_(low), high_(high), from_(from), to_(to), factor_(axis.factor) {
    if (factor_ == 0) {
      fit_linear();
    } else {
      fit_logarithmic(axis.whole);
    }
  }

  double at(double value) const {
    const double share =
        factor_ == 0 ? (value - low_) / (high_ - low_) : std::log(value / low_) / std::log(high_ / low_);
    return from_ + (to_ - from_) * share;
  }

  std::vector<double> ticks() const {
    std::vector<double> out;
    if (factor_ == 0) {
      const auto count = static_cast<int>(std::lround((high_ - low_) / step_));
      for (int i = 0; i <= count; ++i) out.push_back(low_ + i * step_);
    } else {
      for (double tick = low_; tick <= high_ * 1.001; tick *= factor_) out.push_back(tick);
    }
    return out;
  }

 private:
  void fit_logarithmic(bool whole) {
    if (!whole) {
      high_ = std::max(high_, low_ * 2);
      return;
    }
    const double step = std::log(factor_);
    low_ = std::pow(factor_, std::floor(std::log(low_) / step));
    high_ = std::max(low_ * factor_, std::pow(factor_, std::ceil(std::log(high_) / step)));
  }

  // Steps are 1, 2 or 5 times a power of ten.
  void fit_linear() {
    const double range = high_ > low_ ? high_ - low_ : std::max(std::abs(high_), 1.0);
    const double rough = range / kLinearTicks, power = std::pow(10, std::floor(std::log10(rough)));
    const double digits = rough / power;
    step_ = power * (digits <= 1 ? 1 : digits <= 2 ? 2 : digits <= 5 ? 5 : 10);
    low_ = std::floor(low_ / step_) * step_;
    high_ = std::max(low_ + step_, std::ceil(high_ / step_) * step_);
  }

  double low_, high_;
  double from_, to_;
  double factor_;
  double step_ = 1;  // of a linear axis
};

struct Range {
  double low = 1e300, high = -1e300;
  void add(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool is_empty() const { return low > high; }
};

std::string draw_axes(const ChartPanel& panel, const Places& x, const Places& y, double left, double top) {
  std::string out;
  for (const double tick : y.ticks()) {
    out += fmt::format("<path d=\"M{:.1f} {:.1f}h{:.1f}\" stroke=\"#ddd\"/>\n", left, y.at(tick), kWidth);
    out += text_at(left - 6, y.at(tick) + 4, "end", panel.y.text(tick));
  }
  for (const double tick : x.ticks()) {
    out += fmt::format("<path d=\"M{:.1f} {:.1f}v{:.1f}\" stroke=\"#eee\"/>\n", x.at(tick), top, kHeight);
    out += text_at(x.at(tick), top + kHeight + 16, "middle", panel.x.text(tick));
  }
  out += text_at(left + kWidth / 2, top + kHeight + 36, "middle", panel.x.name);
  return out;
}

std::string draw_panel(const ChartPanel& panel, double left, double top) {
  std::string out = text_at(left + kWidth / 2, top - 14, "middle", panel.title);
  Range across, up;
  for (const ChartLine& line : panel.lines) {
    for (const auto& [at, value] : line.points) {
      across.add(at);
      up.add(value);
    }
  }
  if (across.is_empty()) return out + text_at(left + kWidth / 2, top + kHeight / 2, "middle", "no samples");
  const Places x(panel.x, across.low, across.high, left, left + kWidth);
  const Places y(panel.y, up.low, up.high, top + kHeight, top);
  out += draw_axes(panel, x, y, left, top);
  double legend = top + kHeight + kBelow;
  for (const ChartLine& line : panel.lines) {
    out += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"2\" points=\"", line.colour);
    for (const auto& [at, value] : line.points) out += fmt::format("{:.1f},{:.1f} ", x.at(at), y.at(value));
    out += "\"/>\n";
    out += fmt::format("<path d=\"M{:.1f} {:.1f}h24\" stroke=\"{}\" stroke-width=\"2\"/>\n", left, legend - 4,
                       line.colour);
    out += text_at(left + 32, legend, "start", line.name);
    legend += kLegendLine;
  }
  return out;
}

}  // namespace

std::string svg_chart(const std::string& title, const std::vector<std::vector<ChartPanel>>& rows) {
  std::string panels;
  double top = kTop, width = kLeft + kWidth + kRight;
  for (const std::vector<ChartPanel>& row : rows) {
    double left = kLeft;
    std::size_t lines = 0;
    for (const ChartPanel& panel : row) {
      panels += draw_panel(panel, left, top);
      width = std::max(width, left + kWidth + kRight);
      left += kWidth + kGap;
      lines = std::max(lines, panel.lines.size());
    }
    top += kHeight + kBelow + kLegendLine * static_cast<double>(lines) + kTop / 2;
  }
  const std::string head = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" font-family=\"sans-serif\" "
      "font-size=\"12\">\n<rect width=\"{0:.0f}\" height=\"{1:.0f}\" fill=\"white\"/>\n",
      width, top - kTop / 2);
  return head + text_at(width / 2, 26, "middle", title) + panels + "</svg>\n";
}

}  // namespace loci
