// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_slots.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>

#include "loci/base/ascii.h"

namespace loci {
namespace {

constexpr std::array<std::uint16_t, 256> make_crc_table() {
  std::array<std::uint16_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte << 8;
    for (int bit = 0; bit < 8; ++bit) value = (value & 0x8000) != 0 ? value << 1 ^ 0x1021 : value << 1;
    table[byte] = static_cast<std::uint16_t>(value);
  }
  return table;
}
constexpr std::array<std::uint16_t, 256> kCrcTable = make_crc_table();

std::optional<std::uint32_t> slot_number(std::string_view text, std::uint32_t most) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

// What is before the next `mark`, which is taken too.
std::string_view next_part(std::string_view& text, char mark) {
  const std::string_view part = text.substr(0, text.find(mark));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

// "10.0.0.7:6379", "::1:6379", ":6379".
std::optional<RedisPlace> parse_place(std::string_view text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || !may_be_host(text.substr(0, colon))) return std::nullopt;
  const std::optional<std::uint32_t> port = slot_number(text.substr(colon + 1), UINT16_MAX);
  if (!port || *port == 0) return std::nullopt;
  return RedisPlace{.host = std::string(text.substr(0, colon)), .port = static_cast<std::uint16_t>(*port)};
}

// "10.0.0.7:6379@16379,cache-7,shard-id=...". A name, where one is given, is what clients are to use:
// certificates are for names.
std::optional<RedisPlace> parse_node_place(std::string_view text) {
  const std::string_view address = next_part(text, ',');
  const std::string_view name = next_part(text, ',');
  std::optional<RedisPlace> place = parse_place(address.substr(0, address.find('@')));
  const bool is_name = !name.empty() && name != "?" && name.find('=') == std::string_view::npos;
  if (place && is_name && may_be_host(name)) place->host = name;
  return place;
}

bool has_flag(std::string_view flags, std::string_view wanted) {
  while (!flags.empty()) {
    if (next_part(flags, ',') == wanted) return true;
  }
  return false;
}

// The ranges of one line. False: the line is wrong.
bool parse_line(std::string_view line, std::vector<RedisSlotRange>& ranges) {
  std::array<std::string_view, 8> fields;
  for (std::string_view& field : fields) {
    if (line.empty()) return false;
    field = next_part(line, ' ');
  }
  const bool serves = has_flag(fields[2], "master") && !has_flag(fields[2], "fail");
  const std::optional<RedisPlace> place = parse_node_place(fields[1]);
  while (!line.empty()) {
    const std::string_view range = next_part(line, ' ');
    if (range.empty()) return false;
    if (range.front() == '[') continue;  // on its way
    const std::size_t dash = range.find('-');
    const std::optional<std::uint32_t> first = slot_number(range.substr(0, dash), kRedisSlots - 1);
    const std::optional<std::uint32_t> last =
        dash == std::string_view::npos ? first : slot_number(range.substr(dash + 1), kRedisSlots - 1);
    if (!first || !last || *last < *first) return false;
    if (!serves) continue;
    if (!place) continue;  // a node that has just lost its address serves nobody
    ranges.push_back({.first = *first, .last = *last, .place = *place});
  }
  return true;
}

}  // namespace

std::uint32_t redis_slot(std::string_view key) {
  const std::size_t open = key.find('{');
  if (open != std::string_view::npos) {
    const std::size_t close = key.find('}', open + 1);
    if (close != std::string_view::npos && close > open + 1) key = key.substr(open + 1, close - open - 1);
  }
  std::uint32_t crc = 0;
  for (const char c : key)
    crc = (crc << 8 & 0xffff) ^ kCrcTable[(crc >> 8 ^ static_cast<std::uint8_t>(c)) & 0xff];
  return crc % kRedisSlots;
}

Result<std::vector<RedisSlotRange>> parse_redis_nodes(std::string_view text) {
  if (text.size() > kRedisNodesBytesMax)
    return invalid_argument(
        fmt::format("expected at most {} bytes, found {}", kRedisNodesBytesMax, text.size()));
  std::vector<RedisSlotRange> ranges;
  for (int number = 1; !text.empty(); ++number) {
    std::string_view line = next_part(text, '\n');
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.empty() && (!parse_line(line, ranges) || ranges.size() > kRedisSlots))
      return invalid_argument(fmt::format("line {} of CLUSTER NODES is none that is known", number));
  }
  std::sort(ranges.begin(), ranges.end(),
            [](const RedisSlotRange& a, const RedisSlotRange& b) { return a.first < b.first; });
  std::set<std::pair<std::string_view, std::uint16_t>> places;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    if (i > 0 && ranges[i].first <= ranges[i - 1].last)
      return invalid_argument(fmt::format("CLUSTER NODES gives slot {} to two nodes", ranges[i].first));
    places.emplace(ranges[i].place.host, ranges[i].place.port);
  }
  if (places.size() > kRedisNodesMax)
    return invalid_argument(
        fmt::format("expected at most {} nodes with slots, found {}", kRedisNodesMax, places.size()));
  if (ranges.empty()) return invalid_argument("CLUSTER NODES names no node that has slots");
  return ranges;
}

std::optional<RedisRedirect> parse_redis_redirect(std::string_view error) {
  const std::string_view kind = next_part(error, ' ');
  if (kind != "MOVED" && kind != "ASK") return std::nullopt;
  const std::optional<std::uint32_t> slot = slot_number(next_part(error, ' '), kRedisSlots - 1);
  const std::optional<RedisPlace> place = parse_place(error);
  if (!slot || !place) return std::nullopt;
  return RedisRedirect{.is_for_once = kind == "ASK", .slot = *slot, .place = *place};
}

bool says_redis_away(std::string_view error) {
  const std::string_view kind = next_part(error, ' ');
  return kind == "CLUSTERDOWN" || kind == "LOADING" || kind == "MASTERDOWN" || kind == "TRYAGAIN";
}

}  // namespace loci
