// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/option.h"

#include <fmt/format.h>

#include <array>
#include <cctype>
#include <utility>

namespace loci {
namespace {

// "--max-body": "max_body"
std::string underscored(const std::string& flag) {
  std::string out = flag.substr(flag.find_first_not_of('-'));
  for (char& c : out) {
    if (c == '-') c = '_';
  }
  return out;
}

}  // namespace

std::string Option::environment() const {
  std::string out = "LOCI_" + underscored(flag);
  for (char& c : out) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return out;
}

std::string Option::key() const { return group + "." + underscored(flag); }

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

}  // namespace loci
