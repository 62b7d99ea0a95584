// SPDX-License-Identifier: Apache-2.0
// A request that is being answered: what a handler reads it by, and answers by.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "loci/base/clock.h"
#include "loci/serve/http/http_message.h"
#include "loci/serve/wire/api_error.h"

namespace boost::asio {
class io_context;
}

namespace loci {

class Connection;

// One request and its response. Lives until the handler returns; a handler answers exactly once, by
// respond() or by begin_stream(), stream() ..., end_stream(). Network thread only.
//
// The handler begins when the header is there. It decides by the header who may ask, and asks for the body
// only then. A connection whose body nobody wanted is closed after the answer, unless little is left to skip.
class Exchange {
 public:
  // `header`: a request without its body.
  Exchange(Connection& connection, HttpRequest header, Nanos received_at);

  // Waits for the body, which is request().body then. Errors (400, 408, 413, 503), which the handler
  // answers: it did not arrive whole, in time or within the limits.
  boost::asio::awaitable<std::optional<ApiError>> read_body();

  // Where a server has as many connections as it may, a new one takes the place of one that waits for a
  // request; with a request it keeps its place. Between these calls it gives way all the same: for who has
  // not shown that it may ask. Else strangers who read what is open to all, slowly, or send a body slowly,
  // would have all connections.
  void give_way();
  void keep_place();

  const HttpRequest& request() const { return request_; }
  HttpRequest& request() { return request_; }
  // Frees the body and its share of the budget of all bodies; its values have been read.
  void drop_body();
  std::string_view path() const { return path_; }  // the target without its query
  // The client's X-Request-Id where it is acceptable, else one of our own.
  const std::string& request_id() const { return request_id_; }
  Nanos received_at() const { return received_at_; }  // the last byte of what was read of it
  int status() const { return status_; }              // of the answer; 0 before
  boost::asio::io_context& io();
  // The client is a program on this machine (as far as its address says).
  bool is_local() const;
  // Whom the request's body and answer are charged to where these are bounded (byte_budget.h): a tenant once
  // charge_to() has said so, else the client's address.
  std::string party() const;
  void charge_to(std::string party) { party_ = std::move(party); }

  // Added to whatever is answered.
  void add_header(std::string name, std::string value) {
    headers_.emplace_back(std::move(name), std::move(value));
  }

  // Instead of what was added under its name.
  void set_header(const std::string& name, std::string value) {
    std::erase_if(headers_, [&](const auto& one) { return one.first == name; });
    add_header(name, std::move(value));
  }

  // False: the client is gone; nothing more need be written.
  boost::asio::awaitable<bool> respond(HttpResponse response);
  // HEAD is answered by the head of the stream alone: what is streamed then is not written.
  boost::asio::awaitable<bool> begin_stream(std::string_view content_type, int status = 200);
  boost::asio::awaitable<bool> stream(std::string_view data);
  // Sends a short `top` and then `data` in one message.
  boost::asio::awaitable<bool> stream(std::string_view top, std::string_view data);
  boost::asio::awaitable<bool> end_stream();
  // Ends the connection instead of the stream, so that the client sees that something is missing.
  void cut_stream();

  // From now on the connection is read (what a client sends ahead is kept for its next request), so that
  // its end is noticed at once: `on_gone` is called then, once. It must stay valid until unwatch(). A client
  // that has only ended what it sends may have gone, or read from now on: it counts as gone once
  // `half_closed_patience` (ns) is over.
  void watch(std::function<void()> on_gone, Nanos half_closed_patience = 0);
  boost::asio::awaitable<void> unwatch();
  bool gone() const;
  // After unwatch(): a client that has only closed its sending half, so far as is known, may read an answer
  // that is there. It does not count as gone any more.
  void answer_half_closed();

 private:
  bool is_head() const { return request_.method == boost::beast::http::verb::head; }
  std::string head(int status, std::string_view content_type, const HttpHeaders& headers,
                   std::optional<std::size_t> body_bytes) const;

  Connection& connection_;
  HttpRequest request_;
  std::string path_;
  std::string request_id_;
  Nanos received_at_;
  HttpHeaders headers_;
  std::string party_;  // empty: the address
  int status_ = 0;
  bool chunked_ = false;
};

using ExchangeHandler = std::function<boost::asio::awaitable<void>(Exchange&)>;

}  // namespace loci
