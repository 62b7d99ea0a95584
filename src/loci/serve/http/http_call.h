// SPDX-License-Identifier: Apache-2.0
// One HTTP request on a connection of its own, as a coroutine. The thread that runs the io_context does
// everything; nothing is shared.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/verb.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/serve/http/http_socket.h"
#include "loci/serve/http/server_address.h"

namespace loci {

// A server whose name has been looked up.
struct CalledServer {
  ServerAddress address;
  boost::asio::ip::tcp::resolver::results_type endpoints;
};

struct CallRequest {
  boost::beast::http::verb method = boost::beast::http::verb::get;
  std::string path;
  std::string body;  // JSON; empty: none
  // Further ones, names and values, which whoever calls has checked: no line end may be in one.
  std::vector<std::pair<std::string, std::string>> headers = {};
  Nanos timeout = 0;  // of all of it; 0: it takes as long as it takes
};

struct HttpAnswer {
  // Not ok: no connection was made, it broke, or time ran out. kInvalidArgument: the server's certificate is
  // not trusted, or the call is to speak TLS and the server does not.
  Status status;
  int code = 0;
  // Of the header Retry-After, where that is a number of seconds (at most a day); 0: there is none.
  Nanos retry_after = 0;
  std::string body;  // of an answer other than 200, or where there is no sink; cut at 16 MiB
  Nanos sent = 0;    // when the request was handed to the kernel, on a connection that stood
  Nanos ended = 0;
};

// Gets the body of a 200 piece by piece with the time at which it came; returns whether it wants more.
using HttpSink = std::function<bool(std::string_view, Nanos)>;

// `server` and `clock` must outlive the call.
boost::asio::awaitable<HttpAnswer> http_call(const CalledServer& server, const Clock& clock,
                                             CallRequest request, HttpSink sink);

// The same by a thread that waits for it, with the name looked up first. Thread-safe.
HttpAnswer call_and_wait(const ServerAddress& address, CallRequest request);

}  // namespace loci
