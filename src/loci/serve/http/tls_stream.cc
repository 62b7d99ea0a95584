// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>

#include <algorithm>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cstring>

#include "loci/base/check.h"

namespace loci {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr std::size_t kInputBytesMin = 17 << 10;  // a record with its head and its tag
// Of a handshake's messages, and of what OpenSSL answers by itself to what it opens.
constexpr std::size_t kAnswerBytesMax = 64 << 10;
constexpr char kHandshakeRecord = 22;  // its type, the first byte

}  // namespace

// A BIO whose data is the stream. It reads from in_ and writes behind what is to be sent.
struct TlsStream::Bio {
  static TlsStream& stream(BIO* bio) { return *static_cast<TlsStream*>(BIO_get_data(bio)); }

  static int read(BIO* bio, char* to, int bytes) {
    TlsStream& of = stream(bio);
    BIO_clear_retry_flags(bio);
    const std::size_t count =
        std::min(static_cast<std::size_t>(std::max(0, bytes)), of.in_end_ - of.in_begin_);
    if (count == 0) {
      BIO_set_retry_read(bio);
      return -1;
    }
    if (of.hello_ &&
        !of.hello_->take({of.in_.get() + of.in_begin_, count}, SSL_version(of.ssl_.get()) == TLS1_3_VERSION))
      return -1;
    std::memcpy(to, of.in_.get() + of.in_begin_, count);
    of.in_begin_ += count;
    return static_cast<int>(count);
  }
  static int write(BIO* bio, const char* from, int bytes) {
    TlsStream& of = stream(bio);
    BIO_clear_retry_flags(bio);
    std::vector<char>& out = of.is_sending_ ? of.later_ : of.out_;
    if (bytes <= 0) return bytes;
    if (!of.is_sealing_) of.answer_bytes_ += static_cast<std::size_t>(bytes);
    // Whoever begins handshakes or asks for new keys again and again may read none of the answers.
    if (of.answer_bytes_ > kAnswerBytesMax) return -1;
    out.insert(out.end(), from, from + bytes);
    return bytes;
  }
  static long control(BIO* /*bio*/, int command, long /*number*/, void* /*pointer*/) {
    return command == BIO_CTRL_FLUSH ? 1 : 0;
  }

  static BIO* make(TlsStream& of) {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "loci tls stream");
      LOCI_CHECK(made != nullptr, "OpenSSL has memory at the start");
      BIO_meth_set_read(made, read);
      BIO_meth_set_write(made, write);
      BIO_meth_set_ctrl(made, control);
      return made;
    }();
    BIO* bio = BIO_new(method);
    LOCI_CHECK(bio != nullptr, "OpenSSL has memory for a connection");
    BIO_set_data(bio, &of);
    BIO_set_init(bio, 1);
    return bio;
  }
};

TlsStream::TlsStream(asio::ip::tcp::socket& tcp, SSL_CTX* context) : tcp_(tcp), context_(context) {}

SSL* TlsStream::native_handle() {
  if (ssl_ == nullptr) {
    ssl_.reset(SSL_new(context_));
    LOCI_CHECK(ssl_ != nullptr, "OpenSSL has memory for a connection");
    SSL_set_mode(ssl_.get(), SSL_MODE_RELEASE_BUFFERS);
    BIO* bio = Bio::make(*this);
    SSL_set_bio(ssl_.get(), bio, bio);
  }
  return ssl_.get();
}

error_code TlsStream::error_of(int result) const {
  const int kind = SSL_get_error(ssl_.get(), result);
  const auto first = static_cast<int>(ERR_get_error());
  switch (kind) {
    case SSL_ERROR_NONE:
    case SSL_ERROR_WANT_READ: return {};
    case SSL_ERROR_ZERO_RETURN: return asio::error::eof;
    default:
      if (first == 0) return asio::ssl::error::unspecified_system_error;
      return {first, asio::error::get_ssl_category()};
  }
}

error_code TlsStream::error_of_input(error_code error) const {
  const bool was_said = ssl_ != nullptr && (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0;
  return error == asio::error::eof && !was_said ? asio::ssl::error::stream_truncated : error;
}

// --- reading ---

asio::mutable_buffer TlsStream::input_room() {
  LOCI_CHECK(!is_receiving_, "one read at a time: two would write to the same place");
  is_receiving_ = true;
  // A record that has come in part is brought to the front.
  const std::size_t left = in_end_ - in_begin_;
  if (in_bytes_ == 0) {
    in_bytes_ = kInputBytesMin;
    in_ = std::make_unique_for_overwrite<char[]>(in_bytes_);
  } else if (in_begin_ > 0) {
    std::memmove(in_.get(), in_.get() + in_begin_, left);
  }
  in_begin_ = 0;
  in_end_ = left;
  return asio::buffer(in_.get() + in_end_, in_bytes_ - in_end_);
}

void TlsStream::received(std::size_t bytes) {
  is_receiving_ = false;
  const bool is_full = bytes == in_bytes_ - in_end_;
  in_end_ += bytes;
  const std::size_t wanted = std::min(kInputBytesMax, 2 * in_bytes_);
  // (While nobody knows who the client is, OpenSSL takes what has come into buffers of its own.)
  if (!is_full || wanted == in_bytes_ || hello_) return;
  auto other = std::make_unique_for_overwrite<char[]>(wanted);
  std::memcpy(other.get(), in_.get(), in_end_);
  in_ = std::move(other);
  in_bytes_ = wanted;
}

std::size_t TlsStream::open(asio::mutable_buffer target, error_code& error) {
  std::size_t bytes = 0;
  while (target.size() > 0) {
    ERR_clear_error();
    std::size_t got = 0;
    const int result = SSL_read_ex(ssl_.get(), target.data(), target.size(), &got);
    if (result != 1) {
      error = error_of(result);
      break;
    }
    bytes += got;
    target += got;
  }
  return bytes;
}

// --- writing ---

void TlsStream::seal(std::span<asio::const_buffer> pieces, error_code& error) {
  std::array<char, kRecordBytes> together{};
  std::size_t left = kSealedBytesMax;
  while (!error && left > 0 && !pieces.empty()) {
    const std::size_t most = std::min(left, kRecordBytes);
    asio::const_buffer content = asio::buffer(pieces.front(), most);
    const bool alone = content.size() == most || pieces.size() == 1;
    if (!alone)
      content = asio::buffer(together.data(), asio::buffer_copy(asio::buffer(together, most), pieces));
    seal_record(content, error);
    left -= content.size();
    for (std::size_t rest = content.size(); rest > 0;) {
      const std::size_t count = std::min(rest, pieces.front().size());
      pieces.front() += count;
      rest -= count;
      if (pieces.front().size() == 0) pieces = pieces.subspan(1);
    }
  }
}

void TlsStream::seal_record(asio::const_buffer content, error_code& error) {
  ERR_clear_error();
  std::size_t taken = 0;
  is_sealing_ = true;
  const int result = SSL_write_ex(ssl_.get(), content.data(), content.size(), &taken);
  is_sealing_ = false;
  if (result == 1) {
    LOCI_CHECK(taken == content.size(), "a stream that takes all that is sealed takes whole records");
    records_.push_back({content.size(), out_.size()});
    return;
  }
  error = error_of(result);
  if (!error) error = asio::ssl::error::unexpected_result;  // nothing is written before the handshake
}

asio::const_buffer TlsStream::begin_sending() {
  is_sending_ = true;
  return asio::buffer(out_.data() + out_begin_, out_.size() - out_begin_);
}

std::size_t TlsStream::sent(std::size_t bytes) {
  is_sending_ = false;
  out_begin_ += bytes;
  std::size_t content = 0;
  for (; has_sealed() && records_[next_record_].end <= out_begin_; ++next_record_)
    content += records_[next_record_].content_bytes;
  if (out_begin_ == out_.size()) {
    out_.clear();
    records_.clear();
    out_begin_ = next_record_ = 0;
    answer_bytes_ = later_.size();
  }
  out_.insert(out_.end(), later_.begin(), later_.end());
  later_.clear();
  return content;
}

asio::awaitable<error_code> TlsStream::send_all() {
  error_code error;
  while (!error && out_begin_ < out_.size()) {
    const std::size_t bytes =
        co_await tcp_.async_write_some(begin_sending(), asio::redirect_error(asio::use_awaitable, error));
    sent(bytes);
  }
  co_return error;
}

// --- the beginning and the end ---

void TlsStream::rest() {
  if (in_begin_ == in_end_) {
    in_.reset();
    in_bytes_ = in_begin_ = in_end_ = 0;
  }
  if (out_.empty()) {
    std::vector<char>().swap(out_);
    std::vector<Record>().swap(records_);
  }
  std::vector<char>().swap(later_);
}

asio::awaitable<error_code> TlsStream::receive_hello(std::size_t bytes_max) {
  HelloBound seen;
  in_ = std::make_unique_for_overwrite<char[]>(bytes_max);
  in_bytes_ = bytes_max;
  while (in_end_ < in_bytes_) {
    const asio::mutable_buffer room(in_.get() + in_end_, in_bytes_ - in_end_);
    error_code error;
    const std::size_t bytes =
        co_await tcp_.async_read_some(room, asio::redirect_error(asio::use_awaitable, error));
    in_end_ += bytes;
    if (error) co_return error_of_input(error);
    if (in_[0] != kHandshakeRecord) co_return asio::ssl::error::unexpected_result;
    // OpenSSL says what is wrong with the rest.
    if (!seen.take({static_cast<const char*>(room.data()), bytes}, false) || seen.has_message())
      co_return error_code();
  }
  co_return asio::ssl::error::unexpected_result;
}

asio::awaitable<error_code> TlsStream::handshake(Side side, std::size_t hello_bytes_max) {
  if (hello_bytes_max > 0) {
    if (const error_code error = co_await receive_hello(hello_bytes_max)) co_return error;
  }
  if (side == Side::kServer) {
    SSL_set_accept_state(native_handle());
    hello_.emplace();
  } else {
    SSL_set_connect_state(native_handle());
  }
  while (true) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    const error_code error = result == 1 ? error_code() : error_of(result);
    const error_code not_sent = co_await send_all();
    if (error || not_sent || result == 1) {
      hello_.reset();
      co_return error ? error : not_sent;
    }
    error_code result_of_input;
    const std::size_t bytes = co_await tcp_.async_read_some(
        input_room(), asio::redirect_error(asio::use_awaitable, result_of_input));
    received(bytes);
    if (result_of_input) co_return error_of_input(result_of_input);
  }
}

asio::awaitable<void> TlsStream::end_sending() {
  if (is_sending_) co_return;
  // As if the other side had ended already: its answer is not waited for.
  SSL_set_shutdown(ssl_.get(), SSL_get_shutdown(ssl_.get()) | SSL_RECEIVED_SHUTDOWN);
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  co_await send_all();
}

}  // namespace loci
