// SPDX-License-Identifier: Apache-2.0
// One client's connection: reads requests within the limits, hands each to the handler as an Exchange,
// writes what it answers. All of it on the network thread, as one coroutine; nothing here blocks.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/clock.h"
#include "loci/serve/http/body_budget.h"
#include "loci/serve/http/http_message.h"
#include "loci/serve/http/http_socket.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/serve/wire/api_error.h"

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

  // Waits for the body, which is request().body() then. Errors (400, 408, 413, 503), which the handler
  // answers: it did not arrive whole, in time or within the limits.
  boost::asio::awaitable<std::optional<ApiError>> read_body();

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

  // Added to whatever is answered.
  void add_header(std::string name, std::string value) {
    headers_.emplace_back(std::move(name), std::move(value));
  }

  // False: the client is gone; nothing more need be written.
  boost::asio::awaitable<bool> respond(HttpResponse response);
  boost::asio::awaitable<bool> begin_stream(std::string_view content_type, int status = 200);
  boost::asio::awaitable<bool> stream(std::string_view data);
  boost::asio::awaitable<bool> end_stream();
  // Ends the connection instead of the stream, so that the client sees that something is missing.
  void cut_stream();

  // From now on the connection is read (what a client sends ahead is kept for its next request), so that
  // its end is noticed at once: `on_gone` is called then, once. It must stay valid until unwatch().
  void watch(std::function<void()> on_gone);
  boost::asio::awaitable<void> unwatch();
  bool gone() const;

 private:
  std::string head(int status, std::string_view content_type, const HttpHeaders& headers,
                   std::optional<std::size_t> body_bytes) const;

  Connection& connection_;
  HttpRequest request_;
  std::string path_;
  std::string request_id_;
  Nanos received_at_;
  HttpHeaders headers_;
  int status_ = 0;
  bool chunked_ = false;
};

using ExchangeHandler = std::function<boost::asio::awaitable<void>(Exchange&)>;

// What all connections of a server share. Must outlive them.
struct ConnectionContext {
  boost::asio::io_context& io;
  const HttpLimits& limits;
  const Clock& clock;
  ServeMetrics& metrics;
  ExchangeHandler handler;
  BodyBudget bodies;
  bool stopping = false;  // answers close their connections
  // In their TLS handshake, the oldest first; kept where HttpLimits::greetings_max bounds them.
  std::deque<Connection*> greeting{};
  std::uint32_t refusals_held = 0;  // hold_refusal()
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // `tls`: null where the connection is plain.
  Connection(boost::asio::ip::tcp::socket socket, TlsContext tls, ConnectionContext& context);

  // Until the connection has ended. The caller keeps the connection alive.
  boost::asio::awaitable<void> run();
  // Ends the connection: at once, or after the answer that is being written.
  void close_now();
  void close_when_idle();

 private:
  friend class Exchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // What has become of the request's body.
  enum class BodyState : std::uint8_t { kUnread, kRead, kFailed };

  // False: no handshake came about, in time or at all.
  boost::asio::awaitable<bool> accept_tls();
  boost::asio::awaitable<bool> read_header(bool first);
  boost::asio::awaitable<std::optional<ApiError>> read_body(HttpRequest& request);
  // Reads past a body that nobody wants. False: the connection is to end.
  boost::asio::awaitable<bool> skip_body();
  bool may_skip_body();
  // Called before an answer, whose header says if the connection ends after it.
  void before_answer();
  // A client that sends again as soon as it was refused would have the network thread refuse hundreds of
  // requests a second. So the first 64 of those that were refused by their header alone wait 50 ms for their
  // answer.
  boost::asio::awaitable<void> hold_refusal();
  // The answer to a request that cannot be read; absent: the client has gone.
  std::optional<ApiError> reason(boost::system::error_code error);
  boost::asio::awaitable<void> refuse(boost::system::error_code error);
  boost::asio::awaitable<void> linger();
  // Tells the client that nothing more comes, unless that would take long.
  boost::asio::awaitable<void> end_sending();
  boost::asio::awaitable<bool> write(std::array<boost::asio::const_buffer, 3> buffers);

  // Past the deadline whatever the socket does is cancelled.
  void set_deadline(Nanos from_now);
  void clear_deadline();
  void arm_watchdog();

  void watch_read();

  HttpSocket socket_;
  ConnectionContext& context_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer watchdog_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::chrono::steady_clock::time_point armed_for_ = std::chrono::steady_clock::time_point::max();
  std::optional<Parser> parser_;  // of the request that is read or answered
  BodyState body_ = BodyState::kUnread;
  BodyBudget::Charge body_charge_;  // of the same
  bool timed_out_ = false;
  bool keep_alive_ = true;
  bool idle_ = true;
  bool closing_ = false;

  // Watching for the client's end while an answer is made.
  boost::asio::cancellation_signal watch_cancel_;
  boost::asio::steady_timer watch_ended_;
  std::function<void()> on_gone_;
  bool watch_reading_ = false;
  bool watch_stopping_ = false;
  bool gone_ = false;
};

}  // namespace loci
