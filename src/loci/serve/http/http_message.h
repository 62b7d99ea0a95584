// SPDX-License-Identifier: Apache-2.0
// The values of a request and of a response, and the limits of a connection.
#pragma once

#include <ostream>  // before verb.hpp, which needs it and does not include it

#include <boost/beast/http/verb.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/clock.h"

namespace loci {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  boost::beast::http::verb method = boost::beast::http::verb::get;
  std::string method_text = "GET";  // as the client wrote it, also where `method` is `unknown`
  std::string target;               // path and query; see take_authority()
  unsigned version = 11;            // 10: HTTP/1.0
  HttpHeaders headers;              // in the client's order
  bool is_chunked = false;          // the body comes in chunks: no header says its length
  std::string body;

  // The first header of that name, whose case does not matter; empty where there is none.
  std::string_view header(std::string_view name) const { return find(name).value_or(std::string_view()); }
  // Absent: there is none.
  std::optional<std::string_view> find(std::string_view name) const;
};

// A target as it is written to a proxy, which every server takes too (RFC 9112, 3.2.2):
// "http://host:8080/path?query". Views of the target.
struct AbsoluteTarget {
  std::string_view authority;  // "host:8080"
  std::string_view rest;       // "/path?query", "?query" or empty
};
// Absent: the target is of another form.
std::optional<AbsoluteTarget> absolute_target(std::string_view target);
// The path and query that such a target means, in its place; and its authority in place of Host, whatever
// that header says.
void take_authority(HttpRequest& request);

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HttpHeaders headers;
  // Of an answer to HEAD that somebody else made, who left the body out: how long that is. Absent: `body` is
  // there.
  std::optional<std::uint64_t> body_bytes = {};
};

struct HttpLimits {
  std::uint64_t body_bytes_max = std::uint64_t{8} << 20;
  std::uint64_t bodies_bytes_max = std::uint64_t{256} << 20;  // of all requests together; see byte_budget.h
  std::uint32_t header_bytes_max = 64 << 10;
  // A further one closes the one that has waited longest for a request or its header; where all have requests
  // it is turned away.
  std::size_t connections_max = 1024;
  // Connections in their TLS handshake, which do not count among those; a new one closes the oldest, and
  // closes one of the others only when it has done its handshake. 0: there is no such limit, and they count
  // as all others that wait.
  std::size_t greetings_max = 0;
  // Of a hello that OpenSSL sees only when it is whole (TlsStream::handshake()); 0: it sees each byte.
  std::size_t hello_bytes_max = 0;
  Nanos header_timeout = 10 * kNanosPerSecond;      // from a request's first byte (or the connection's start)
  Nanos body_timeout = 60 * kNanosPerSecond;        // from the body's first wait to its end
  Nanos body_stall_timeout = 10 * kNanosPerSecond;  // without a byte of it
  Nanos idle_timeout = 75 * kNanosPerSecond;        // between two requests
  Nanos write_timeout = 60 * kNanosPerSecond;       // without the client taking anything
  // Of an answer, or of a part of one that streams: it may take `write_timeout` and its bytes at this rate.
  std::uint64_t write_rate_min = 64 << 10;      // bytes a second; more than 0
  Nanos turned_away_timeout = kNanosPerSecond;  // of a connection beyond the limit, until it has read why
};

}  // namespace loci
