// SPDX-License-Identifier: Apache-2.0
// Which instance gets a request (MemServe, section 6): pure decisions over what a front knows.
//
// - kFirstToken predicts the time to the first token. An instance first computes what it was sent before and
//   has not answered yet, then the part of this request that it has not seen. Both are counted in bytes of
//   text, because all instances of a model are taken to compute alike; replies that are being written slow an
//   instance down a little. An example: 6,000 bytes, of which A has seen 5,000. A has 2,000 bytes before it,
//   B nothing: A is predicted to take 3,000, B 6,000. With 8,000 bytes before it A would take 9,000, and B
//   gets the request.
// - kSession keeps a conversation where it is; a new one goes where its key's rank is highest (rendezvous
//   hashing), so that fronts agree without asking one another and few conversations move when instances come
//   and go.
// - kLeastLoad takes who has the fewest requests.
//
// Thread-safe: pure functions. Deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace loci {

enum class RoutingPolicy : std::uint8_t { kFirstToken, kSession, kLeastLoad };

// "first-token", "session", "least-load"; none: no policy of that name.
std::optional<RoutingPolicy> parse_routing_policy(std::string_view name);

struct RoutedTo {
  std::uint32_t instance = 0;      // its number
  std::uint64_t rank = 0;          // for rendezvous hashing: a hash of the instance's name
  std::uint32_t requests = 0;      // that run or wait there
  std::uint64_t bytes_before = 0;  // of text that it was sent and has not begun to answer
  std::uint64_t bytes_seen = 0;    // of this request's text
  bool is_home = false;            // the conversation's last turn was there
};

struct RoutedRequest {
  std::uint64_t bytes = 0;    // of text that the model must have seen
  std::uint64_t session = 0;  // the same for all requests of a conversation
};

// What a reply that is being written counts for, in bytes of text.
inline constexpr std::uint64_t kBytesOfReply = 256;

// The place in `instances`; nothing where there is none.
std::optional<std::size_t> route(RoutingPolicy policy, const RoutedRequest& request,
                                 std::span<const RoutedTo> instances);

}  // namespace loci
