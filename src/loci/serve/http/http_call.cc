// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/http_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <chrono>
#include <exception>
#include <limits>
#include <memory>
#include <utility>

namespace loci {
namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::size_t kBodyBytesMax = std::size_t{16} << 20;

// Shared with the timer's handler, which may run after the call has ended.
struct Connection {
  Connection(const asio::any_io_executor& executor, TlsContext tls)
      : socket(tcp::socket(executor), std::move(tls)), timer(executor) {}
  HttpSocket socket;
  asio::steady_timer timer;
  bool timed_out = false;
};

void arm(const std::shared_ptr<Connection>& connection, Nanos timeout) {
  connection->timer.expires_after(std::chrono::nanoseconds(timeout));
  connection->timer.async_wait([connection](const error_code& error) {
    if (error) return;
    connection->timed_out = true;
    error_code ignored;
    connection->socket.tcp().close(ignored);
  });
}

Status timed_out(const CallRequest& request) {
  return {StatusCode::kDeadlineExceeded,
          fmt::format("the server did not finish its answer within {} s", request.timeout / kNanosPerSecond)};
}

http::request<http::string_body> make_message(const CalledServer& server, CallRequest& request) {
  http::request<http::string_body> message(request.method, request.path, 11);
  const ServerAddress& address = server.address;
  message.set(http::field::host, authority_of(address.host, address.port));
  message.set(http::field::connection, "close");
  if (!address.key.empty()) message.set(http::field::authorization, "Bearer " + address.key);
  if (!request.body.empty()) message.set(http::field::content_type, "application/json");
  for (const auto& [name, value] : request.headers) message.set(name, value);
  message.body() = std::move(request.body);
  message.prepare_payload();
  return message;
}

using Parser = http::response_parser<http::buffer_body>;

Nanos retry_after_of(const Parser& parser) {
  const auto field = parser.get()[http::field::retry_after];
  Nanos seconds = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), seconds);
  if (error != std::errc{} || end != field.data() + field.size() || seconds < 0) return 0;
  return std::min<Nanos>(seconds, 86'400) * kNanosPerSecond;
}

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
      if (answer.body.size() == kBodyBytesMax) co_return error_code();  // it may have no end
    }
    if (error && error != http::error::need_buffer) co_return error;
  }
  co_return error_code();
}

}  // namespace

asio::awaitable<HttpAnswer> http_call(const CalledServer& server, const Clock& clock, CallRequest request,
                                      HttpSink sink) {
  const asio::any_io_executor executor = co_await asio::this_coro::executor;
  const auto connection = std::make_shared<Connection>(executor, server.address.tls);
  HttpAnswer answer;
  if (request.timeout > 0) arm(connection, request.timeout);
  const http::request<http::string_body> message = make_message(server, request);
  boost::beast::flat_buffer buffer;
  Parser parser;
  parser.body_limit(std::numeric_limits<std::uint64_t>::max());
  answer.status = co_await connect_to(connection->socket, server.address.host, server.endpoints);
  error_code error;
  if (answer.status.ok()) {
    answer.sent = clock.now();
    co_await http::async_write(connection->socket, message, asio::redirect_error(asio::use_awaitable, error));
    if (!error) {
      co_await http::async_read_header(connection->socket, buffer, parser,
                                       asio::redirect_error(asio::use_awaitable, error));
    }
    if (!error) {
      answer.code = parser.get().result_int();
      answer.retry_after = retry_after_of(parser);
      error = co_await read_body(connection, buffer, parser, clock, sink, answer);
    }
    if (error)
      answer.status =
          Status(StatusCode::kUnavailable, "the connection to the server broke: " + error.message());
  }
  answer.ended = clock.now();
  if (!answer.status.ok() && connection->timed_out) answer.status = timed_out(request);
  connection->timer.cancel();
  co_return answer;
}

HttpAnswer call_and_wait(const ServerAddress& address, CallRequest request) {
  asio::io_context io{1};
  error_code error;
  const CalledServer server{.address = address,
                            .endpoints = tcp::resolver(io).resolve(address.host, address.port, error)};
  HttpAnswer answer;
  if (error) {
    answer.status = Status(StatusCode::kUnavailable, error.message());
    return answer;
  }
  const SystemClock clock;
  asio::co_spawn(io, http_call(server, clock, std::move(request), {}),
                 [&answer](const std::exception_ptr& failure, HttpAnswer got) {
                   answer = std::move(got);
                   if (failure) answer.status = internal_error("the call failed");
                 });
  io.run();
  return answer;
}

}  // namespace loci
