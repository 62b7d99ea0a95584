// SPDX-License-Identifier: Apache-2.0
// One client's connection: reads requests within the limits, hands each to the handler as an Exchange,
// writes what it answers. All of it on the network thread, as one coroutine; nothing here blocks. Includes
// Asio's sockets and Beast's parser, which exchange.h, all that handlers include, does not.
#pragma once

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "loci/base/clock.h"
#include "loci/serve/http/byte_budget.h"
#include "loci/serve/http/exchange.h"
#include "loci/serve/http/http_message.h"
#include "loci/serve/http/http_socket.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/serve/wire/api_error.h"

namespace loci {

// What all connections of a server share. Must outlive them.
struct ConnectionContext {
  boost::asio::io_context& io;
  const HttpLimits& limits;
  const Clock& clock;
  ServeMetrics& metrics;
  ExchangeHandler handler;
  ByteBudget bodies;
  bool stopping = false;  // answers close their connections
  std::set<Connection*> all{};
  // In their TLS handshake, the oldest first, where HttpLimits::greetings_max bounds them.
  std::deque<Connection*> greeting{};
  // Without a request, the one that has waited longest for it first; those in their TLS handshake too, where
  // nothing bounds these, and those whose request gives way (Exchange::give_way()) or has been answered.
  std::list<Connection*> waiting{};
  std::uint32_t refusals_held = 0;  // hold_refusal()

  // Closes the connection that has waited longest. False: all have requests, or at least those few that are
  // looked at. O(1), though it looks into sockets.
  bool make_room();
};

// A connection's place among those that wait, as long as this lives.
class WaitingPlace {
 public:
  WaitingPlace(ConnectionContext& context, Connection* connection)
      : list_(context.waiting), at_(list_.insert(list_.end(), connection)) {}
  ~WaitingPlace() { list_.erase(at_); }
  WaitingPlace(const WaitingPlace&) = delete;
  WaitingPlace& operator=(const WaitingPlace&) = delete;
  void begin_again() { list_.splice(list_.end(), list_, at_); }

 private:
  std::list<Connection*>& list_;
  std::list<Connection*>::iterator at_;
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
  // Nothing of a request has come, or a part of its header that was read and is waited behind, or its request
  // gives way; and it is not closed already.
  bool may_be_closed();

 private:
  friend class Exchange;
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;

  // What has become of the request's body.
  enum class BodyState : std::uint8_t { kUnread, kRead, kFailed };

  // False: no handshake came about, in time or at all.
  boost::asio::awaitable<bool> accept_tls();
  // After a handshake of those that are bounded, if there are too many connections: closes another one.
  // False: it can't.
  bool take_place();
  boost::asio::awaitable<bool> read_header(bool first);
  // `party`: whom the body is charged to.
  boost::asio::awaitable<std::optional<ApiError>> read_body(HttpRequest& request, std::string party);
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
  // Answers a request that is not handed on, and ends the connection.
  boost::asio::awaitable<void> refuse(ApiError error);
  boost::asio::awaitable<void> linger();
  // Tells the client that nothing more comes, unless that would take long.
  boost::asio::awaitable<void> end_sending();
  // The client has to take something within HttpLimits::write_timeout, again and again, and all of it at
  // HttpLimits::write_rate_min.
  boost::asio::awaitable<bool> write(std::array<boost::asio::const_buffer, 3> buffers);

  // Past the deadline whatever the socket does is cancelled.
  void set_deadline(Nanos from_now);
  void clear_deadline();
  void arm_watchdog();

  void watch_read();
  void client_gone();
  // It has ended what it sends: it is taken for gone once half_closed_patience_ is over.
  void await_half_closed();

  HttpSocket socket_;
  ConnectionContext& context_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer watchdog_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::time_point::max();
  std::chrono::steady_clock::time_point armed_for_ = std::chrono::steady_clock::time_point::max();
  std::optional<Parser> parser_;  // of the request that is read or answered
  BodyState body_ = BodyState::kUnread;
  ByteBudget::Charge body_charge_;  // of the same, to the request's party
  bool timed_out_ = false;
  bool keep_alive_ = true;
  bool idle_ = true;
  bool closing_ = false;
  std::optional<WaitingPlace> waits_;
  bool gives_way_ = false;  // whatever has arrived

  // Watching for the client's end while an answer is made.
  boost::asio::cancellation_signal watch_cancel_;
  boost::asio::steady_timer watch_ended_;
  boost::asio::steady_timer half_closed_timer_;
  Nanos half_closed_patience_ = 0;
  std::function<void()> on_gone_;
  bool watch_reading_ = false;
  bool watch_stopping_ = false;
  bool gone_ = false;
  bool half_closed_ = false;  // it ended what it sends, as a client does that has gone or only reads now
};

}  // namespace loci
