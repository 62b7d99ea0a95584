// SPDX-License-Identifier: Apache-2.0
// What a member of a cluster says of itself, and how nobody else can say it: a text under a seal (HMAC) whose
// key follows from the cluster's secret. The text holds the time at which it was written, by the database's
// clock, so a seal that was seen once is worth nothing five seconds later.
//
// Values; thread-compatible.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"

namespace loci {

// Seals what members write; see cluster_member_key() (cluster/cluster_secret.h).
using MemberKey = std::array<std::uint8_t, 32>;

// A member that has not said for so long that it lives is taken for dead, by the database's clock.
inline constexpr Nanos kMemberLifetime = 5 * kNanosPerSecond;
inline constexpr Nanos kMemberRenewal = kNanosPerSecond;
// A stop waits so long for a database that stands still.
inline constexpr Nanos kMemberStopWait = 3 * kNanosPerSecond;

struct Member {
  std::string id;    // 16 hexadecimal digits, drawn at the member's start
  std::string host;  // where other machines reach it
  std::uint16_t port = 0;
  bool tls = false;
  std::vector<std::string> models;  // names that requests may use, the model's own first
  bool any_model = false;           // it serves whatever model a request names
  // What must be equal among members that serve a model of one name.
  std::string fingerprint;  // of the weights
  std::string numerics;     // version of the numerics, and the layout of the state
  std::uint32_t block_tokens = 0;

  std::uint32_t running = 0;  // requests
  std::uint32_t queued = 0;
  bool draining = false;        // takes no new work from fronts
  std::string version;          // of the program
  std::string store;            // its name in the conversation store; empty: it says none
  std::uint16_t peer_port = 0;  // where it gives members state, of `host`; 0: it gives none

  std::string address() const;  // "host:port", "[::1]:port"
  bool serves(std::string_view model) const;
};

inline constexpr std::size_t kMemberBytesMax = 16 << 10;

// One line of JSON. `at_ms`: milliseconds since 1970 by the database's clock.
std::string write_member(const Member& member, std::int64_t at_ms);

struct SaidMember {
  Member member;
  std::int64_t at_ms = 0;
};
// Errors: kInvalidArgument naming the field.
Result<SaidMember> read_member(std::string_view text);

// "10.0.0.7:8080", "[::1]:8080", "node-3:8080". Errors: kInvalidArgument.
Result<std::pair<std::string, std::uint16_t>> parse_member_address(std::string_view text);

// Hexadecimal. `purpose` keeps texts of different meaning apart.
std::string seal(const MemberKey& key, std::string_view purpose, std::string_view text);
// Takes the same time wherever seals differ.
bool is_sealed(const MemberKey& key, std::string_view purpose, std::string_view text, std::string_view seal);

// What keeps both from being members of one cluster: a model of one name that is not the same. The message
// names both values.
Status check_alike(const Member& member, const Member& other);

std::string random_member_id();

}  // namespace loci
