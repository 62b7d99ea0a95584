// SPDX-License-Identifier: Apache-2.0
// One function for each kind of option: what a group's file writes its rows with.
//
// `at` says where the value is: [](auto& flags) -> auto& { return flags.http.port; }. A place that is a
// std::optional is set by a value and empty without one.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "loci/base/units.h"
#include "loci/cli/options/option.h"
#include "loci/server/server_config.h"

namespace loci {
namespace option_detail {

template <class T>
struct Stored {
  using Value = T;
  static const T* get(const T& place) { return &place; }
};
template <class T>
struct Stored<std::optional<T>> {
  using Value = T;
  static const T* get(const std::optional<T>& place) { return place ? &*place : nullptr; }
};

template <class At>
using Place = Stored<std::remove_cvref_t<std::invoke_result_t<At, ServerConfig&>>>;
template <class At>
using Value = typename Place<At>::Value;

// A row whose value is parsed by `parse` (text -> Result<Value>) and written by `write` (Value -> text).
template <class At, class Parse, class Write>
Option row(OptionName name, OptionKind kind, std::string type, At at, Parse parse, Write write) {
  Option out{.group = std::move(name.group),
             .flag = std::move(name.flag),
             .help = std::move(name.help),
             .kind = kind,
             .type = std::move(type),
             .choices = {},
             .default_note = {}};
  out.set = [at, parse](ServerConfig& flags, const std::string& text) -> Status {
    Result<Value<At>> value = parse(text);
    if (!value.ok()) return invalid_argument(value.status().message());
    at(flags) = std::move(value).value();
    return {};
  };
  out.get = [at, write](const ServerConfig& flags) -> std::optional<std::string> {
    const Value<At>* value = Place<At>::get(at(flags));
    return value != nullptr ? std::optional<std::string>(write(*value)) : std::nullopt;
  };
  return out;
}

}  // namespace option_detail

template <class At>
Option text_option(OptionName name, std::string type, At at) {
  const auto same = [](const std::string& text) { return text; };
  const auto parse = [](const std::string& text) { return Result<std::string>(text); };
  return option_detail::row(std::move(name), OptionKind::kText, std::move(type), at, parse, same);
}

template <class At>
Option path_option(OptionName name, At at) {
  Option out = text_option(std::move(name), "FILE", at);
  out.kind = OptionKind::kPath;
  return out;
}

// The file of something that guards the server.
template <class At>
Option guard_option(OptionName name, At at) {
  Option out = path_option(std::move(name), at);
  out.guards = true;
  return out;
}

// Sets the place of something that is written: `none` is nowhere, as an empty text is. Nobody means a file of
// such a name.
template <class Set>
Status set_unless_none(const Set& set, ServerConfig& flags, const std::string& text) {
  for (const char* word : {"off", "no", "false", "0"}) {
    if (text == word)
      return invalid_argument(fmt::format("expected `none` or a place, found \"{0}\" (a file: ./{0})", text));
  }
  return set(flags, text == "none" ? std::string() : text);
}

template <class At>
Option integer_option(OptionName name, At at, option_detail::Value<At> min, option_detail::Value<At> max) {
  using Integer = option_detail::Value<At>;
  const auto parse = [min, max](const std::string& text) -> Result<Integer> {
    Integer value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size() && value >= min && value <= max)
      return value;
    return invalid_argument(fmt::format("expected an integer from {} to {}, found \"{}\"", min, max, text));
  };
  const auto write = [](Integer value) { return std::to_string(value); };
  return option_detail::row(std::move(name), OptionKind::kInteger, "N", at, parse, write);
}

// With a fraction.
template <class At>
Option number_option(OptionName name, At at, double min, double max) {
  using Number = option_detail::Value<At>;
  const auto parse = [min, max](const std::string& text) -> Result<Number> {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc{} && end == text.data() + text.size() && value >= min && value <= max)
      return static_cast<Number>(value);
    return invalid_argument(fmt::format("expected a number from {} to {}, found \"{}\"", min, max, text));
  };
  const auto write = [](Number value) { return fmt::format("{}", value); };
  return option_detail::row(std::move(name), OptionKind::kNumber, "NUMBER", at, parse, write);
}

template <class At>
Option bytes_option(OptionName name, At at, std::uint64_t min = 0,
                    std::uint64_t max = std::uint64_t{1} << 62) {
  using Integer = option_detail::Value<At>;
  max = std::min<std::uint64_t>(max, std::numeric_limits<Integer>::max());
  const auto parse = [min, max](const std::string& text) -> Result<Integer> {
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t bytes, parse_bytes(text, ""));
    if (bytes >= min && bytes <= max) return static_cast<Integer>(bytes);
    return invalid_argument(
        fmt::format("expected a size from {} to {}, found \"{}\"", exact_bytes(min), exact_bytes(max), text));
  };
  const auto write = [](Integer bytes) { return exact_bytes(bytes); };
  return option_detail::row(std::move(name), OptionKind::kBytes, "SIZE", at, parse, write);
}

template <class At>
Option duration_option(OptionName name, At at) {
  const auto parse = [](const std::string& text) { return parse_duration(text, ""); };
  return option_detail::row(std::move(name), OptionKind::kDuration, "TIME", at, parse, &exact_duration);
}

// The place is an optional that is empty where the value is 0.
template <class At>
Option limit_duration_option(OptionName name, At at) {
  Option out = duration_option(std::move(name), at);
  out.set = [at](ServerConfig& flags, const std::string& text) -> Status {
    const Result<std::int64_t> value = parse_duration(text, "");
    if (!value.ok()) return invalid_argument(value.status().message());
    at(flags) = *value > 0 ? std::optional<std::int64_t>(*value) : std::nullopt;
    return {};
  };
  out.get = [at](const ServerConfig& flags) {
    return std::optional<std::string>(exact_duration(at(flags).value_or(0)));
  };
  return out;
}

// The place is a std::string, unless `parse` and `write` convert the choice's name.
template <class At, class Parse, class Write>
Option choice_option(OptionName name, std::string type, std::vector<std::string> choices, At at, Parse parse,
                     Write write) {
  const auto checked = [choices, parse](const std::string& text) -> Result<option_detail::Value<At>> {
    if (std::find(choices.begin(), choices.end(), text) != choices.end()) return parse(text);
    return invalid_argument(fmt::format("expected one of {}, found \"{}\"", fmt::join(choices, ", "), text));
  };
  Option out = option_detail::row(std::move(name), OptionKind::kChoice, std::move(type), at, checked, write);
  out.choices = std::move(choices);
  return out;
}

template <class At>
Option choice_option(OptionName name, std::string type, std::vector<std::string> choices, At at) {
  const auto same = [](const std::string& text) { return text; };
  return choice_option(std::move(name), std::move(type), std::move(choices), at, same, same);
}

// The place is a bool.
template <class At>
Option switch_option(OptionName name, At at) {
  const auto parse = [](const std::string& text) { return Result<bool>(text == "on"); };
  const auto write = [](bool value) { return std::string(value ? "on" : "off"); };
  Option out = choice_option(std::move(name), "on|off", {"on", "off"}, at, parse, write);
  out.kind = OptionKind::kSwitch;
  return out;
}

// An empty text is an empty list. `parse`: std::vector<std::string> -> Result<Value>; `write`: the way back.
template <class At, class Parse, class Write>
Option list_option(OptionName name, std::string type, At at, Parse parse, Write write) {
  const auto split = [parse](const std::string& text) -> Result<option_detail::Value<At>> {
    std::vector<std::string> out;
    if (text.empty()) return parse(std::move(out));
    for (std::size_t begin = 0; begin <= text.size();) {
      const std::size_t end = std::min(text.find(',', begin), text.size());
      if (end == begin) {
        return invalid_argument(fmt::format("expected values with commas between them, found \"{}\"", text));
      }
      out.push_back(text.substr(begin, end - begin));
      begin = end + 1;
    }
    return parse(std::move(out));
  };
  const auto join = [write](const option_detail::Value<At>& list) {
    return fmt::format("{}", fmt::join(write(list), ","));
  };
  return option_detail::row(std::move(name), OptionKind::kList, std::move(type), at, split, join);
}

// The place is a std::vector<std::string>.
template <class At>
Option list_option(OptionName name, std::string type, At at) {
  const auto parse = [](std::vector<std::string> list) {
    return Result<std::vector<std::string>>(std::move(list));
  };
  const auto write = [](const std::vector<std::string>& list) -> const std::vector<std::string>& {
    return list;
  };
  return list_option(std::move(name), std::move(type), at, parse, write);
}

}  // namespace loci
