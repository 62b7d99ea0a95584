// SPDX-License-Identifier: Apache-2.0
// A raw socket as a client, and a server whose handler does what its tests ask for by path.
#pragma once

#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/null_sink.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <cerrno>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "loci/base/eventually_testing.h"
#include "loci/serve/http/server.h"
#include "loci/serve/telemetry/metrics.h"
#include "loci/serve/workers/worker_pool.h"

namespace loci {

// A client that reads with a time limit, so that a fault is a failure and not a hang.
class Client {
 public:
  // `from`: an address of this machine.
  explicit Client(std::uint16_t port, const char* from = "127.0.0.1") : socket_(io_) {
    socket_.open(boost::asio::ip::tcp::v4());
    socket_.bind({boost::asio::ip::make_address(from), 0});
    socket_.connect({boost::asio::ip::make_address("127.0.0.1"), port});
    const timeval patience{.tv_sec = 120, .tv_usec = 0};
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  void send(std::string_view data) {
    boost::system::error_code error;
    boost::asio::write(socket_, boost::asio::buffer(data), error);
  }
  // Until `end` was seen `count` times, or the end of the connection.
  std::string read_until(const std::string& end, int count = 1) {
    std::string got;
    for (;;) {
      int seen = 0;
      for (auto at = got.find(end); at != got.npos; at = got.find(end, at + end.size())) ++seen;
      if (seen >= count) return got;
      std::string piece(4096, '\0');
      boost::system::error_code error;
      const std::size_t bytes = read_some(piece, error);
      if (error) return got;
      got.append(piece, 0, bytes);
    }
  }
  std::string read_all() { return read_until("\x01never"); }
  std::size_t read_some(std::string& piece, boost::system::error_code& error) {
    ssize_t bytes = 0;
    do {
      bytes = recv(socket_.native_handle(), piece.data(), piece.size(), 0);
    } while (bytes < 0 && errno == EINTR);  // as a process may see that stood still
    if (bytes < 0 && errno == EAGAIN) ADD_FAILURE() << "the server sent nothing for two minutes";
    if (bytes <= 0) error = boost::asio::error::eof;
    return bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
  }
  bool has_input() { return socket_.available() > 0; }
  bool is_closed() {
    std::string piece(1, '\0');
    boost::system::error_code error;
    read_some(piece, error);
    return static_cast<bool>(error);
  }
  void close() { socket_.close(); }
  void reset() {
    socket_.set_option(boost::asio::socket_base::linger(true, 0));
    socket_.close();
  }
  void end_sending() { socket_.shutdown(boost::asio::ip::tcp::socket::shutdown_send); }

 private:
  boost::asio::io_context io_;
  boost::asio::ip::tcp::socket socket_;
};

class ServerTest : public testing::Test {
 protected:
  void start(const HttpLimits& limits = {}) {
    server_.emplace(
        HttpServer::Options{.host = "127.0.0.1", .port = 0, .limits = limits}, clock_, metrics_,
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>()));
    const Status status = server_->listen([this](Exchange& exchange) { return handle(exchange); });
    ASSERT_TRUE(status.ok()) << status.to_string();
  }

  // A request that is answered only once its client has left ("/half": or has ended what it sends;
  // "/patient": or another one asks for "/let-go").
  void send_waiting(Client& client, const std::string& path = "/wait") {
    waiting_ = false;
    client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    ASSERT_TRUE(eventually([&] { return waiting_.load(); }));
  }
  bool metrics_say(const std::string& line) {
    return metrics_.scrape({}, 0).find("\n" + line + "\n") != std::string::npos;
  }

  boost::asio::awaitable<void> handle(Exchange& exchange) {
    if (exchange.path().starts_with("/stranger")) exchange.give_way();
    if (exchange.path() == "/stranger/known") exchange.keep_place();
    if (exchange.path().starts_with("/stranger")) ++strangers_;
    if (exchange.path() == "/header" || exchange.path() == "/limit") {
      HttpResponse response{.status = exchange.path() == "/limit" ? 429 : 401, .body = "no", .headers = {}};
      co_await exchange.respond(std::move(response));
      co_return;
    }
    const std::optional<ApiError> error = co_await exchange.read_body();
    if (error) {
      HttpResponse response{.status = error->http_status, .body = to_json(*error), .headers = {}};
      if (error->retry_after_seconds)
        response.headers.emplace_back("Retry-After", std::to_string(*error->retry_after_seconds));
      co_await exchange.respond(std::move(response));
    } else {
      co_await handle_whole(exchange);
    }
  }

  boost::asio::awaitable<void> handle_whole(Exchange& exchange) {
    if (exchange.path() == "/stream") {
      co_await exchange.begin_stream("text/plain");
      co_await exchange.stream("one ");
      co_await exchange.stream("two");
      co_await exchange.end_stream();
    } else if (exchange.path().ends_with("/flood")) {
      const std::string megabyte(1 << 20, 'x');
      flood_began_ = true;
      bool there = co_await exchange.begin_stream("text/plain");
      for (int i = 0; there && i < 1000; ++i) there = co_await exchange.stream(megabyte);
      flood_ended_ = !there;
    } else if (exchange.path() == "/wait" || exchange.path() == "/drop" || exchange.path() == "/half" ||
               exchange.path() == "/patient") {
      if (exchange.path() == "/drop") exchange.drop_body();
      boost::asio::steady_timer timer(exchange.io(), std::chrono::seconds(600));
      if (exchange.path() == "/patient") let_go_ = [&timer] { timer.cancel(); };
      exchange.watch([&] { timer.cancel(); },
                     exchange.path() == "/patient" ? 600 * kNanosPerSecond : Nanos{0});
      waiting_ = true;
      boost::system::error_code ignored;
      co_await timer.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
      saw_gone_ = exchange.gone();
      if (exchange.path() != "/half" && exchange.path() != "/patient") co_return;
      co_await exchange.unwatch();
      exchange.answer_half_closed();
      HttpResponse response{.body = "<late>", .headers = {}};
      co_await exchange.respond(std::move(response));
    } else if (exchange.path() == "/watch") {
      // Reads ahead for a while, as a generation does.
      exchange.watch([] {});
      boost::asio::steady_timer timer(exchange.io(), std::chrono::milliseconds(50));
      boost::system::error_code ignored;
      co_await timer.async_wait(boost::asio::redirect_error(boost::asio::use_awaitable, ignored));
      HttpResponse response{.body = "watched", .headers = {}};
      co_await exchange.respond(std::move(response));
    } else if (exchange.path() == "/let-go") {
      let_go_();
      HttpResponse response{.body = "<let go>", .headers = {}};
      co_await exchange.respond(std::move(response));
    } else if (exchange.path() == "/work") {
      const auto job = [&] { return std::string(exchange.request().body); };
      HttpResponse response;
      response.body = co_await workers_.run("tenant", job);
      co_await exchange.respond(std::move(response));
    } else {
      HttpResponse response{.body = "<" + std::string(exchange.path()) + ":" + exchange.request().body + ">",
                            .headers = {}};
      co_await exchange.respond(std::move(response));
    }
  }

  SystemClock clock_;
  ServeMetrics metrics_{"test"};
  std::atomic<bool> waiting_{false};
  std::atomic<bool> saw_gone_{false};
  std::atomic<int> strangers_{0};  // requests that gave way, if only at first
  std::function<void()> let_go_;   // whoever waits by "/patient"; of the network thread
  std::atomic<bool> flood_began_{false};
  std::atomic<bool> flood_ended_{false};
  std::optional<HttpServer> server_;
  WorkerPool workers_{1};
};

}  // namespace loci
