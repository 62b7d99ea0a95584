// SPDX-License-Identifier: Apache-2.0
// What values of commands' options may be, where CLI11's own checks say it badly.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <string>
#include <system_error>
#include <type_traits>
#include <utility>

#include "loci/base/status.h"
#include "loci/cli/status_text.h"

namespace loci {

// In a command's callback, before anything is begun: what is wrong with its command line beyond what CLI11
// has seen. The command ends as CLI11 ends it, with exit code 2.
inline void refuse_unless_ok(const Status& status) {
  if (!status.ok()) throw CLI::ValidationError(for_people(status));
}

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

// From `min` to `max`, as integer_option() of `loci serve`.
inline CLI::Validator integer_from(std::int64_t min, std::int64_t max) {
  const auto check = [min, max](const std::string& text) -> std::string {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size() && value >= min && value <= max) return {};
    return fmt::format("expected an integer from {} to {}, found \"{}\"", min, max, text);
  };
  return CLI::Validator(check, fmt::format("INT in [{} - {}]", min, max));
}

// Of an address to listen on.
inline constexpr const char* kNoHost =
    "expected an address, found an empty text, by which a server would listen on every interface: write "
    "0.0.0.0 for that";

// Of 64 bits, and not negative: CLI11 takes -1 as the largest one.
inline CLI::Validator whole_number() {
  const auto check = [](const std::string& text) -> std::string {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size()) return {};
    return fmt::format("expected a whole number from 0 to {}, found \"{}\"", UINT64_MAX, text);
  };
  return CLI::Validator(check, "");
}

// What a header can carry: a line end in it would begin a header of its own. The error does not show the key.
inline CLI::Validator sendable_key() {
  const auto check = [](const std::string& text) -> std::string {
    const bool is_sendable = std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
    return is_sendable ? ""
                       : "expected visible ASCII characters, found others (a line end, if it is a file's)";
  };
  return CLI::Validator(check, "");
}

// The value of one of these names. (What CLI::CheckedTransformer says ends before the first value that is 0.)
template <class Value>
CLI::Validator choice_from(std::map<std::string, Value> choices) {
  const auto replace = [choices = std::move(choices)](std::string& text) -> std::string {
    if (const auto found = choices.find(text); found != choices.end()) {
      text = std::to_string(static_cast<std::underlying_type_t<Value>>(found->second));
      return {};
    }
    std::string names;
    for (const auto& [name, value] : choices) names += (names.empty() ? "" : ", ") + name;
    return fmt::format("expected one of {}, found \"{}\"", names, text);
  };
  return CLI::Validator(replace, "");
}

}  // namespace loci
