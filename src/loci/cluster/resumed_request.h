// SPDX-License-Identifier: Apache-2.0
// What a front says of the reply that it wants (serve/generation/resumed_reply.h), in the request that it
// passes on:
//
//   Loci-Reply: NAME CREATED AGAIN BYTES DIGEST SEAL
//       CREATED   seconds since 1970
//       AGAIN     1 if another instance was asked before, 2 if that one ended with the request, else 0
//       DIGEST    of the bytes below
//       SEAL      of the method, the target, the client's API key and the values
//   ...
//   the client's body, and behind it BYTES bytes: the tokens that the instance before said (write_said()),
//   or none
//
// Nobody without the cluster's secret can seal one. An unsealed one is not looked at, nor are the bytes
// behind its body.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "loci/serve/generation/resumed_reply.h"
#include "loci/serve/http/http_message.h"

namespace loci {

inline constexpr std::string_view kReplyHeader = "Loci-Reply";

// Of a cluster (cluster_reply_key(), cluster_secret.h).
using ReplyKey = std::array<std::uint8_t, 32>;

std::string random_reply_name();

// The header's line, with its end. `said` stands behind the body. `resumed.said` is not looked at.
std::string reply_header(const ReplyKey& key, const HttpRequest& request, const ResumedReply& resumed,
                         std::string_view said);

// A reply's age up to which its request begins beyond its tenant's limits. (By two machines' clocks.)
inline constexpr std::int64_t kLostBelievedSeconds = 3'600;

// Which requests another instance had admitted before it ended (ResumedReply::was_lost), so that they begin
// beyond their tenant's limits. A front asks an instance once for a reply: a header that somebody has copied
// lifts no limit again. Thread-compatible.
class LostReplies {
 public:
  static constexpr std::size_t kNamesMax = 1 << 14;  // beyond, the oldest are forgotten; their age is not

  explicit LostReplies(const ReplyKey& key) : key_(key) {}
  // Of a request whose body has not been read. True once for each reply.
  bool take(const HttpRequest& request, std::int64_t now_seconds);

 private:
  const ReplyKey key_;
  std::set<std::string, std::less<>> names_;
  std::deque<std::string> in_order_;
};

// Takes what a front says out of the request, whose body is then the client's. Absent: no front of the
// cluster says anything.
std::optional<ResumedReply> take_resumed_reply(const ReplyKey& key, HttpRequest& request);

}  // namespace loci
