// SPDX-License-Identifier: Apache-2.0
// Connections of a front to its instances, and of a member to its peers. They are made when they are needed,
// and kept for the next request if the other side allows it. HTTP/1.1, with TLS if the member's row says so.
//
// Network thread only.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
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
  ~Upstream();

  // Errors: kUnavailable; kInvalidArgument if the member's certificate is not trusted.
  boost::asio::awaitable<Status> connect(const Member& member, Nanos timeout);
  // True: while idle it was closed, or something came that was not asked for.
  bool is_stale();
  // Sends a request. `head`: its lines up to the empty one. False: it could not be sent.
  boost::asio::awaitable<bool> send(std::string_view head, std::string_view body);
  // Reads the answer's header; null: no valid one came. If `quiet` says something, it does so whenever that
  // has taken `limit`.
  using Header = boost::beast::http::response_header<>;
  struct Quiet {
    Nanos limit = 0;
    std::function<boost::asio::awaitable<void>()> say = nullptr;
  };
  boost::asio::awaitable<const Header*> read_header(bool is_head_request, Quiet quiet);
  boost::asio::awaitable<const Header*> read_header(bool is_head_request) {
    return read_header(is_head_request, Quiet());
  }
  std::optional<std::uint64_t> content_length() const;  // if the header has one
  // Reads more of the body; empty at its end. Absent: the connection broke before its end. What it returns is
  // valid until the next call.
  boost::asio::awaitable<std::optional<std::string_view>> read_piece() { return read_more({}, kPieceBytes); }
  // The same for a caller that knows how much will come. Bytes of a chunk may be read straight into `room`,
  // from its beginning on, which saves a copy. What is returned lies there, or in a buffer of the connection,
  // which takes little at once.
  boost::asio::awaitable<std::optional<std::string_view>> read_piece(std::span<std::byte> room) {
    return read_more(room, kBehindBytes);
  }
  // Reads all of the body. Absent: the connection broke before its end, or it is longer than `bytes_max`.
  boost::asio::awaitable<std::optional<std::string>> read_body(std::uint64_t bytes_max);
  // True after the body's end, or directly after connect(): another request may follow.
  bool is_reusable() const;
  // Gives back the memory of its buffers; the next request takes it again. Only of a connection that
  // is_reusable().
  void rest();
  // Ends all running operations with an error. Any coroutine may call it.
  void close();
  // Closes the connection if it is not done by then. Replaces an earlier deadline, which costs nothing where
  // the new one is later.
  void set_deadline(Nanos from_now);
  // Nothing is awaited now, and nothing is late.
  void clear_deadline() { state_->deadline = std::chrono::steady_clock::time_point::max(); }
  bool timed_out() const { return state_->has_timed_out; }  // since the latest set_deadline()

 private:
  static constexpr std::size_t kPieceBytes = 64 << 10;
  // Behind the bytes that go into the caller's room: of the chunk's end, and the beginning of the next one.
  static constexpr std::size_t kBehindBytes = 4 << 10;
  struct Piece;  // a body whose pieces are not copied
  using Parser = boost::beast::http::response_parser<Piece>;

  // Shared with its timer, which may fire after the connection is gone.
  struct State : std::enable_shared_from_this<State> {
    State(boost::asio::io_context& io, TlsContext tls);
    void close();
    void arm();
    // cancel_after()
    void cancel_every(boost::asio::steady_timer& timer, Nanos limit, std::weak_ptr<bool> has_passed);

    HttpSocket socket;
    boost::asio::steady_timer resolved;  // cancelled when the name's addresses are there, or nobody waits for
                                         // them
    boost::asio::steady_timer watchdog;
    std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
    std::chrono::steady_clock::time_point armed_for = std::chrono::steady_clock::time_point::max();
    bool has_timed_out = false;
    bool is_closed = false;
  };

  using Endpoints = boost::asio::ip::tcp::resolver::results_type;
  // Cancels whatever is being read from the socket each time `limit` has passed, and sets the returned value
  // to true. It stops when the caller has dropped that value.
  std::shared_ptr<bool> cancel_after(boost::asio::steady_timer& timer, Nanos limit);
  boost::asio::awaitable<boost::system::error_code> look_up(const Member& member, Endpoints& found);
  boost::asio::awaitable<std::optional<std::string_view>> read_more(std::span<std::byte> room,
                                                                    std::size_t bytes_max);
  // Reads bytes of the chunk that has begun, and lets the parser see them.
  boost::asio::awaitable<boost::system::error_code> read_into(std::span<std::byte> room);

  boost::asio::io_context& io_;
  const std::shared_ptr<State> state_;
  boost::beast::flat_buffer buffer_;
  std::unique_ptr<Parser> parser_;
  std::uint64_t chunk_left_ = 0;  // of the chunk that has begun: bytes that were not read
  // Called by the parser, which keeps a reference to it, for each run of a chunk's bytes: `remain` are left
  // of the chunk, these included.
  std::function<std::size_t(std::uint64_t remain, boost::core::string_view bytes, boost::system::error_code&)>
      on_chunk_;
};

// Idle connections, by the instance's number.
class UpstreamPool {
 public:
  // `idle_max`: how many idle connections are kept for each instance.
  explicit UpstreamPool(boost::asio::io_context& io, std::size_t idle_max = 256)
      : io_(io), idle_max_(idle_max) {}

  // Certificates that are trusted for members with TLS.
  void trust(TlsContext tls) { tls_ = std::move(tls); }
  // An idle connection that is not stale; null: none.
  std::unique_ptr<Upstream> take(std::uint32_t instance);
  std::unique_ptr<Upstream> make(const Member& member);
  void give(std::uint32_t instance, std::unique_ptr<Upstream> connection);
  void drop(std::uint32_t instance) { idle_.erase(instance); }
  void clear() { idle_.clear(); }

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
