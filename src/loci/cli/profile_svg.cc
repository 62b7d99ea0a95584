// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/profile_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "loci/base/units.h"
#include "loci/cli/svg_chart.h"
#include "loci/compute/backend.h"

namespace loci {
namespace {

constexpr std::uint64_t kTransferMin = 4 << 10, kTransferMax = 64 << 20;  // bytes

std::string count_text(double x) { return format_count(static_cast<std::uint64_t>(std::llround(x))); }
std::string bytes_text(double x) { return format_bytes(static_cast<std::uint64_t>(std::llround(x))); }
std::string time_text(double y) { return format_duration(static_cast<Nanos>(std::llround(y))); }
std::string rate_text(double y) { return bytes_text(y) + "/s"; }

// Values of at least 1: the axis is logarithmic.
double positive(Nanos time) { return static_cast<double>(std::max<Nanos>(time, 1)); }

ChartPanel blocks_panel(const CostProfile& profile, std::uint64_t block_bytes) {
  const CostModel model(profile.curves);
  ChartPanel panel{.title = fmt::format("a block of {} tokens ({})", kBlockTokens, format_bytes(block_bytes)),
                   .x = {.name = "tokens before it", .text = count_text, .factor = 4},
                   .y = {.name = "", .text = time_text, .whole = true},
                   .lines = {}};
  const std::uint32_t deepest = 1u << std::max<std::size_t>(model.curves().attention.size() - 1, 6);
  const auto line = [&](std::string name, std::string colour, const auto& cost) {
    ChartLine& to = panel.lines.emplace_back(std::move(name), std::move(colour),
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

ChartPanel links_panel(const CostProfile& profile) {
  const CostModel model(profile.curves);
  ChartPanel panel{.title = "links",
                   .x = {.name = "bytes of a transfer", .text = bytes_text, .factor = 16},
                   .y = {.name = "", .text = rate_text, .factor = 32, .whole = true},
                   .lines = {}};
  const auto line = [&](std::string name, std::string colour, const auto& time) {
    ChartLine& to = panel.lines.emplace_back(std::move(name), std::move(colour),
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
  ChartLine& sizes = panel.lines.emplace_back("disk, many reads of a size", "#145a32",
                                              std::vector<std::pair<double, double>>());
  for (const ReadRate& rate : profile.disk_reads) {
    sizes.points.emplace_back(static_cast<double>(rate.bytes), static_cast<double>(rate.bytes_per_second));
  }
  return panel;
}

}  // namespace

std::string profile_svg(const CostProfile& profile, std::uint64_t block_bytes) {
  return svg_chart(fmt::format("{} on {} ({}), {}", profile.model, profile.machine.cpu,
                               profile.machine.backend, profile.measured_at),
                   {{blocks_panel(profile, block_bytes), links_panel(profile)}});
}

}  // namespace loci
