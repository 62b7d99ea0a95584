// SPDX-License-Identifier: Apache-2.0
// Connections to instances: a name that cannot be resolved, and how much one read of a long body brings.
#include "loci/cluster/upstream.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "loci/cluster/peers/peer_tls.h"
#include "loci/serve/http/hanging_resolver_testing.h"

namespace loci {
namespace {

namespace asio = boost::asio;

TEST(Upstream, ANameThatIsNotResolvedInTimeIsLeftAlone) {
  for (const bool is_closed : {false, true}) {
    asio::io_context io;
    Upstream upstream(io, nullptr);
    const Member member{.id = "0000000000000001", .host = std::string(kHangingName), .port = 1};
    std::optional<Status> connected;
    bool has_timed_out = false;
    resolver_may_go_on = false;
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
          connected = co_await upstream.connect(member, is_closed ? 3600 * kNanosPerSecond : kNanosPerMilli);
          has_timed_out = upstream.timed_out();
          EXPECT_FALSE(resolver_may_go_on) << "it waited for the resolver";
          resolver_may_go_on = true;
          upstream.set_deadline(kNanosPerSecond);
          EXPECT_FALSE(upstream.timed_out()) << "of the connection alone";
          upstream.set_deadline(0);
        },
        asio::detached);
    if (is_closed) asio::post(io, [&] { upstream.close(); });
    io.run();
    ASSERT_TRUE(connected);
    EXPECT_EQ(connected->code(), StatusCode::kUnavailable);
    EXPECT_EQ(has_timed_out, !is_closed);
  }
}

// Nor does the end of all wait for it.
TEST(Upstream, ANameThatHangsHoldsNoOtherUp) {
  resolver_may_go_on = false;
  {
    asio::io_context io;
    asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
    const Member nowhere{.host = std::string(kHangingName), .port = 1};
    const Member here{.host = "localhost", .port = acceptor.local_endpoint().port()};
    Upstream hanging(io, nullptr), other(io, nullptr);
    std::optional<Status> connected;
    asio::co_spawn(
        io, [&]() -> asio::awaitable<void> { co_await hanging.connect(nowhere, 3600 * kNanosPerSecond); },
        asio::detached);
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
          connected = co_await other.connect(here, 60 * kNanosPerSecond);
          io.stop();
        },
        asio::detached);
    io.run();
    ASSERT_TRUE(connected);
    EXPECT_TRUE(connected->ok()) << connected->to_string();
  }
  EXPECT_FALSE(resolver_may_go_on) << "something waited for the resolver";
  resolver_may_go_on = true;
}

// Answers one request with a body in chunks, as peers give state.
void answer_one(asio::ip::tcp::acceptor& acceptor, asio::ssl::context& tls, int chunks,
                const std::string& chunk) {
  asio::ssl::stream<asio::ip::tcp::socket> stream(acceptor.accept(), tls);
  stream.handshake(asio::ssl::stream_base::server);
  std::string request;
  asio::read_until(stream, asio::dynamic_buffer(request), "\r\n\r\n");
  asio::write(stream, asio::buffer(std::string("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")));
  const std::string framed = fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk);
  for (int i = 0; i < chunks; ++i) asio::write(stream, asio::buffer(framed));
  asio::write(stream, asio::buffer(std::string("0\r\n\r\n")));
}

// Each read costs calls of the system. A record of TLS has 16 KiB at most, and comes whole.
// Sends a request, and takes the pieces of the answer's body, which may go into `room`. True: the body is
// whole.
asio::awaitable<bool> fetch(Upstream& upstream, const Member& member, std::span<std::byte> room,
                            const std::function<void(std::string_view)>& take) {
  // (The limit is that of the whole answer, which may come in thousands of pieces.)
  const Status connected = co_await upstream.connect(member, 3'600 * kNanosPerSecond);
  const bool is_sent = connected.ok() && co_await upstream.send("GET / HTTP/1.1\r\n\r\n", "");
  const bool is_answered = is_sent && co_await upstream.read_header(false) != nullptr;
  std::optional<std::string_view> piece;
  while (is_answered) {
    auto next = room.empty() ? upstream.read_piece() : upstream.read_piece(room);
    piece = co_await std::move(next);
    if (!piece || piece->empty()) break;
    take(*piece);
  }
  upstream.set_deadline(0);
  co_return piece.has_value();
}

TEST(Upstream, AReadBringsAWholeRecordOfALongBody) {
  constexpr int kPieces = 16;
  const std::string chunk(256 << 10, 'x');
  const TlsContext given = make_peer_server_tls(PeerKey{1}).value();
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  const Member member{.host = "127.0.0.1", .port = acceptor.local_endpoint().port(), .tls = true};
  std::thread server([&] { answer_one(acceptor, *given, kPieces, chunk); });
  Upstream upstream(io, make_peer_client_tls(PeerKey{1}).value());
  std::size_t bytes = 0;
  int reads = 0;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        co_await fetch(upstream, member, {}, [&](std::string_view piece) {
          bytes += piece.size();
          ++reads;
        });
      },
      asio::detached);
  io.run();
  server.join();
  EXPECT_EQ(bytes, kPieces * chunk.size());
  const auto records = static_cast<int>(bytes / (16 << 10));
  EXPECT_LE(reads, records + 3 * kPieces) << "a chunk's ends may divide records";
}

// A server on a thread that answers one request with this body, without TLS.
std::thread answer_plainly(asio::ip::tcp::acceptor& acceptor, std::string body) {
  return std::thread([&acceptor, body = std::move(body)] {
    asio::ip::tcp::socket socket = acceptor.accept();
    std::string request;
    asio::read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n");
    const std::string head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    boost::system::error_code ignored;
    asio::write(socket, asio::buffer(head + body), ignored);
  });
}

// What comes of it where each piece may go into `room` bytes; `straight` counts those that went there.
struct IntoRoom {
  std::string body;
  std::size_t straight = 0;
  bool is_whole = false;
};
IntoRoom read_into_room(const Member& member, TlsContext tls, std::size_t room_bytes) {
  asio::io_context io;
  Upstream upstream(io, std::move(tls));
  IntoRoom came;
  std::vector<std::byte> memory(room_bytes + 64, std::byte{'#'});
  const std::span<std::byte> room = std::span(memory).first(room_bytes);
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        came.is_whole = co_await fetch(upstream, member, room, [&](std::string_view piece) {
          came.body += piece;
          if (piece.data() == reinterpret_cast<const char*>(room.data())) came.straight += piece.size();
        });
        EXPECT_EQ(came.is_whole, upstream.is_reusable());
      },
      asio::detached);
  io.run();
  for (std::size_t i = room_bytes; i < memory.size(); ++i) EXPECT_EQ(memory[i], std::byte{'#'}) << i;
  return came;
}

TEST(Upstream, BytesOfAChunkGoStraightIntoTheRoom) {
  constexpr int kChunks = 8;
  std::string chunk(256 << 10, 'x');
  for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = static_cast<char>(i * 31 / 7);
  std::string body;
  for (int i = 0; i < kChunks; ++i) body += chunk;
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  const TlsContext given = make_peer_server_tls(PeerKey{1}).value();
  for (const bool is_secret : {false, true}) {
    const Member member{.host = "127.0.0.1", .port = acceptor.local_endpoint().port(), .tls = is_secret};
    for (const std::size_t room : {std::size_t{100}, std::size_t{100'000}, chunk.size(), 2 * chunk.size()}) {
      const std::string framed = fmt::format("{:x}\r\n{}\r\n", chunk.size(), chunk);
      std::string all;
      for (int i = 0; i < kChunks; ++i) all += framed;
      std::thread server = is_secret ? std::thread([&] { answer_one(acceptor, *given, kChunks, chunk); })
                                     : answer_plainly(acceptor, all + "0\r\n\r\n");
      const IntoRoom came =
          read_into_room(member, is_secret ? make_peer_client_tls(PeerKey{1}).value() : nullptr, room);
      server.join();
      EXPECT_TRUE(came.is_whole);
      EXPECT_EQ(came.body, body) << room;
      // Behind the first chunk's beginning, and that of each other one.
      EXPECT_GE(came.straight, body.size() - kChunks * (8 << 10)) << room;
    }
  }
}

// It says that the chunk has more than the room, or than ever comes.
TEST(Upstream, AChunkThatIsCutIsNoWholeBody) {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  const Member member{.host = "127.0.0.1", .port = acceptor.local_endpoint().port()};
  const std::string content(10'000, 'y');
  for (const std::string& begin : {"fffffffffffffff0\r\n" + content, "2710\r\n" + content + "no end",
                                   "4e20\r\n" + content, "2710\r\n" + content}) {
    std::thread server = answer_plainly(acceptor, begin);
    const IntoRoom came = read_into_room(member, nullptr, 4'000);
    server.join();
    EXPECT_FALSE(came.is_whole);
    EXPECT_EQ(came.body, content.substr(0, came.body.size()));
  }
}

// A cancel hits nothing while a read that has ended waits for its turn. The header is not whole then.
TEST(Upstream, WhoeverWaitsForAHeaderSpeaksAlsoAfterACancelThatHitNothing) {
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  const Member member{.host = "127.0.0.1", .port = acceptor.local_endpoint().port()};
  Upstream upstream(io, nullptr);
  asio::ip::tcp::socket server(io);
  int said = 0;
  bool is_answered = false;
  const auto say = [&]() -> asio::awaitable<void> {
    if (++said == 1) asio::write(server, asio::buffer(std::string("\r\nContent-Length: 0\r\n\r\n")));
    co_return;
  };
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        const Status connected = co_await upstream.connect(member, 60 * kNanosPerSecond);
        acceptor.accept(server);
        // More than one read takes comes together with the timer.
        asio::post(io, [&] {
          asio::write(server, asio::buffer("HTTP/1.1 200 OK\r\nX-Long: " + std::string(800, 'x')));
          std::this_thread::sleep_for(std::chrono::milliseconds(30));
        });
        Upstream::Quiet quiet{.limit = 10 * kNanosPerMilli, .say = say};
        is_answered = connected.ok() && co_await upstream.read_header(false, std::move(quiet)) != nullptr;
        upstream.set_deadline(0);
      },
      asio::detached);
  io.run_for(std::chrono::minutes(1));
  EXPECT_TRUE(is_answered);
  EXPECT_GE(said, 1);
}

// The timer was set for the first deadline; the later one counts, and so does one that comes earlier again.
TEST(Upstream, TheLatestDeadlineCounts) {
  asio::io_context io;
  Upstream upstream(io, nullptr);
  upstream.set_deadline(kNanosPerMilli);
  upstream.set_deadline(3600 * kNanosPerSecond);
  io.run_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(upstream.timed_out());
  upstream.set_deadline(kNanosPerMilli);
  io.restart();
  io.run();
  EXPECT_TRUE(upstream.timed_out());
}

// Answers each request of one connection after the other, until the client closes it.
asio::awaitable<void> answer_all(asio::ip::tcp::socket socket, const std::string& body) {
  const std::string answer =
      fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
  try {
    for (std::string request;; request.clear()) {
      co_await asio::async_read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n", asio::use_awaitable);
      co_await asio::async_write(socket, asio::buffer(answer), asio::use_awaitable);
    }
  } catch (const boost::system::system_error&) {
  }
}

// The number of bytes of the answer's body.
asio::awaitable<std::size_t> get(Upstream& upstream) {
  std::size_t bytes = 0;
  if (!co_await upstream.send("GET / HTTP/1.1\r\n\r\n", "")) co_return 0;
  if (co_await upstream.read_header(false) == nullptr) co_return 0;
  for (auto piece = co_await upstream.read_piece(); piece && !piece->empty();
       piece = co_await upstream.read_piece())
    bytes += piece->size();
  co_return bytes;
}

// What a hundred connections of a front need while nobody uses them.
TEST(UpstreamPool, IdleConnectionsHaveNoBuffers) {
  constexpr std::size_t kConnections = 100;
  const std::string body(200 << 10, 'x');
  asio::io_context io;
  asio::ip::tcp::acceptor acceptor(io, {asio::ip::address_v4::loopback(), 0});
  const Member member{.host = "127.0.0.1", .port = acceptor.local_endpoint().port()};
  UpstreamPool pool(io);
  const auto allocated = [] {
    const struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  std::size_t busy_bytes = 0, idle_bytes = 0, again = 0;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        std::vector<std::unique_ptr<Upstream>> connections;
        for (std::size_t i = 0; i < kConnections; ++i) {
          connections.push_back(pool.make(member));
          const Status connected = co_await connections.back()->connect(member, 20 * kNanosPerSecond);
          EXPECT_TRUE(connected.ok()) << connected.message();
          asio::co_spawn(io, answer_all(acceptor.accept(), body), asio::detached);
          EXPECT_EQ(co_await get(*connections.back()), body.size());
        }
        busy_bytes = allocated();
        for (auto& connection : connections) pool.give(1, std::move(connection));
        idle_bytes = allocated();
        for (std::size_t i = 0; i < kConnections; ++i) {
          const std::unique_ptr<Upstream> kept = pool.take(1);
          EXPECT_NE(kept, nullptr) << "it is kept all the same";
          if (kept == nullptr) break;
          again += co_await get(*kept);
          kept->close();
        }
        io.stop();
      },
      asio::detached);
  io.run();
  EXPECT_EQ(again, kConnections * body.size());
#ifndef LOCI_SANITIZED  // whose allocators do not say what is allocated
  EXPECT_GE(busy_bytes, idle_bytes + kConnections * (60 << 10));
#endif
}

}  // namespace
}  // namespace loci
