// SPDX-License-Identifier: Apache-2.0
#include "loci/base/json_reader.h"

#include <fmt/format.h>

#include <bit>
#include <exception>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "loci/base/printable.h"

namespace loci {
namespace {

// In bytes that are copied. An object of 2,048 members costs 262,144.
constexpr std::size_t kWorkMin = 500'000, kWorkOfByte = 16, kComparedForAByte = 8;
constexpr std::size_t kShownBytes = 240;
constexpr std::size_t kUnbounded = std::numeric_limits<std::size_t>::max();

}  // namespace

// Counts brackets and separators outside strings. Up to the first fault of a text the counts are exact,
// and the parser stops there, so a text that passes can't exceed the limits.
Status check_json_limits(std::string_view text, const JsonLimits& limits) {
  struct Open {
    bool is_object = false;
    std::size_t members = 1;  // of arrays nothing is counted
    std::size_t begin = 0;
  };
  std::vector<Open> open;
  std::size_t values = 1;
  // What the parser does beside reading (ordered_json): a new member is compared with all before it, and an
  // object that grows beyond a power of two copies what it has.
  std::size_t work = 0;
  const std::size_t work_max =
      limits.members_max == kUnbounded ? kUnbounded : kWorkMin + kWorkOfByte * text.size();
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
      continue;
    }
    switch (c) {
      case '"': in_string = true; break;
      case '[':
      case '{':
        if (open.size() == limits.depth_max) {
          return invalid_argument(
              fmt::format("the JSON is nested deeper than {} levels (byte {})", limits.depth_max, i));
        }
        ++values;
        open.push_back({.is_object = c == '{', .begin = i});
        break;
      case ']':
      case '}':
        if (!open.empty()) open.pop_back();
        break;
      case ',':
        ++values;
        if (open.empty() || !open.back().is_object) break;
        work += open.back().members / kComparedForAByte;
        if (std::has_single_bit(open.back().members)) work += i - open.back().begin;
        if (++open.back().members > limits.members_max) {
          return invalid_argument(
              fmt::format("an object has more than {} members (byte {})", limits.members_max, i));
        }
        if (work > work_max) {
          return invalid_argument(fmt::format(
              "the JSON's objects have too many members for their depth and number (byte {})", i));
        }
        break;
      default: break;
    }
    if (values > limits.values_max) {
      return invalid_argument(fmt::format("the JSON holds more than {} values", limits.values_max));
    }
  }
  return {};
}

// nlohmann's messages open with "[json.exception.parse_error.101] " and may quote all of a long string.
std::string json_error_text(std::string_view what) {
  if (const auto end = what.find("] "); what.starts_with("[json.") && end != what.npos) {
    what.remove_prefix(end + 2);
  }
  const std::string_view prefix = what.substr(0, kShownBytes);
  return visible_ascii(prefix) + (prefix.size() < what.size() ? "..." : "");
}

template <class Json>
JsonRead<Json> read_json(std::string_view text, const JsonLimits& limits) {
  JsonRead<Json> out;
  if (const Status status = check_json_limits(text, limits); !status.ok()) {
    out.fault = JsonFault::kLimit;
    out.what = status.message();
    return out;
  }
  try {
    out.value = Json::parse(text);
    return out;
  } catch (const typename Json::parse_error& error) {
    out.what = json_error_text(error.what());
    out.byte = error.byte;
  } catch (const std::exception& error) {  // a number that no double holds
    out.what = json_error_text(error.what());
  }
  out.fault = JsonFault::kSyntax;
  return out;
}

template JsonRead<nlohmann::json> read_json(std::string_view text, const JsonLimits& limits);
template JsonRead<nlohmann::ordered_json> read_json(std::string_view text, const JsonLimits& limits);

}  // namespace loci
