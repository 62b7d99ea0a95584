// SPDX-License-Identifier: Apache-2.0
// What a front says of the reply that it wants (serve/generation/resumed_reply.h), in the request that it
// passes on:
//
//   Loci-Reply: NAME CREATED AGAIN BYTES DIGEST SEAL
//       CREATED   seconds since 1970
//       AGAIN     1 if another instance was asked before, 2 if that one ended with the request, else 0
//       DIGEST    of the bytes below
//       SEAL      of the values
//   ...
//   the client's body, and behind it BYTES bytes: the tokens that the instance before said (write_said()),
//   or none
//
// Nobody without the cluster's secret can seal one. An unsealed one is not looked at, nor are the bytes
// behind its body.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
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
// ResumedReply::was_lost, of a request whose body has not been read.
bool was_lost(const ReplyKey& key, const HttpRequest& request);
// Takes what a front says out of the request, whose body is then the client's. Absent: no front of the
// cluster says anything.
std::optional<ResumedReply> take_resumed_reply(const ReplyKey& key, HttpRequest& request);

}  // namespace loci
