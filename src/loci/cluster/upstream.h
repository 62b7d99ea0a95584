// SPDX-License-Identifier: Apache-2.0
// Connections of a front to its instances: made when they are needed, kept for the next request where the
// instance lets them. HTTP/1.1, TLS where the member says so.
//
// Network thread only.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/buffer_body.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"
#include "loci/cluster/member.h"
#include "loci/serve/http/http_message.h"
#include "loci/serve/http/http_socket.h"

namespace loci {

// One request at a time.
class Upstream {
 public:
  Upstream(boost::asio::io_context& io, TlsContext tls);

  // Errors: kUnavailable; of a member that is not trusted kInvalidArgument.
  boost::asio::awaitable<Status> connect(const Member& member, Nanos timeout);
  // Whether it was closed, or something came that nobody asked for, while it was idle.
  bool is_stale();
  // `head`: the request's lines up to the empty one. False: it could not be sent.
  boost::asio::awaitable<bool> send(std::string_view head, std::string_view body);
  // The answer's header; null: none that can be read.
  using Header = boost::beast::http::response_header<>;
  boost::asio::awaitable<const Header*> read_header(bool is_head_request);
  std::optional<std::uint64_t> content_length() const;  // where it says one
  // More of the body: empty at its end. Nothing: it broke before its end.
  boost::asio::awaitable<std::optional<std::string_view>> read_piece();
  // After the body's end, or when it is connected: another request may follow.
  bool is_reusable() const;
  // Whatever goes on ends with an error. From any coroutine.
  void close();
  // Closes it when it is not done by then; in place of an earlier deadline.
  void set_deadline(Nanos from_now);
  bool timed_out() const { return state_->has_timed_out; }  // since the latest set_deadline()

 private:
  static constexpr std::size_t kPieceBytes = 64 << 10;
  using Parser = boost::beast::http::response_parser<boost::beast::http::buffer_body>;

  // Shared with the deadline, which may come when the connection is gone.
  struct State {
    State(boost::asio::io_context& io, TlsContext tls);
    void close();

    HttpSocket socket;
    boost::asio::steady_timer resolved;  // cancelled when the name's addresses are there, or not waited for
    std::uint64_t deadline = 0;          // its number
    bool has_timed_out = false;
    bool is_closed = false;
  };

  using Endpoints = boost::asio::ip::tcp::resolver::results_type;
  boost::asio::awaitable<boost::system::error_code> look_up(const Member& member, Endpoints& found);

  boost::asio::io_context& io_;
  const std::shared_ptr<State> state_;
  boost::asio::steady_timer timer_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::vector<char> piece_;
};

// Idle connections, by the instance's number.
class UpstreamPool {
 public:
  // `idle_max`: kept of an instance.
  explicit UpstreamPool(boost::asio::io_context& io, std::size_t idle_max = 256)
      : io_(io), idle_max_(idle_max) {}

  // Trusted by members that speak TLS.
  void trust(TlsContext tls) { tls_ = std::move(tls); }
  // One that is idle and not stale; null: none.
  std::unique_ptr<Upstream> take(std::uint32_t instance);
  std::unique_ptr<Upstream> make(const Member& member);
  void give(std::uint32_t instance, std::unique_ptr<Upstream> connection);
  void drop(std::uint32_t instance) { idle_.erase(instance); }

 private:
  static constexpr std::chrono::seconds kIdleTime =
      std::chrono::seconds(30);  // less than a server keeps them

  struct Idle {
    std::unique_ptr<Upstream> connection;
    std::chrono::steady_clock::time_point since;
  };
  boost::asio::io_context& io_;
  const std::size_t idle_max_;
  TlsContext tls_;
  std::map<std::uint32_t, std::vector<Idle>> idle_;
};

}  // namespace loci
