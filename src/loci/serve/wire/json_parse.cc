// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/json_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <exception>
#include <vector>

#include "loci/serve/wire/json.h"

namespace loci {
namespace {

// In bytes that are copied. An object of 2,048 members costs 262,144.
constexpr std::size_t kWorkMin = 500'000, kWorkOfByte = 16, kComparedForAByte = 8;

// Counts brackets and separators outside strings. Up to the first fault of a text the counts are exact,
// and the parser stops there, so a text that passes can't exceed the limits.
Status check_limits(std::string_view text, const JsonLimits& limits) {
  struct Open {
    bool is_object = false;
    std::size_t members = 1;  // of arrays nothing is counted
    std::size_t begin = 0;
  };
  std::vector<Open> open;
  std::size_t values = 1;
  // What the parser does beside reading (json.h): a new member is compared with all before it, and an object
  // that grows beyond a power of two copies what it has.
  std::size_t work = 0;
  const std::size_t work_max = kWorkMin + kWorkOfByte * text.size();
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
std::string readable(std::string_view what) {
  if (const auto end = what.find("] "); what.starts_with("[json.") && end != what.npos) {
    what.remove_prefix(end + 2);
  }
  const std::string_view prefix = what.substr(0, 240);
  return visible_ascii(prefix) + (prefix.size() < what.size() ? "..." : "");
}

}  // namespace

bool is_json_type(std::string_view content_type) {
  std::string type;
  for (const char c : content_type.substr(0, content_type.find(';'))) {
    if (c != ' ' && c != '\t') type += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"));
}

std::string visible_ascii(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c >= ' ' && c < 0x7f)
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

std::string_view utf8_prefix(std::string_view text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

std::size_t count_characters(std::string_view text) {
  const auto begins_character = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
}

std::string json_excerpt(const Json& value, std::size_t bytes_max) {
  // Large containers are not written out only to be cut off.
  if (value.is_array() && value.size() > bytes_max) return fmt::format("an array of {}", value.size());
  if (value.is_object() && value.size() > bytes_max) return fmt::format("an object of {}", value.size());
  std::string text;
  if (value.is_string() && value.get_ref<const std::string&>().size() > bytes_max) {
    const std::string& whole = value.get_ref<const std::string&>();
    text = Json(utf8_prefix(whole, bytes_max)).dump(-1, ' ', false, Json::error_handler_t::replace);
    text.pop_back();
    return text + "...\"";
  }
  text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::string_view prefix = utf8_prefix(text, bytes_max);
  return prefix.size() == text.size() ? text : std::string(prefix) + "...";
}

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  LOCI_RETURN_IF_ERROR(check_limits(text, limits));
  try {
    return Json::parse(text);
  } catch (const std::exception& error) {
    return invalid_argument("the body is not valid JSON: " + readable(error.what()));
  }
}

}  // namespace loci
