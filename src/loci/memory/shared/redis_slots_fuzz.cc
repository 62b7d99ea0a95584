// SPDX-License-Identifier: Apache-2.0
// Fuzzes what reads the words of a Redis Cluster's nodes: maps and redirections.
#include <cstdint>
#include <string>
#include <string_view>

#include "loci/memory/shared/redis_slots.h"

namespace {

void expect(bool condition) {
  if (!condition) __builtin_trap();
}

bool is_place(const loci::RedisPlace& place) { return place.port > 0 && place.host.size() <= 253; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  expect(loci::redis_slot(text) < loci::kRedisSlots);
  if (const auto redirect = loci::parse_redis_redirect(text))
    expect(redirect->slot < loci::kRedisSlots && is_place(redirect->place));
  (void)loci::says_redis_away(text);
  const auto ranges = loci::parse_redis_nodes(text);
  if (!ranges.ok()) return 0;
  // What was read says the same when it is written by the rules.
  std::string again;
  std::uint32_t next = 0;
  for (const loci::RedisSlotRange& range : *ranges) {
    expect(range.first >= next && range.last >= range.first && range.last < loci::kRedisSlots);
    expect(is_place(range.place));
    next = range.last + 1;
    again += "id " + range.place.host + ":" + std::to_string(range.place.port) +
             "@1 master - 0 0 1 connected " + std::to_string(range.first) + "-" + std::to_string(range.last) +
             "\n";
  }
  const auto second = loci::parse_redis_nodes(again);
  expect(second.ok() && *second == *ranges);
  return 0;
}
