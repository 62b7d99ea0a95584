// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/json_parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/serve/wire/json.h"

namespace loci {
bool is_json_type(std::string_view content_type) {
  std::string type;
  for (const char c : content_type.substr(0, content_type.find(';'))) {
    if (c != ' ' && c != '\t') type += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return type == "application/json" || (type.starts_with("application/") && type.ends_with("+json"));
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
    text = dump_json(Json(utf8_prefix(whole, bytes_max)));
    text.pop_back();
    return text + "...\"";
  }
  text = dump_json(value);
  const std::string_view prefix = utf8_prefix(text, bytes_max);
  return prefix.size() == text.size() ? text : std::string(prefix) + "...";
}

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  JsonRead<Json> read = read_json<Json>(text, limits);
  if (read.ok()) return std::move(read.value);
  if (read.fault == JsonFault::kLimit) return invalid_argument(read.what, read.field);
  return invalid_argument("the body is not valid JSON: " + read.what);
}

Json json_or_null(std::string_view text) {
  constexpr JsonLimits kBody;
  return read_json<Json>(text, {.depth_max = 2 * kBody.depth_max,
                                .values_max = 2 * kBody.values_max,
                                .members_max = 2 * kBody.members_max})
      .value;
}

}  // namespace loci
