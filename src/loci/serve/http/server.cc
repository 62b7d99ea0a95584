// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/server.h"

#include <fmt/format.h>
#include <netinet/tcp.h>
#include <sys/resource.h>

#include <array>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <climits>
#include <exception>
#include <future>
#include <thread>

#include "loci/serve/http/connection.h"
#include "loci/serve/http/tls_identity.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/serve/wire/api_error.h"

namespace loci {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// This process has as many as it may, or the machine.
bool lacks_descriptors(const error_code& error) { return error.value() == EMFILE || error.value() == ENFILE; }

constexpr std::size_t kTurnedAwayMax = 256;

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

struct HttpServer::State {
  State(const Options& given, const Clock& clock, ServeMetrics& counts,
        std::shared_ptr<spdlog::logger> logger)
      : options(given),
        log(std::move(logger)),
        metrics(counts),
        context{.io = io,
                .limits = options.limits,
                .clock = clock,
                .metrics = metrics,
                .handler = {},
                .bodies = ByteBudget(options.limits.bodies_bytes_max)},
        work(asio::make_work_guard(io)) {}

  Status listen(ExchangeHandler handler);
  void stop(Nanos grace);

  void check_descriptors() const;
  void note_unaccepted(const error_code& error);
  asio::awaitable<void> accept_loop();
  asio::awaitable<void> serve(std::shared_ptr<Connection> connection);
  asio::awaitable<void> turn_away(std::shared_ptr<tcp::socket> socket);
  asio::awaitable<void> close_all(Nanos grace);

  const Options options;
  const std::shared_ptr<spdlog::logger> log;
  ServeMetrics& metrics;
  TlsIdentity tls;
  ConnectionContext context;  // outlives io, whose last coroutines give back what they hold of it
  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work;
  tcp::acceptor acceptor{io};
  std::size_t turned_away = 0;  // being told so
  std::uint64_t unaccepted = 0;
  std::chrono::steady_clock::time_point unaccepted_said_again{};
  std::uint16_t port = 0;
  std::thread thread;
};

HttpServer::HttpServer(const Options& options, const Clock& clock, ServeMetrics& metrics,
                       std::shared_ptr<spdlog::logger> log)
    : state_(std::make_unique<State>(options, clock, metrics, std::move(log))) {}

HttpServer::~HttpServer() { stop(0); }

Status HttpServer::listen(ExchangeHandler handler) { return state_->listen(std::move(handler)); }
std::uint16_t HttpServer::port() const { return state_->port; }
asio::io_context& HttpServer::io() { return state_->io; }
void HttpServer::stop(Nanos grace) { state_->stop(grace); }

Status HttpServer::State::listen(ExchangeHandler handler) {
  LOCI_RETURN_IF_ERROR(tls.open(options.tls, log));
  context.handler = std::move(handler);
  error_code error;
  tcp::resolver resolver(io);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return invalid_argument(
        fmt::format("expected an address of this machine, found '{}': {}", options.host, error.message()),
        "host");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(tcp::acceptor::max_listen_connections, error);
  if (error) return bind_error(options.host, options.port, error);
  port = acceptor.local_endpoint(error).port();
  check_descriptors();
  asio::co_spawn(io, accept_loop(), asio::detached);
  thread = std::thread([this] { io.run(); });
  return {};
}

asio::awaitable<void> HttpServer::State::accept_loop() {
  asio::steady_timer pause(io);
  while (acceptor.is_open()) {
    error_code error;
    tcp::socket socket = co_await acceptor.async_accept(asio::redirect_error(asio::use_awaitable, error));
    if (!acceptor.is_open()) break;
    if (error) {
      // Out of descriptors or memory: nothing is gained by trying again at once, unless an idle
      // connection gives its descriptor.
      const bool has_room = lacks_descriptors(error) && context.make_room();
      note_unaccepted(error);
      if (has_room) continue;
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      continue;
    }
    socket.set_option(tcp::no_delay(true), error);
    const int unsent_max = options.unsent_bytes_max > 0 ? options.unsent_bytes_max : INT_MAX;
    ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent_max, sizeof unsent_max);
    TlsContext secured = options.tls_context ? options.tls_context : tls.context();
    const bool is_full = context.all.size() - context.greeting.size() >= options.limits.connections_max;
    // Where handshakes are bounded, a connection closes another one once it has done its own.
    const bool has_room =
        !is_full || (options.limits.greetings_max > 0 ? !context.waiting.empty() : context.make_room());
    // Who would have to be greeted first, at the cost of a signature, to be turned away is closed.
    if (!has_room && secured) continue;
    if (!has_room) {
      asio::co_spawn(io, turn_away(std::make_shared<tcp::socket>(std::move(socket))), asio::detached);
      // Whoever comes next waits in the system's queue until one of those has read its answer.
      while (turned_away >= kTurnedAwayMax && acceptor.is_open()) {
        pause.expires_after(std::chrono::milliseconds(2));
        co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
      }
      continue;
    }
    asio::co_spawn(io, serve(std::make_shared<Connection>(std::move(socket), std::move(secured), context)),
                   asio::detached);
  }
}

void HttpServer::State::check_descriptors() const {
  constexpr rlim_t kOthers = 64;  // files, databases
  rlimit allowed{};
  if (::getrlimit(RLIMIT_NOFILE, &allowed) != 0 ||
      allowed.rlim_cur >= options.limits.connections_max + kOthers)
    return;
  log->warn(
      "this process may open {} files (ulimit -n), which is less than the {} connections of option "
      "max_connections need: where they run out, idle connections are closed for new ones",
      allowed.rlim_cur, options.limits.connections_max);
}

// It may come with every connection that waits: said once a minute.
void HttpServer::State::note_unaccepted(const error_code& error) {
  ++unaccepted;
  const auto now = std::chrono::steady_clock::now();
  if (now < unaccepted_said_again) return;
  unaccepted_said_again = now + std::chrono::minutes(1);
  log->warn("cannot accept a connection: {} ({} times so far){}", error.message(), unaccepted,
            lacks_descriptors(error)
                ? ": allow more open files (ulimit -n), or set option max_connections lower"
                : "");
}

asio::awaitable<void> HttpServer::State::serve(std::shared_ptr<Connection> connection) {
  context.all.insert(connection.get());
  metrics.connections(context.all.size());
  try {
    co_await connection->run();
  } catch (const std::exception& error) {
    log->error("a connection failed: {}", error.what());
    connection->close_now();
  }
  context.all.erase(connection.get());
  metrics.connections(context.all.size());
}

asio::awaitable<void> HttpServer::State::turn_away(std::shared_ptr<tcp::socket> socket) {
  ++turned_away;
  const std::string body =
      to_json(http_error(503,
                         fmt::format("all {} connections of this server are in use; try again later",
                                     options.limits.connections_max),
                         std::string(error_codes::kTooManyConnections)));
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
  asio::steady_timer limit(io, std::chrono::nanoseconds(options.limits.turned_away_timeout));
  limit.async_wait([socket](error_code fired) {
    if (fired) return;
    error_code ignored;
    socket->close(ignored);  // (Cancelling would end no read that finds its bytes there already.)
  });
  std::array<char, 4096> dropped{};
  while (!error) {
    co_await socket->async_read_some(asio::buffer(dropped), asio::redirect_error(asio::use_awaitable, error));
  }
  --turned_away;
}

asio::awaitable<void> HttpServer::State::close_all(Nanos grace) {
  error_code ignored;
  acceptor.close(ignored);
  context.stopping = true;
  // A connection that closes at once is still in the set until its coroutine has run.
  for (Connection* connection : context.all) connection->close_when_idle();
  asio::steady_timer pause(io);
  const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(grace);
  while (!context.all.empty() && std::chrono::steady_clock::now() < until) {
    pause.expires_after(std::chrono::milliseconds(5));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
  for (Connection* connection : context.all) connection->close_now();
  // Their coroutines notice it and end.
  for (int turns = 0; !context.all.empty() && turns < 200; ++turns) {
    pause.expires_after(std::chrono::milliseconds(5));
    co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
  }
}

void HttpServer::State::stop(Nanos grace) {
  if (!thread.joinable()) return;
  asio::co_spawn(io, close_all(grace), asio::use_future).wait();
  work.reset();
  io.stop();
  thread.join();
}

}  // namespace loci
