// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/http_socket.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/sslerr.h>
#include <openssl/x509_vfy.h>
#include <sys/socket.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace loci {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

HttpSocket::HttpSocket(tcp::socket tcp, TlsContext tls) : tcp_(std::move(tcp)), context_(std::move(tls)) {
  if (context_) tls_.emplace(tcp_, context_->native_handle());
}

asio::awaitable<error_code> HttpSocket::handshake_as_server(std::size_t hello_bytes_max) {
  error_code error;
  if (!tls_) co_return error;
  error = co_await tls_->handshake(TlsStream::Side::kServer, hello_bytes_max);
  is_secured_ = !error;
  co_return error;
}

asio::awaitable<error_code> HttpSocket::handshake_as_client(const std::string& host) {
  error_code error;
  if (!tls_) co_return error;
  SSL* ssl = tls_->native_handle();
  error_code not_address;
  asio::ip::make_address(host, not_address);
  bool is_asked = true;
  if (not_address)
    is_asked = SSL_set_tlsext_host_name(ssl, host.c_str()) == 1 && SSL_set1_host(ssl, host.c_str()) == 1;
  else
    is_asked = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host.c_str()) == 1;
  if (!is_asked) co_return asio::error::invalid_argument;
  error = co_await tls_->handshake(TlsStream::Side::kClient);
  is_secured_ = !error;
  co_return error;
}

long HttpSocket::distrust() { return tls_ ? SSL_get_verify_result(tls_->native_handle()) : X509_V_OK; }

asio::awaitable<void> HttpSocket::end_sending() {
  if (std::exchange(has_ended_, true)) co_return;
  error_code ignored;
  if (is_secured_) co_await tls_->end_sending();
  tcp_.shutdown(tcp::socket::shutdown_send, ignored);
}

namespace {

// What helps where a certificate is not trusted.
const char* remedy(long distrust) {
  switch (distrust) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID: return "it needs one that is valid by this machine's clock";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return "it needs one for the name by which it is called";
    default: return "the option tls_ca names an authority that is";
  }
}

// Of a handshake.
Status tls_failure(HttpSocket& socket, const std::string& host, const error_code& error) {
  if (const long distrust = socket.distrust(); distrust != X509_V_OK)
    return invalid_argument(fmt::format("the certificate of {} is not trusted ({}); {}", host,
                                        X509_verify_cert_error_string(distrust), remedy(distrust)));
  const bool is_of_tls = error.category() == asio::error::get_ssl_category();
  return {is_of_tls ? StatusCode::kInvalidArgument : StatusCode::kUnavailable,
          fmt::format("no TLS with {}: {}", host, error.message())};
}

}  // namespace

// A machine that is gone, or a firewall that has forgotten the connection, says nothing: then it breaks
// within half a minute, and whoever waits for an answer hears of it. (A process that stands still is no such
// thing: its machine answers.)
void break_if_silent(tcp::socket& socket) {
  constexpr int kIdle = 10, kBetween = 5, kProbes = 4;  // s, s
  constexpr unsigned kUnanswered = 30'000;              // ms
  error_code ignored;
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const int handle = socket.native_handle();
  ::setsockopt(handle, IPPROTO_TCP, TCP_KEEPIDLE, &kIdle, sizeof kIdle);
  ::setsockopt(handle, IPPROTO_TCP, TCP_KEEPINTVL, &kBetween, sizeof kBetween);
  ::setsockopt(handle, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof kProbes);
  ::setsockopt(handle, IPPROTO_TCP, TCP_USER_TIMEOUT, &kUnanswered, sizeof kUnanswered);
}

asio::awaitable<Status> connect_to(HttpSocket& socket, std::string host,
                                   tcp::resolver::results_type endpoints) {
  error_code error;
  co_await asio::async_connect(socket.tcp(), endpoints, asio::redirect_error(asio::use_awaitable, error));
  if (error) co_return Status(StatusCode::kUnavailable, "no connection: " + error.message());
  error_code ignored;
  socket.tcp().set_option(tcp::no_delay(true), ignored);
  break_if_silent(socket.tcp());
  error = co_await socket.handshake_as_client(host);
  co_return error ? tls_failure(socket, host, error) : Status();
}

bool is_plain_http(const error_code& handshake_error) {
  const auto code = static_cast<unsigned long>(handshake_error.value());
  return handshake_error.category() == asio::error::get_ssl_category() && ERR_GET_LIB(code) == ERR_LIB_SSL &&
         ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST;
}

}  // namespace loci
