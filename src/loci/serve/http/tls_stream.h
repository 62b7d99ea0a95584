// SPDX-License-Identifier: Apache-2.0
// TLS over a TCP connection. It stands in for boost::asio::ssl::stream, which moves one record (16 KiB) in
// each call of the system. This one moves many, which saves who reads much a third of the processor time
// (docs/decisions/peers.md).
//
// Bytes go through buffers of its own, which grow with what comes and goes, to 256 KiB each way, and which
// rest() frees: an idle connection then has 17 KiB where it waits for input, and nothing else. What OpenSSL
// answers by itself while it opens what has come (new keys, alerts) is sent with the next write.
//
//     async_write_some()  -> SSL_write -> out_ -> socket    seals up to 128 KiB, then sends them
//     async_read_some()   <- SSL_read  <- in_  <- socket    opens what has come, as far as there is room
//
// A write ends once a whole record of it was sent. So a deadline for each write passes only if the other side
// takes next to nothing, as without TLS. Bytes that were sealed and not sent are sent by the next write, so
// the caller must begin that one with the rest of this one (as all callers do).
//
// One read and one write may go on at the same time. All of it on one thread.
#pragma once

#include <openssl/ssl.h>

#include <array>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "loci/serve/http/hello_bound.h"

namespace loci {

class TlsStream {
 public:
  enum class Side : std::uint8_t { kServer, kClient };
  static constexpr std::size_t kRecordBytes = 16 << 10;      // of a record's content at most
  static constexpr std::size_t kSealedBytesMax = 128 << 10;  // of content that is sealed ahead
  static constexpr std::size_t kInputBytesMax = 256 << 10;

  // `tcp` must outlive it.
  TlsStream(boost::asio::ip::tcp::socket& tcp, SSL_CTX* context);
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  SSL* native_handle();

  // The other side is told why it fails.
  //
  // `hello_bytes_max`, of a server: if it is not 0, a client's hello has at most so many bytes, and OpenSSL,
  // which takes tens of KiB when a handshake begins, sees it when it has come whole. So where OpenSSL refuses
  // all strangers by their hello (a key is shared), who sends a part of one costs these bytes.
  boost::asio::awaitable<boost::system::error_code> handshake(Side side, std::size_t hello_bytes_max = 0);
  // Says that nothing more comes. The other side's end is not waited for.
  boost::asio::awaitable<void> end_sending();
  // True: something has come that was not read.
  bool has_input() const {
    return in_begin_ != in_end_ || (ssl_ != nullptr && SSL_has_pending(ssl_.get()) == 1);
  }
  // Gives back the memory of its buffers; the next read or write takes it again. While nothing goes on.
  void rest();

  // As Asio's AsyncStream has them. Errors: eof if the other side said that it ends; stream_truncated (Asio's
  // ssl category) if the connection ended without that.
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_compose<Token, void(boost::system::error_code, std::size_t)>(
        Read<Buffers>{*this, buffers}, token, tcp_);
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_compose<Token, void(boost::system::error_code, std::size_t)>(
        Write<Buffers>{*this, buffers}, token, tcp_);
  }

 private:
  struct Free {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };
  struct Record {
    std::size_t content_bytes = 0;
    std::size_t end = 0;  // in out_
  };
  struct Bio;  // what OpenSSL reads from and writes to

  template <class Buffers>
  struct Read;
  template <class Buffers>
  struct Write;

  // What a call of OpenSSL that returned `result` says; no error: it needs more input.
  boost::system::error_code error_of(int result) const;
  // Of the socket.
  boost::system::error_code error_of_input(boost::system::error_code error) const;
  // Opens what has come, at most as much as fits. 0 without an error: more input is needed.
  std::size_t open(boost::asio::mutable_buffer target, boost::system::error_code& error);
  boost::asio::mutable_buffer input_room();
  void received(std::size_t bytes);

  bool has_sealed() const { return next_record_ < records_.size(); }
  // Seals pieces of one write, in order, together at most kSealedBytesMax; short pieces share records.
  void seal(std::span<boost::asio::const_buffer> pieces, boost::system::error_code& error);
  void seal_record(boost::asio::const_buffer content, boost::system::error_code& error);
  boost::asio::const_buffer begin_sending();
  // Returns the bytes of content whose records are sent now.
  std::size_t sent(std::size_t bytes);
  boost::asio::awaitable<boost::system::error_code> send_all();

  // Reads a client's hello, or so much that OpenSSL will refuse it. An error: it does not begin with a record
  // of a handshake, has more bytes, or the connection broke.
  boost::asio::awaitable<boost::system::error_code> receive_hello(std::size_t bytes_max);

  boost::asio::ip::tcp::socket& tcp_;
  SSL_CTX* const context_;
  std::unique_ptr<SSL, Free> ssl_;  // null before it is used

  // What has come, and OpenSSL has not read: [in_begin_, in_end_).
  std::unique_ptr<char[]> in_;
  std::size_t in_bytes_ = 0, in_begin_ = 0, in_end_ = 0;
  bool is_receiving_ = false;  // what is behind in_end_ is in the system's hands

  std::vector<char> out_;  // what is to be sent, from out_begin_ on
  std::size_t out_begin_ = 0;
  bool is_sending_ = false;  // out_ is in the system's hands
  bool is_sealing_ = false;
  std::size_t answer_bytes_ = 0;  // of out_ and later_, that nobody has sealed
  std::vector<char> later_;       // what OpenSSL says meanwhile
  std::vector<Record> records_;
  std::size_t next_record_ = 0;  // that is not sent whole

  std::optional<HelloBound> hello_;  // while a client's handshake goes on
};

template <class Buffers>
struct TlsStream::Read {
  TlsStream& stream;
  Buffers buffers;
  enum class Step : std::uint8_t { kBegin, kInput, kPosted } step = Step::kBegin;
  boost::system::error_code error{};
  std::size_t bytes = 0;
  bool is_cancelled = false;

  template <class Self>
  void operator()(Self& self, boost::system::error_code result = {}, std::size_t came = 0) {
    TlsStream& of = stream;
    if (step == Step::kPosted) return self.complete(error, bytes);
    if (step == Step::kInput) {
      of.received(came);
      error = of.error_of_input(result);
      // What came may be no whole record; what was cancelled meanwhile waits for no more.
      if (!error && self.cancelled() != boost::asio::cancellation_type::none) is_cancelled = true;
    }
    std::size_t room = 0;
    for (auto at = boost::asio::buffer_sequence_begin(buffers);
         !error && at != boost::asio::buffer_sequence_end(buffers); ++at) {
      const boost::asio::mutable_buffer target(*at);
      room += target.size();
      bytes += of.open(target, error);
      if (bytes < room) break;
    }
    if (bytes > 0) error = {};  // the next read finds it again
    if (!error && bytes == 0 && is_cancelled) error = boost::asio::error::operation_aborted;
    if (!error && bytes == 0 && room > 0) {
      step = Step::kInput;
      of.tcp_.async_read_some(of.input_room(), std::move(self));
      return;
    }
    if (step == Step::kInput) return self.complete(error, bytes);
    step = Step::kPosted;  // a handler is not called by who begins
    boost::asio::post(of.tcp_.get_executor(), std::move(self));
  }
};

template <class Buffers>
struct TlsStream::Write {
  TlsStream& stream;
  Buffers buffers;
  enum class Step : std::uint8_t { kBegin, kOutput, kPosted } step = Step::kBegin;
  boost::system::error_code error{};

  template <class Self>
  void operator()(Self& self, boost::system::error_code result = {}, std::size_t went = 0) {
    TlsStream& of = stream;
    std::size_t bytes = 0;
    if (step == Step::kPosted) return self.complete(error, 0);
    if (step == Step::kOutput) {
      bytes = of.sent(went);
      if (result || bytes > 0) return self.complete(result, result ? 0 : bytes);
      if (self.cancelled() != boost::asio::cancellation_type::none)
        return self.complete(boost::asio::error::operation_aborted, 0);
    } else if (!of.has_sealed()) {
      seal_buffers();
    }
    if (error || !of.has_sealed()) {
      step = Step::kPosted;
      return boost::asio::post(of.tcp_.get_executor(), std::move(self));
    }
    step = Step::kOutput;
    of.tcp_.async_write_some(of.begin_sending(), std::move(self));
  }

  void seal_buffers() {
    std::array<boost::asio::const_buffer, 8> pieces;
    std::size_t count = 0;
    for (auto at = boost::asio::buffer_sequence_begin(buffers);
         count < pieces.size() && at != boost::asio::buffer_sequence_end(buffers); ++at) {
      const boost::asio::const_buffer piece(*at);
      if (piece.size() > 0) pieces[count++] = piece;
    }
    stream.seal(std::span(pieces).first(count), error);
  }
};

}  // namespace loci
