// SPDX-License-Identifier: Apache-2.0
#include "loci/base/units.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

namespace loci {
namespace {

struct Scaled {
  double number;
  std::string unit;  // lower case
};

// Splits "1.5GiB" into 1.5 and "gib"; false where it isn't a finite number >= 0 and letters.
bool split_number(std::string_view text, Scaled& out) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, out.number, std::chars_format::fixed);
  if (error != std::errc{} || !std::isfinite(out.number) || std::signbit(out.number)) return false;
  out.unit.clear();
  for (const char* c = rest; c != end; ++c) {
    if (*c == ' ' && out.unit.empty()) continue;
    if (!std::isalpha(static_cast<unsigned char>(*c))) return false;
    out.unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*c)));
  }
  return true;
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text, std::string_view field) {
  static constexpr std::array<std::pair<std::string_view, int>, 14> kUnits{{{"", 0},
                                                                            {"b", 0},
                                                                            {"k", 10},
                                                                            {"kb", 10},
                                                                            {"kib", 10},
                                                                            {"m", 20},
                                                                            {"mb", 20},
                                                                            {"mib", 20},
                                                                            {"g", 30},
                                                                            {"gb", 30},
                                                                            {"gib", 30},
                                                                            {"t", 40},
                                                                            {"tb", 40},
                                                                            {"tib", 40}}};
  Scaled scaled;
  if (split_number(text, scaled)) {
    for (const auto& [name, shift] : kUnits) {
      if (name != scaled.unit) continue;
      const double bytes = std::ldexp(scaled.number, shift);
      if (bytes < std::ldexp(1.0, 62)) return static_cast<std::uint64_t>(bytes);
    }
  }
  return invalid_argument(
      fmt::format("expected a size such as 4GiB, 512M or 1048576 (below 2^62 bytes), found \"{}\"", text),
      std::string(field));
}

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::string_view, 6> kNames{"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double scaled = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (scaled >= 1024.0 && unit + 1 < kNames.size()) {
    scaled /= 1024.0;
    ++unit;
  }
  return fmt::format("{:.1f} {}", scaled, kNames[unit]);
}

Result<std::int64_t> parse_duration(std::string_view text, std::string_view field) {
  static constexpr std::array<std::pair<std::string_view, double>, 9> kUnits{{{"", 1e9},
                                                                              {"s", 1e9},
                                                                              {"ns", 1},
                                                                              {"us", 1e3},
                                                                              {"ms", 1e6},
                                                                              {"m", 60e9},
                                                                              {"min", 60e9},
                                                                              {"h", 3600e9},
                                                                              {"d", 86400e9}}};
  Scaled scaled;
  if (split_number(text, scaled)) {
    for (const auto& [name, factor] : kUnits) {
      if (name != scaled.unit) continue;
      const double nanoseconds = scaled.number * factor;
      if (nanoseconds < 9.2e18) return static_cast<std::int64_t>(nanoseconds);
    }
  }
  return invalid_argument(
      fmt::format("expected a time such as 250ms, 30s, 10m, 2h or 30d (below 290 years), found \"{}\"", text),
      std::string(field));
}

std::string format_duration(std::int64_t nanoseconds) {
  const double t = static_cast<double>(nanoseconds);
  if (t < 1e3) return fmt::format("{} ns", nanoseconds);
  if (t < 1e6) return fmt::format("{:.1f} µs", t / 1e3);
  if (t < 1e9) return fmt::format("{:.1f} ms", t / 1e6);
  if (t < 120e9) return fmt::format("{:.2f} s", t / 1e9);
  if (t < 7200e9) return fmt::format("{:.1f} min", t / 60e9);
  return fmt::format("{:.1f} h", t / 3600e9);
}

std::string exact_bytes(std::uint64_t bytes) {
  static constexpr std::array<std::pair<const char*, int>, 3> kUnits{{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}}};
  for (const auto& [name, shift] : kUnits) {
    if (bytes >> shift != 0 && (bytes >> shift) << shift == bytes)
      return fmt::format("{}{}", bytes >> shift, name);
  }
  return std::to_string(bytes);
}

std::string exact_duration(std::int64_t nanoseconds) {
  static constexpr std::array<std::pair<const char*, std::int64_t>, 6> kUnits{{{"d", 86'400'000'000'000},
                                                                               {"h", 3'600'000'000'000},
                                                                               {"m", 60'000'000'000},
                                                                               {"s", 1'000'000'000},
                                                                               {"ms", 1'000'000},
                                                                               {"us", 1'000}}};
  if (nanoseconds == 0) return "0";
  for (const auto& [name, factor] : kUnits) {
    if (nanoseconds % factor == 0) return fmt::format("{}{}", nanoseconds / factor, name);
  }
  return fmt::format("{}ns", nanoseconds);
}

std::string format_count(std::uint64_t count) {
  std::string digits = std::to_string(count);
  for (std::size_t at = digits.size(); at > 3;) {
    at -= 3;
    digits.insert(at, ",");
  }
  return digits;
}

}  // namespace loci
