// SPDX-License-Identifier: Apache-2.0
// TlsStream at both ends of a connection: what is written comes, in whatever pieces, and ends as it should.
#include "loci/serve/http/tls_stream.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/serve/http/tls_testing.h"

namespace loci {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Work = std::function<asio::awaitable<void>()>;

class TlsStreamTest : public testing::Test {
 protected:
  void SetUp() override {
    const TestFolder folder;
    const TlsFiles files = make_certificate(folder.path(), "stream");
    Result<TlsContext> of_server = make_server_tls(files);
    Result<TlsContext> of_client = make_client_tls(files.certificate);
    ASSERT_TRUE(of_server.ok() && of_client.ok());
    server_tls_ = *of_server;
    client_tls_ = *of_client;
    connect();
  }

  void connect() {
    tcp::acceptor acceptor(io_, {asio::ip::make_address("127.0.0.1"), 0});
    // Small, so that a writer soon waits for the reader.
    acceptor.set_option(asio::socket_base::receive_buffer_size(64 << 10));
    client_tcp_.connect(acceptor.local_endpoint());
    client_tcp_.set_option(asio::socket_base::send_buffer_size(64 << 10));
    server_tcp_ = acceptor.accept();
    server_.emplace(server_tcp_, server_tls_->native_handle());
    client_.emplace(client_tcp_, client_tls_->native_handle());
    run({[this]() -> asio::awaitable<void> {
           EXPECT_FALSE(co_await server_->handshake(TlsStream::Side::kServer));
         },
         [this]() -> asio::awaitable<void> {
           EXPECT_FALSE(co_await client_->handshake(TlsStream::Side::kClient));
         }});
  }

  // What the client sends comes to to_client_, and goes to the server by to_server_.
  void connect_through_relay() {
    tcp::acceptor acceptor(io_, {asio::ip::make_address("127.0.0.1"), 0});
    client_tcp_ = tcp::socket(io_);
    client_tcp_.connect(acceptor.local_endpoint());
    to_client_ = acceptor.accept();
    to_server_.connect(acceptor.local_endpoint());
    server_tcp_ = acceptor.accept();
    server_.emplace(server_tcp_, server_tls_->native_handle());
    client_.emplace(client_tcp_, client_tls_->native_handle());
    const auto carry = [](tcp::socket& from, tcp::socket& to) -> asio::awaitable<void> {
      std::array<char, 4096> piece{};
      error_code error;
      while (!error) {
        const std::size_t count = co_await from.async_read_some(
            asio::buffer(piece), asio::redirect_error(asio::use_awaitable, error));
        if (!error) asio::write(to, asio::buffer(piece.data(), count));
      }
    };
    int left = 2;
    const auto greet = [&](TlsStream& stream, TlsStream::Side side) -> asio::awaitable<void> {
      EXPECT_FALSE(co_await stream.handshake(side));
      if (--left == 0) {
        to_client_.cancel();
        to_server_.cancel();
      }
    };
    EXPECT_TRUE(
        run({[&] { return greet(*server_, TlsStream::Side::kServer); },
             [&] { return greet(*client_, TlsStream::Side::kClient); },
             [&] { return carry(to_client_, to_server_); }, [&] { return carry(to_server_, to_client_); }}));
  }
  // What the client sends for the data, which is at most a record.
  std::string seal(std::string_view data) {
    EXPECT_TRUE(run({[&] { return write_all(*client_, data); }}));
    std::string sealed(2 * TlsStream::kRecordBytes, ' ');
    std::size_t count = 0;
    while (count < data.size())
      count += to_client_.read_some(asio::buffer(sealed.data() + count, sealed.size() - count));
    sealed.resize(count);
    return sealed;
  }
  static asio::awaitable<void> write_all(TlsStream& stream, std::string_view data) {
    error_code error;
    const std::size_t count = co_await stream.async_write_some(
        asio::buffer(data), asio::redirect_error(asio::use_awaitable, error));
    EXPECT_FALSE(error) << error.message();
    EXPECT_EQ(count, data.size());
  }

  // All at the same time, until all have ended; false: one has not, and waits for ever.
  bool run(std::vector<Work> works, std::chrono::seconds limit = std::chrono::seconds(60)) {
    io_.restart();
    std::size_t left = works.size();
    for (const Work& work : works) {
      asio::co_spawn(io_, work(), [&](const std::exception_ptr& error) {
        EXPECT_EQ(error, nullptr);
        if (--left == 0) io_.stop();
      });
    }
    io_.run_for(limit);
    return left == 0;
  }

  // In pieces that one call of write takes, of up to three buffers.
  static asio::awaitable<void> write(TlsStream& stream, std::string_view data, std::uint32_t seed) {
    std::mt19937 random(seed);
    while (!data.empty()) {
      const std::size_t first = std::min<std::size_t>(data.size(), random() % 40);
      const std::size_t size = random() % 3 == 0 ? random() % 100 : random() % (700 << 10);
      std::array<asio::const_buffer, 3> buffers = {
          asio::buffer(data.substr(0, first)), asio::buffer(data.substr(first, size)), asio::const_buffer()};
      if (first + size < data.size())
        buffers[2] = asio::buffer(data.substr(first + size, std::min<std::size_t>(2, data.size())));
      const std::size_t most = asio::buffer_size(buffers);
      std::size_t done = 0;
      while (done < most) {
        std::array<asio::const_buffer, 3> rest = buffers;
        for (std::size_t skip = done, i = 0; i < rest.size(); ++i) {
          const std::size_t count = std::min(skip, rest[i].size());
          rest[i] += count;
          skip -= count;
        }
        error_code error;
        const std::size_t bytes =
            co_await stream.async_write_some(rest, asio::redirect_error(asio::use_awaitable, error));
        EXPECT_FALSE(error) << error.message();
        if (error) co_return;
        EXPECT_GT(bytes, 0u);
        EXPECT_LE(bytes, std::min(most - done, TlsStream::kSealedBytesMax));
        done += bytes;
      }
      data.remove_prefix(most);
    }
  }
  static asio::awaitable<void> read(TlsStream& stream, std::size_t size, std::string& got,
                                    std::uint32_t seed) {
    std::mt19937 random(seed);
    std::string piece(200 << 10, ' ');
    while (got.size() < size) {
      error_code error;
      const std::size_t most = 1 + random() % (random() % 2 == 0 ? 10 : piece.size());
      const std::size_t bytes =
          co_await stream.async_read_some(asio::buffer(piece.data(), std::min(most, piece.size())),
                                          asio::redirect_error(asio::use_awaitable, error));
      EXPECT_FALSE(error) << error.message();
      if (error) co_return;
      got.append(piece, 0, bytes);
    }
  }
  static std::size_t allocated() {
    const struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
  }
  static std::string bytes(std::size_t size, std::uint32_t seed) {
    std::mt19937_64 random(seed);
    std::string out(size, ' ');
    for (char& c : out) c = static_cast<char>(random());
    return out;
  }
  static asio::awaitable<error_code> read_end(TlsStream& stream) {
    std::array<char, 16> piece{};
    error_code error;
    const std::size_t got = co_await stream.async_read_some(asio::buffer(piece),
                                                            asio::redirect_error(asio::use_awaitable, error));
    EXPECT_EQ(got, 0u);
    co_return error;
  }

  asio::io_context io_{1};
  TlsContext server_tls_, client_tls_;
  tcp::socket server_tcp_{io_}, client_tcp_{io_};
  tcp::socket to_client_{io_}, to_server_{io_};  // connect_through_relay()
  std::optional<TlsStream> server_, client_;
};

TEST_F(TlsStreamTest, BytesGoBothWaysAtOnceInAnyPieces) {
  for (std::uint32_t round = 0; round < 3; ++round) {
    const std::string there = bytes(3'000'001, round), back = bytes(2'500'003, 100 + round);
    std::string got_there, got_back;
    EXPECT_TRUE(run({[&] { return write(*client_, there, round); }, [&] { return write(*server_, back, 7); },
                     [&] { return read(*server_, there.size(), got_there, 11 + round); },
                     [&] { return read(*client_, back.size(), got_back, 13 + round); }}));
    EXPECT_EQ(got_there, there);
    EXPECT_EQ(got_back, back);
    const std::size_t before = allocated();
    server_->rest();
    client_->rest();
#ifndef LOCI_SANITIZED  // whose allocators do not say what is allocated
    EXPECT_GE(before, allocated() + 2 * (TlsStream::kSealedBytesMax + TlsStream::kRecordBytes));
#else
    (void)before;
#endif
  }
}

// Each side asks the other for new keys while both write: what OpenSSL answers by itself goes between
// records.
TEST_F(TlsStreamTest, KeysChangeMeanwhile) {
  const std::string there = bytes(1'000'000, 1), back = bytes(1'000'000, 2);
  std::string got_there, got_back;
  const auto write_with_updates = [](TlsStream& stream, std::string_view data) -> asio::awaitable<void> {
    for (std::uint32_t i = 0; !data.empty(); ++i) {
      EXPECT_EQ(SSL_key_update(stream.native_handle(), SSL_KEY_UPDATE_REQUESTED), 1);
      const std::string_view piece = data.substr(0, 100'000);
      co_await write(stream, piece, i);
      data.remove_prefix(piece.size());
    }
  };
  EXPECT_TRUE(run({[&] { return write_with_updates(*client_, there); },
                   [&] { return write_with_updates(*server_, back); },
                   [&] { return read(*server_, there.size(), got_there, 3); },
                   [&] { return read(*client_, back.size(), got_back, 4); }}));
  EXPECT_EQ(got_there, there);
  EXPECT_EQ(got_back, back);
}

// The other side has a deadline for each write (Connection::write()): one that was taken in part has ended.
TEST_F(TlsStreamTest, AWriteEndsWhenARecordOfItIsSent) {
  const std::string data = bytes(8 << 20, 5);
  std::size_t sent = 0, least = data.size();
  const auto write_on = [&]() -> asio::awaitable<void> {
    error_code error;
    while (!error && sent < data.size()) {
      const std::size_t bytes =
          co_await client_->async_write_some(asio::buffer(data.data() + sent, data.size() - sent),
                                             asio::redirect_error(asio::use_awaitable, error));
      sent += bytes;
      least = std::min(least, bytes);
    }
  };
  const auto spawn = [&](asio::awaitable<void> work) {
    asio::co_spawn(io_, std::move(work), asio::detached);
  };
  const auto run_until = [&](const std::function<bool()>& condition) {
    for (int i = 0; i < 12'000 && !condition(); ++i) {
      io_.restart();
      io_.run_for(std::chrono::milliseconds(5));
    }
  };
  // Nobody reads: the connection takes a part, of which all whole records are told.
  spawn(write_on());
  run_until([&] { return least < TlsStream::kSealedBytesMax; });
  EXPECT_GT(sent, 0u);
  EXPECT_LT(sent, data.size());
  EXPECT_LT(least, TlsStream::kSealedBytesMax) << "a write ends before all that it sealed is sent";
  const std::size_t before = sent, first = before + 4 * TlsStream::kRecordBytes;
  std::string got;
  spawn(read(*server_, first, got, 6));
  // (Only then may another read begin.)
  run_until([&] { return sent > before && got.size() >= first; });
  EXPECT_GT(sent, before) << "what was taken is told";
  ASSERT_GE(got.size(), first);
  EXPECT_LT(sent, data.size());
  spawn(read(*server_, data.size(), got, 8));
  io_.restart();
  while (got.size() < data.size() && io_.run_one_for(std::chrono::seconds(60)) > 0) {
  }
  EXPECT_EQ(got, data);
}

// As where the other side asks for answers and sends nothing that ends a read.
TEST_F(TlsStreamTest, WhatOpenSslSaysAndNobodySendsIsBounded) {
  SSL* const ssl = server_->native_handle();
  std::size_t said = 0;
  while (said < 100'000 && SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1 &&
         SSL_do_handshake(ssl) == 1)
    ++said;
  EXPECT_GT(said, 100u);
  EXPECT_LT(said, 10'000u);
}

// A read that is cancelled while part of a record has come: it ends, and the record is not lost.
TEST_F(TlsStreamTest, ACancelledReadEndsAndLosesNothing) {
  connect_through_relay();
  const std::string data = bytes(TlsStream::kRecordBytes, 9);
  std::string got(data.size(), ' ');
  error_code error = asio::error::would_block;
  std::size_t came = 0;
  asio::cancellation_signal cancel;
  const auto read_some = [&] {
    error = asio::error::would_block;
    server_->async_read_some(asio::buffer(got), asio::bind_cancellation_slot(
                                                    cancel.slot(), [&](error_code result, std::size_t count) {
                                                      error = result;
                                                      came = count;
                                                    }));
  };
  const auto run_for = [&](int ms) {
    io_.restart();
    io_.run_for(std::chrono::milliseconds(ms));
  };
  // Nothing has come.
  read_some();
  run_for(20);
  EXPECT_EQ(error, asio::error::would_block) << "it waits";
  cancel.emit(asio::cancellation_type::terminal);
  run_for(60'000);
  EXPECT_EQ(error, asio::error::operation_aborted);
  EXPECT_EQ(came, 0u);
  // Half a record comes; the read is cancelled; the other half comes.
  const std::string sealed = seal(data);
  asio::write(to_server_, asio::buffer(sealed.data(), sealed.size() / 2));
  read_some();
  run_for(50);
  EXPECT_EQ(error, asio::error::would_block) << "half a record is none";
  cancel.emit(asio::cancellation_type::terminal);
  run_for(60'000);
  EXPECT_EQ(error, asio::error::operation_aborted);
  const std::size_t half = sealed.size() / 2;
  asio::write(to_server_, asio::buffer(sealed.data() + half, sealed.size() - half));
  std::string rest;
  EXPECT_TRUE(run({[&] { return read(*server_, data.size(), rest, 3); }}));
  EXPECT_EQ(rest, data);
  // It is cancelled when half a record has been received, and who reads is not told of that yet: who waits to
  // write is told first.
  const std::string third = seal(data);
  read_some();
  run_for(20);
  asio::write(to_server_, asio::buffer(third.data(), half));
  server_tcp_.async_wait(tcp::socket::wait_write,
                         [&](error_code) { cancel.emit(asio::cancellation_type::terminal); });
  run_for(60'000);
  EXPECT_EQ(error, asio::error::operation_aborted) << "what was cancelled waits for no more";
  asio::write(to_server_, asio::buffer(third.data() + half, third.size() - half));
  rest.clear();
  EXPECT_TRUE(run({[&] { return read(*server_, data.size(), rest, 5); }}));
  EXPECT_EQ(rest, data);
  // And cancelled when all of it is there.
  const std::string more = seal(data);
  asio::write(to_server_, asio::buffer(more));
  read_some();
  cancel.emit(asio::cancellation_type::terminal);
  run_for(60'000);
  if (error == asio::error::operation_aborted) {
    EXPECT_EQ(came, 0u) << "what a read takes it tells";
    came = 0;
  }
  std::string last(got, 0, came);
  EXPECT_TRUE(run({[&] { return read(*server_, data.size(), last, 4); }}));
  EXPECT_EQ(last, data);
}

TEST_F(TlsStreamTest, AnEndThatWasSaidIsTold) {
  error_code error;
  EXPECT_TRUE(run({[&]() -> asio::awaitable<void> { co_await client_->end_sending(); },
                   [&]() -> asio::awaitable<void> { error = co_await read_end(*server_); }}));
  EXPECT_EQ(error, asio::error::eof);
}

TEST_F(TlsStreamTest, AConnectionThatBreaksIsTold) {
  error_code error;
  client_tcp_.shutdown(tcp::socket::shutdown_send);
  EXPECT_TRUE(run({[&]() -> asio::awaitable<void> { error = co_await read_end(*server_); }}));
  EXPECT_EQ(error, asio::ssl::error::stream_truncated);
}

class TlsHelloTest : public TlsStreamTest {
 protected:
  // How the handshake with a client ends that says this and nothing more; a hello has at most `bytes_max`
  // (0: any number).
  error_code greeted_with(const std::string& said, std::size_t bytes_max = 0) {
    tcp::acceptor acceptor(io_, {asio::ip::make_address("127.0.0.1"), 0});
    tcp::socket client(io_);
    client.connect(acceptor.local_endpoint());
    tcp::socket socket = acceptor.accept();
    TlsStream server(socket, server_tls_->native_handle());
    error_code error;
    asio::write(client, asio::buffer(said));
    io_.restart();
    EXPECT_TRUE(run({[&]() -> asio::awaitable<void> {
                      error = co_await server.handshake(TlsStream::Side::kServer, bytes_max);
                    }},
                    std::chrono::seconds(60)))
        << "it waits for the rest";
    return error;
  }
};

// OpenSSL would take memory for all of it, and wait.
TEST_F(TlsHelloTest, OneThatIsTooLongIsRefusedByItsHead) {
  const std::string head("\x16\x03\x01\x40\x00\x01\x01\xff\xfc", 9);
  EXPECT_TRUE(greeted_with(head + std::string((16 << 10) - 4, 'x')));
}

// Where all have a shared key, hellos are short: no more is read of one that does not end.
TEST_F(TlsHelloTest, OneIsReadUpToItsBound) {
  constexpr std::size_t kBytesMax = 4 << 10;
  const std::string head("\x16\x03\x01\x20\x00\x01\x00\x1f\xfc", 9);
  EXPECT_TRUE(greeted_with(head + std::string(kBytesMax - head.size(), 'x'), kBytesMax));
}

// Nor has OpenSSL anything to do with what begins otherwise.
TEST_F(TlsHelloTest, WhereHellosAreBoundOtherRecordsAreRefusedAtOnce) {
  for (const std::string begin : {"\x15", "\x17", "GET / HTTP/1.1\r\n\r\n"}) {
    const error_code error = greeted_with(begin, 4 << 10);
    EXPECT_EQ(error, asio::ssl::error::unexpected_result) << "OpenSSL saw it: " << error.message();
  }
}

TEST_F(TlsStreamTest, ForgedBytesAreAnError) {
  error_code error;
  const std::string head("\x17\x03\x03\x00\x20", 5);
  asio::write(client_tcp_, asio::buffer(head + std::string(32, 'x')));
  EXPECT_TRUE(run({[&]() -> asio::awaitable<void> { error = co_await read_end(*server_); }}));
  EXPECT_EQ(error.category(), asio::error::get_ssl_category()) << error.message();
}

}  // namespace
}  // namespace loci
