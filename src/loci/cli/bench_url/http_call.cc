// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_url/http_call.h"

#include <fmt/format.h>

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <limits>
#include <memory>

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::size_t kBodyBytesMax = std::size_t{16} << 20;

// Shared with the timer's handler, which may run after the call has ended.
struct Connection {
  explicit Connection(const asio::any_io_executor& executor) : socket(executor), timer(executor) {}
  tcp::socket socket;
  asio::steady_timer timer;
  bool timed_out = false;
};

void arm(const std::shared_ptr<Connection>& connection, Nanos timeout) {
  connection->timer.expires_after(std::chrono::nanoseconds(timeout));
  connection->timer.async_wait([connection](const error_code& error) {
    if (error) return;
    connection->timed_out = true;
    error_code ignored;
    connection->socket.close(ignored);
  });
}

Status failure(const Connection& connection, const CallRequest& request, const error_code& error,
               std::string_view when) {
  if (connection.timed_out) {
    return {StatusCode::kDeadlineExceeded,
            fmt::format("no whole answer within {} s", request.timeout / kNanosPerSecond)};
  }
  return {StatusCode::kUnavailable, fmt::format("{}: {}", when, error.message())};
}

http::request<http::string_body> make_message(const CalledServer& server, CallRequest& request) {
  http::request<http::string_body> message(request.body.empty() ? http::verb::get : http::verb::post,
                                           request.path, 11);
  message.set(http::field::host, server.host);
  message.set(http::field::connection, "close");
  if (!server.api_key.empty()) message.set(http::field::authorization, "Bearer " + server.api_key);
  if (!request.body.empty()) message.set(http::field::content_type, "application/json");
  message.body() = std::move(request.body);
  message.prepare_payload();
  return message;
}

using Parser = http::response_parser<http::buffer_body>;

// Reads the body up to its end, the sink's, or an error.
asio::awaitable<error_code> read_body(std::shared_ptr<Connection> connection,
                                      boost::beast::flat_buffer& buffer, Parser& parser, const Clock& clock,
                                      const HttpSink& sink, HttpAnswer& answer) {
  std::array<char, 16384> piece{};
  const bool to_sink = sink && answer.code == 200;
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    error_code error;
    co_await http::async_read_some(connection->socket, buffer, parser,
                                   asio::redirect_error(asio::use_awaitable, error));
    const std::string_view got(piece.data(), piece.size() - parser.get().body().size);
    if (to_sink) {
      if (!got.empty() && !sink(got, clock.now())) co_return error_code();
    } else {
      answer.body += got.substr(0, kBodyBytesMax - answer.body.size());
    }
    if (error && error != http::error::need_buffer) co_return error;
  }
  co_return error_code();
}

}  // namespace

asio::awaitable<HttpAnswer> http_call(const CalledServer& server, const Clock& clock, CallRequest request,
                                      HttpSink sink) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const auto connection = std::make_shared<Connection>(executor);
  HttpAnswer answer;
  arm(connection, request.timeout);
  const http::request<http::string_body> message = make_message(server, request);
  boost::beast::flat_buffer buffer;
  Parser parser;
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  error_code error;
  std::string_view when = "no connection";
  co_await asio::async_connect(connection->socket, server.endpoints,
                               asio::redirect_error(asio::use_awaitable, error));
  if (!error) {
    error_code ignored;
    connection->socket.set_option(tcp::no_delay(true), ignored);
    when = "the connection broke";
    answer.sent = clock.now();
    co_await http::async_write(connection->socket, message, asio::redirect_error(asio::use_awaitable, error));
  }
  if (!error) {
    co_await http::async_read_header(connection->socket, buffer, parser,
                                     asio::redirect_error(asio::use_awaitable, error));
  }
  if (!error) {
    answer.code = parser.get().result_int();
    error = co_await read_body(connection, buffer, parser, clock, sink, answer);
  }
  answer.ended = clock.now();
  if (error) answer.status = failure(*connection, request, error, when);
  connection->timer.cancel();
  co_return answer;
}

}  // namespace loci
