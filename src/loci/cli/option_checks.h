// SPDX-License-Identifier: Apache-2.0
// What values of commands' options may be, where CLI11's own checks say it badly.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>
#include <system_error>

namespace loci {

// From `min` to `max`, as number_option() of `loci serve`. (CLI::Range takes NaN, and writes a double's
// largest number with all its digits.)
inline CLI::Validator number_from(double min, double max) {
  const auto check = [min, max](const std::string& text) -> std::string {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size() && value >= min && value <= max) return {};
    return fmt::format("expected a number from {} to {}, found \"{}\"", min, max, text);
  };
  return CLI::Validator(check, fmt::format("FLOAT in [{} - {}]", min, max));
}

}  // namespace loci
