// SPDX-License-Identifier: Apache-2.0
// What a member of a cluster says about itself: a text with a seal (HMAC) that only a holder of the cluster's
// secret can make. The text contains the time at which it was written, by the database's clock, so a copied
// seal is worthless after five seconds.
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

// A member that has not renewed its row for this long, by the database's clock, counts as dead.
inline constexpr Nanos kMemberLifetime = 5 * kNanosPerSecond;
inline constexpr Nanos kMemberRenewal = kNanosPerSecond;
// A stop waits this long for a database that does not answer.
inline constexpr Nanos kMemberStopWait = 3 * kNanosPerSecond;

// What fronts send a member (docs/cluster.md#prompts-and-replies-on-separate-servers). It serves whatever it
// is asked for.
enum class MemberRole : std::uint8_t {
  kBoth,     // requests; where there are prefill members, they may compute the prompts of these
  kPrefill,  // no requests of clients while others live: it computes prompts for members that ask
  kDecode,   // as kBoth
};
// "both", "prefill", "decode". Errors: kInvalidArgument.
Result<MemberRole> parse_member_role(std::string_view text);
std::string_view member_role_name(MemberRole role);

// Of one tier of a member's memory of state: slots for blocks' parts.
struct MemberSlots {
  std::uint32_t held = 0;  // have state
  std::uint32_t all = 0;   // 0: the member has no such tier
};
inline constexpr std::array<const char*, 3> kMemberTiers = {"device", "host", "disk"};

// How a member serves requests that name a model: not at all; as any name (option any_model); by that name.
enum class ServedAs : std::uint8_t { kNothing, kAnything, kNamed };

struct Member {
  std::string id;    // 16 hexadecimal digits, drawn at the member's start
  std::string host;  // the host at which other machines reach it
  std::uint16_t port = 0;
  bool tls = false;
  std::vector<std::string> models;  // names that requests may use, the model's own first
  bool any_model = false;           // it serves requests for any model
  // These must be equal among members that serve a model of the same name.
  std::string fingerprint;  // of the weights
  std::string numerics;     // version of the numerics, and the layout of the state
  std::uint32_t block_tokens = 0;

  std::uint32_t running = 0;  // requests
  std::uint32_t queued = 0;
  std::array<MemberSlots, kMemberTiers.size()> slots{};  // as kMemberTiers
  bool draining = false;                                 // fronts send it no new work
  std::string version;                                   // of the program
  std::string store;            // its name in the conversation store; empty: it has none
  std::uint16_t peer_port = 0;  // port on `host` at which it gives state to members; 0: it gives none
  MemberRole role = MemberRole::kBoth;

  std::string address() const;  // "host:port", "[::1]:port"
  ServedAs serves(std::string_view model) const;
};

inline constexpr std::size_t kMemberBytesMax = 16 << 10;

// One line of JSON. `at_ms`: milliseconds since 1970 by the database's clock.
std::string write_member(const Member& member, std::int64_t at_ms);

// Whether others read the row of a member with such names. Errors: kInvalidArgument naming `alias` and the
// limit.
Status check_names(const Member& member);

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
// Takes the same time, wherever the seals differ.
bool is_sealed(const MemberKey& key, std::string_view purpose, std::string_view text, std::string_view seal);

// Errors: kInvalidArgument if the two cannot be members of one cluster, because models of the same name
// differ. The message names both values.
Status check_alike(const Member& member, const Member& other);

std::string random_member_id();

}  // namespace loci
