// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/server.h"

#include <fmt/format.h>
#include <netinet/tcp.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>
#include <climits>
#include <exception>

#include "loci/serve/wire/api_error.h"

namespace loci {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::size_t kTurnedAwayMax = 256;
constexpr std::chrono::milliseconds kTurnedAwayTime{1'000};

Status bind_error(const std::string& host, std::uint16_t port, const error_code& error) {
  if (error == asio::error::address_in_use) {
    return {
        StatusCode::kUnavailable,
        fmt::format(
            "port {} of {} is in use; stop what listens there or choose another port (0: any that is free)",
            port, host),
        "port"};
  }
  if (error == asio::error::access_denied) {
    return {StatusCode::kUnavailable,
            fmt::format("no permission to listen on port {}; choose one above 1023", port), "port"};
  }
  return invalid_argument(fmt::format("cannot listen on {} port {}: {}", host, port, error.message()),
                          "host");
}

}  // namespace

HttpServer::HttpServer(const Options& options, const Clock& clock, ServeMetrics& metrics,
                       std::shared_ptr<spdlog::logger> log)
    : options_(options),
      log_(std::move(log)),
      metrics_(metrics),
      context_{.io = io_,
               .limits = options_.limits,
               .clock = clock,
               .metrics = metrics,
               .handler = {},
               .bodies = BodyBudget(options_.limits.bodies_bytes_max)},
      work_(asio::make_work_guard(io_)) {}

HttpServer::~HttpServer() { stop(0); }

Status HttpServer::listen(ExchangeHandler handler) {
  LOCI_RETURN_IF_ERROR(tls_.open(options_.tls, log_));
  context_.handler = std::move(handler);
  error_code error;
  tcp::resolver resolver(io_);
  const auto found =
      resolver.resolve(options_.host, std::to_string(options_.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return invalid_argument(
        fmt::format("'{}' is no address of this machine: {}", options_.host, error.message()), "host");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(tcp::acceptor::max_listen_connections, error);
  if (error) return bind_error(options_.host, options_.port, error);
  port_ = acceptor_.local_endpoint(error).port();
  asio::co_spawn(io_, accept_loop(), asio::detached);
  thread_ = std::thread([this] { io_.run(); });
  return {};
}

asio::awaitable<void> HttpServer::accept_loop() {
  asio::steady_timer pause(io_);
  while (acceptor_.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor_.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor_.is_open()) break;
    if (error) {
      // Out of descriptors or memory: nothing is gained by trying again at once.
      log_->warn("cannot accept a connection: {}", error.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    socket.set_option(tcp::no_delay(true), error);
    const int unsent_max = options_.unsent_bytes_max > 0 ? options_.unsent_bytes_max : INT_MAX;
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof unsent_max);
    TlsContext tls = options_.tls_context ? options_.tls_context : tls_.context();
    // Who would have to be greeted first, at the cost of a signature, to be turned away is closed.
    const std::size_t greeting = options_.limits.greetings_max > 0 ? context_.greeting.size() : 0;
    if (tls && connections_.size() - greeting >= options_.limits.connections_max) continue;
    if (!tls && connections_.size() >= options_.limits.connections_max) {
      asio::co_spawn(io_, turn_away(std::make_shared<tcp::socket>(std::move(socket))), asio::detached);
      // Whoever comes next waits in the system's queue until one of those has read its answer.
      while (turned_away_ >= kTurnedAwayMax && acceptor_.is_open()) {
        pause.expires_after(std::chrono::milliseconds(2));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      }
      continue;
    }
    asio::co_spawn(io_, serve(std::make_shared<Connection>(std::move(socket), std::move(tls), context_)),
                   asio::detached);
  }
}

asio::awaitable<void> HttpServer::serve(std::shared_ptr<Connection> connection) {
  connections_.insert(connection.get());
  metrics_.connections(connections_.size());
  try {
    co_await connection->run();
  } catch (const std::exception& error) {
    log_->error("a connection failed: {}", error.what());
    connection->close_now();
  }
  connections_.erase(connection.get());
  metrics_.connections(connections_.size());
}

asio::awaitable<void> HttpServer::turn_away(std::shared_ptr<tcp::socket> socket) {
  ++turned_away_;
  const std::string body =
      to_json(http_error(503, fmt::format("all {} connections are in use", options_.limits.connections_max),
                         "too_many_connections"));
  const std::string answer = fmt::format(
      "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n"
      "Retry-After: 1\r\nConnection: close\r\n\r\n{}",
      body.size(), body);
  error_code error;
  // The send buffer of a new connection holds it: one write, no waiting for the client.
  socket->non_blocking(true, error);
  if (!error) socket->write_some(asio::buffer(answer), error);
  if (!error) socket->shutdown(tcp::socket::shutdown_send, error);
  // Closing on unread input would reset the connection, and the client could lose the answer. So the request
  // is read and dropped until the client closes.
  asio::steady_timer limit(io_, kTurnedAwayTime);
  limit.async_wait([socket](error_code fired) {
    if (fired) return;
    error_code ignored;
    socket->cancel(ignored);
  });
  std::array<char, 4096> dropped{};
  while (!error) {
    co_await socket->async_read_some(asio::buffer(dropped), asio::redirect_error(asio::use_awaitable, error));
  }
  --turned_away_;
}

asio::awaitable<void> HttpServer::close_all(Nanos grace) {
  error_code ignored;
  acceptor_.close(ignored);
  context_.stopping = true;
  // A connection that closes at once is still in the set until its coroutine has run.
  for (Connection* connection : connections_) connection->close_when_idle();
  asio::steady_timer pause(io_);
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(grace);
  while (!connections_.empty() && std::chrono::steady_clock::now() < until) {
    pause.expires_after(std::chrono::milliseconds(5));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  for (Connection* connection : connections_) connection->close_now();
  // Their coroutines notice it and end.
  for (int turns = 0; !connections_.empty() && turns < 200; ++turns) {
    pause.expires_after(std::chrono::milliseconds(5));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void HttpServer::stop(Nanos grace) {
  if (!thread_.joinable()) return;
  asio::co_spawn(io_, close_all(grace), asio::use_future).wait();
  work_.reset();
  io_.stop();
  thread_.join();
}

}  // namespace loci
