// SPDX-License-Identifier: Apache-2.0
// A TCP connection that speaks TLS, or not: what HTTP is read from and written to on either side. One read
// and one write may go on at the same time. All of it on one thread.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <string>
#include <utility>

#include "loci/base/status.h"
#include "loci/serve/http/tls.h"
#include "loci/serve/http/tls_stream.h"

namespace loci {

// It is not moved while a read or a write goes on.
class HttpSocket {
 public:
  using executor_type = boost::asio::ip::tcp::socket::executor_type;

  // `tls`: null where the connection is plain.
  HttpSocket(boost::asio::ip::tcp::socket tcp, TlsContext tls);

  executor_type get_executor() { return tcp_.get_executor(); }
  // What carries it: to connect, to cancel everything that goes on, to close.
  boost::asio::ip::tcp::socket& tcp() { return tcp_; }

  // Before anything is read or written, once TCP is connected. Nothing happens on a plain connection.
  // `hello_bytes_max`: TlsStream::handshake().
  boost::asio::awaitable<boost::system::error_code> handshake_as_server(std::size_t hello_bytes_max = 0);
  // `host`: a name or an address, which the server's certificate must be for.
  boost::asio::awaitable<boost::system::error_code> handshake_as_client(const std::string& host);
  // After a failed handshake_as_client(): what is wrong with the server's certificate, one of OpenSSL's
  // X509_V_ERR_...; X509_V_OK: nothing.
  long distrust();

  // As Asio's and Beast's AsyncStream have them.
  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_read_some(buffers, std::forward<Token>(token));
    return tcp_.async_read_some(buffers, std::forward<Token>(token));
  }
  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    if (tls_) return tls_->async_write_some(buffers, std::forward<Token>(token));
    return tcp_.async_write_some(buffers, std::forward<Token>(token));
  }

  // After the last write: the peer learns that nothing more comes, and that nothing was cut off. Does not
  // wait for the peer's own end; from here on only tcp() is read, to be dropped.
  boost::asio::awaitable<void> end_sending();
  // True: TLS has read more than was asked of it.
  bool has_input() const { return tls_ && tls_->has_input(); }
  // Gives back the memory of TLS's buffers. While nothing is read or written.
  void rest() {
    if (tls_) tls_->rest();
  }

 private:
  boost::asio::ip::tcp::socket tcp_;
  TlsContext context_;
  std::optional<TlsStream> tls_;
  bool is_secured_ = false;  // the handshake is done
  bool has_ended_ = false;
};

// As a client: connects to one of the endpoints, which `host` was looked up as, and agrees on TLS where the
// socket has it. Errors: kUnavailable; kInvalidArgument where the server is not trusted, or does not speak
// TLS. `socket` must outlive the call.
boost::asio::awaitable<Status> connect_to(HttpSocket& socket, std::string host,
                                          boost::asio::ip::tcp::resolver::results_type endpoints);

// Whether a handshake failed because the client speaks plain HTTP.
bool is_plain_http(const boost::system::error_code& handshake_error);

}  // namespace loci
