// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/trace_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "loci/base/random.h"
#include "loci/sim/fields.h"
#include "loci/sim/json_text.h"

namespace loci::sim {

using Json = nlohmann::json;

std::string TracePlace::text() const { return fmt::format("{}:{}", file_, line_); }

Status TracePlace::wrong(std::string_view field, std::string_view expected, std::string_view found) const {
  return invalid_argument(fmt::format("{}: {}: expected {}, found {}", text(), field, expected, found),
                          std::string(field));
}

Status TraceLine::parse(std::string_view text) {
  JsonRead<Json> read = read_json_file(text);
  if (read.fault == JsonFault::kLimit) return wrong("line", levels_expected(), kLevelsFound);
  json_ = std::move(read.value);
  if (json_.is_object()) return {};
  return wrong("line", "a JSON object",
               read.ok() ? json_.type_name() : fmt::format("'{}'", text.substr(0, 40)));
}

bool TraceLine::is_list(const char* field) const {
  const auto at = json_.find(field);
  return at != json_.end() && at->is_array();
}

Status TraceLine::known(std::initializer_list<std::string_view> names) const {
  for (const auto& [name, value] : json_.items()) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      return wrong(name, fmt::format("one of {}", joined(names)), "this field");
  }
  return {};
}

Result<std::uint64_t> TraceLine::count(const char* field, std::uint64_t least, std::uint64_t most) const {
  const auto at = json_.find(field);
  const std::string expected = fmt::format("a whole number from {} to {}", least, most);
  if (at == json_.end()) return wrong(field, expected, "nothing");
  if (!at->is_number_unsigned()) return wrong(field, expected, shown(*at));
  const auto value = at->get<std::uint64_t>();
  if (value < least || value > most) return wrong(field, expected, shown(*at));
  return value;
}

Result<Nanos> TraceLine::millis(const char* field) const {
  const auto at = json_.find(field);
  const std::string expected = "milliseconds from 0 to 10^12";
  if (at == json_.end()) return wrong(field, expected, "nothing");
  if (!at->is_number()) return wrong(field, expected, shown(*at));
  const auto value = at->get<double>();
  if (!std::isfinite(value) || value < 0 || value > kTraceMillisMax)
    return wrong(field, expected, shown(*at));
  return static_cast<Nanos>(std::llround(value * 1e6));
}

Result<std::string> TraceLine::name(const char* field) const {
  const auto at = json_.find(field);
  if (at == json_.end()) return wrong(field, "a name or a whole number", "nothing");
  if (at->is_string()) return "s" + at->get<std::string>();
  if (at->is_number_unsigned()) return "n" + std::to_string(at->get<std::uint64_t>());
  return wrong(field, "a name or a whole number", shown(*at));
}

Result<std::vector<Piece>> TraceLine::hashes(const char* field, std::uint64_t prompt,
                                             std::uint64_t block) const {
  const auto at = json_.find(field);
  const std::uint64_t count = (prompt + block - 1) / block;
  const std::string expected = fmt::format("{} hashes for {} tokens in blocks of {}", count, prompt, block);
  if (at == json_.end()) return wrong(field, expected, "nothing");
  if (!at->is_array()) return wrong(field, expected, at->type_name());
  if (at->size() != count) return wrong(field, expected, std::to_string(at->size()));
  std::vector<Piece> pieces;
  pieces.reserve(count);
  for (const Json& hash : *at) {
    if (!hash.is_number_unsigned()) return wrong(field, "whole numbers below 2^64", shown(hash));
    const std::uint64_t left = prompt - pieces.size() * block;
    // What is after a block depends on all before it, so a part of a block is another content.
    const std::uint64_t content = mix64(hash.get<std::uint64_t>() ^ (block << 40));
    pieces.push_back({content, static_cast<std::uint32_t>(std::min(left, block))});
  }
  return pieces;
}

Result<std::vector<Piece>> TraceLine::blocks(const char* lengths, const char* field, std::uint64_t prompt,
                                             std::uint64_t reply) const {
  const Json& sizes = json_[lengths];
  const auto at = json_.find(field);
  if (at == json_.end() || !at->is_array() || at->size() != sizes.size()) {
    return wrong(field, fmt::format("{} hashes, one for each of {}", sizes.size(), lengths),
                 at == json_.end() ? "nothing"
                 : at->is_array()  ? std::to_string(at->size())
                                   : shown(*at));
  }
  std::vector<Piece> pieces;
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const Json& size = sizes[i];
    const std::uint64_t tokens = size.is_number_unsigned() ? size.get<std::uint64_t>() : 0;
    if (tokens == 0 || tokens > kTraceTokensMax)
      return wrong(lengths, fmt::format("whole numbers from 1 to {}", kTraceTokensMax), shown(size));
    const Json& hash = (*at)[i];
    if (!hash.is_number_unsigned()) return wrong(field, "whole numbers below 2^64", shown(hash));
    sum += tokens;
    if (sum > prompt + reply) break;
    pieces.push_back({mix64(hash.get<std::uint64_t>()), static_cast<std::uint32_t>(tokens)});
  }
  if (sum == prompt || sum == prompt + reply) return pieces;
  return wrong(lengths,
               fmt::format("{} tokens in all, the prompt's, or {}, with the reply's", prompt, prompt + reply),
               sum > prompt + reply ? "more" : std::to_string(sum));
}

Status each_text_line(const std::string& text, const std::string& name,
                      const std::function<Status(std::string_view, const TracePlace&)>& take) {
  std::uint64_t number = 0, lines = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string_view content = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    const TracePlace place(name, ++number);
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (content.back() == '\r') content.remove_suffix(1);
    if (++lines > kTraceRequestsMax)
      return place.wrong("file", fmt::format("at most {} requests", kTraceRequestsMax), "more");
    LOCI_RETURN_IF_ERROR(take(content, place));
  }
  if (lines == 0) return invalid_argument(name + ": expected at least one request, found none", "file");
  return {};
}

Status each_trace_line(const std::string& text, const std::string& name,
                       const std::function<Status(const TraceLine&)>& take) {
  return each_text_line(text, name, [&](std::string_view content, const TracePlace& place) -> Status {
    TraceLine line(place);
    LOCI_RETURN_IF_ERROR(line.parse(content));
    return take(line);
  });
}

}  // namespace loci::sim
