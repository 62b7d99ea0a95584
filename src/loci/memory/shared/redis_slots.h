// SPDX-License-Identifier: Apache-2.0
// What the nodes of a Redis Cluster say of who has which key. Each key is in one of 16,384 slots, each slot
// on one node:
//
//   key "loci:1:00ff..."  ->  slot 7,123  ->  10.0.0.7:6379
//
// A node that is asked for another one's slot names that one: "MOVED 7123 10.0.0.8:6379" for good, "ASK 7123
// 10.0.0.8:6379" for this once, while the slot is on its way. (Redis Cluster Specification)
//
// Pure, of bytes that strangers write; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"

namespace loci {

inline constexpr std::uint32_t kRedisSlots = 16'384;
inline constexpr std::size_t kRedisNodesMax = 1'024;
inline constexpr std::size_t kRedisNodesBytesMax = std::size_t{4} << 20;

// CRC16 (XMODEM) of the key, or of what is between its first { and the next } if that is not empty.
std::uint32_t redis_slot(std::string_view key);

struct RedisPlace {
  std::string host;  // empty: that of whoever said it
  std::uint16_t port = 0;
  friend bool operator==(const RedisPlace&, const RedisPlace&) = default;
};

struct RedisSlotRange {
  std::uint32_t first = 0, last = 0;  // both are in it
  RedisPlace place;
  friend bool operator==(const RedisSlotRange&, const RedisSlotRange&) = default;
};

// What `CLUSTER NODES` says: the slots of the nodes that have some and are not said to have failed; slots on
// their way are where they come from. Errors: kInvalidArgument naming the line, of a text that is none, has
// too much, or gives a slot to two nodes.
Result<std::vector<RedisSlotRange>> parse_redis_nodes(std::string_view text);

struct RedisRedirect {
  bool is_for_once = false;  // ASK
  std::uint32_t slot = 0;
  RedisPlace place;
};
// Absent: an error of another kind.
std::optional<RedisRedirect> parse_redis_redirect(std::string_view error);

// The node cannot serve the key now, but others may serve theirs: it loads, or knows too few others.
bool says_redis_away(std::string_view error);

}  // namespace loci
