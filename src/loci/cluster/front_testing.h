// SPDX-License-Identifier: Apache-2.0
// For the front's tests: a front before fake instances that answer as the test decides.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spdlog/sinks/null_sink.h>

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <semaphore>
#include <string>
#include <thread>
#include <vector>

#include "loci/cluster/front.h"
#include "loci/cluster/front_request.h"
#include "loci/serve/http/server.h"
#include "loci/serve/telemetry/metrics.h"

namespace loci {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct FakeWays {
  bool keeps_alive = false;               // true: it closes a connection only after an empty answer; else it
                                          // says so in its answers
  std::function<void()> before_end = {};  // called before a written answer's connection ends
  std::function<void()> closed = {};      // called when a connection has ended
  std::string key = {};                   // if not empty: GET /v1/models needs this key
  int requests_max = 0;                   // if not 0: with so many it ends, its port before its connection
};

// Answers each request on a connection of its own with the script's answer, which says that it is the last
// one, then closes the connection. (A front would keep a connection that does not say so. Sending on it
// before it has ended is a loss, and a request has few of them.)
class FakeInstance {
 public:
  using Script = std::function<std::string(const std::string& request)>;

  explicit FakeInstance(Script script, FakeWays ways = {})
      : script_(std::move(script)),
        ways_(std::move(ways)),
        acceptor_(io_, {tcp::v4(), 0}),
        port_(acceptor_.local_endpoint().port()) {
    thread_ = std::thread([this] { run(); });
  }
  ~FakeInstance() {
    is_stopping_ = true;
    error_code ignored;
    tcp::socket wake(io_);
    wake.connect({asio::ip::make_address("127.0.0.1"), port()}, ignored);
    thread_.join();
  }
  std::uint16_t port() const { return port_; }
  int requests() const { return requests_; }
  int questions() const { return questions_; }  // how many questions came whether a key may use it
  Member member(const std::string& id) const {
    return {.id = id, .host = "127.0.0.1", .port = port(), .models = {"tiny"}, .block_tokens = 32};
  }

 private:
  void run() {
    while (!is_stopping_) {
      error_code error;
      tcp::socket socket(io_);
      acceptor_.accept(socket, error);
      if (error || is_stopping_) return;
      while (answer(socket) && ways_.keeps_alive) {
      }
      if (ways_.closed) ways_.closed();
    }
  }
  static std::string as_last(std::string answer) {
    const std::size_t fields = answer.find("\r\n");
    if (answer.starts_with("HTTP/") && fields != std::string::npos)
      answer.insert(fields + 2, "Connection: close\r\n");
    return answer;
  }
  bool say_models(tcp::socket& socket, const std::string& request) {
    ++questions_;
    const bool is_let_in = request.find("Authorization: Bearer " + ways_.key + "\r\n") != std::string::npos;
    const std::string body = is_let_in ? R"({"object":"list","data":[{"id":"tiny"}]})"
                                       : R"({"error":{"message":"no such key","code":"invalid_api_key"}})";
    const std::string answer = fmt::format("HTTP/1.1 {}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{}",
                                           is_let_in ? "200 OK" : "401 Unauthorized", body.size(), body);
    error_code error;
    asio::write(socket, asio::buffer(answer), error);
    socket.shutdown(tcp::socket::shutdown_send, error);
    return false;
  }
  bool answer(tcp::socket& socket) {
    error_code error;
    pollfd readable{.fd = socket.native_handle(), .events = POLLIN, .revents = 0};
    while (::poll(&readable, 1, 10) == 0) {
      if (is_stopping_) return false;
    }
    std::string request;
    asio::read_until(socket, asio::dynamic_buffer(request), "\r\n\r\n", error);
    if (error) return false;
    const std::size_t at = request.find("Content-Length: ");
    const std::size_t body = at == std::string::npos ? 0 : std::stoul(request.substr(at + 16));
    const std::size_t wanted = request.find("\r\n\r\n") + 4 + body;
    if (request.size() < wanted)
      asio::read(socket, asio::dynamic_buffer(request), asio::transfer_exactly(wanted - request.size()),
                 error);
    if (request.starts_with("GET /v1/models") && !ways_.key.empty()) return say_models(socket, request);
    if (!request.starts_with("GET /live") && ++requests_ == ways_.requests_max) {
      acceptor_.close();
      is_stopping_ = true;
    }
    const std::string answer = ways_.keeps_alive ? script_(request) : as_last(script_(request));
    asio::write(socket, asio::buffer(answer), error);
    if (ways_.before_end) ways_.before_end();
    if (!ways_.keeps_alive || answer.empty()) socket.shutdown(tcp::socket::shutdown_send, error);
    return !answer.empty();
  }

  Script script_;
  FakeWays ways_;
  asio::io_context io_;
  tcp::acceptor acceptor_;
  const std::uint16_t port_;
  std::atomic<bool> is_stopping_ = false;
  std::atomic<int> requests_ = 0;
  std::atomic<int> questions_ = 0;
  std::thread thread_;
};

inline std::string whole(const std::string& body, const std::string& status = "200 OK") {
  return fmt::format("HTTP/1.1 {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{}", status,
                     body.size(), body);
}

inline std::string events(const std::string& first) {
  return fmt::format(
      "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: "
      "chunked\r\n\r\n{:x}\r\n{}\r\n",
      first.size(), first);
}

// A clock that stands still between calls of set(), so that no list is late, however busy the machine is.
class StoppedClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void set(Nanos now) { now_ = now; }

 private:
  std::atomic<Nanos> now_ = 0;
};

class FrontTest : public testing::Test {
 protected:
  static constexpr std::size_t kConnectionsMax = 64;

  explicit FrontTest(RoutingPolicy policy = RoutingPolicy::kLeastLoad,
                     Nanos quiet_limit = FrontOptions().quiet_limit)
      : log_(std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>())),
        server_(std::make_unique<HttpServer>(
            HttpServer::Options{.host = "127.0.0.1",
                                .port = 0,
                                .tls = {},
                                .limits = {.bodies_bytes_max = 1 << 20, .connections_max = kConnectionsMax}},
            clock_, metrics_, log_)),
        front_({.instances = {.policy = policy},
                .connect_timeout = 60 * kNanosPerSecond,
                .quiet_limit = quiet_limit,
                .kept_bytes_max = 256 << 10},
               server_->io(), *workers_, front_clock_, log_) {
    EXPECT_TRUE(server_->listen([this](Exchange& exchange) { return front_.handle(exchange); }).ok());
  }
  // In the order in which `loci route` goes down.
  ~FrontTest() override {
    server_->stop(0);
    workers_.reset();
    front_.close();
    server_.reset();
  }

  void update(const std::vector<Member>& members) {
    std::promise<void> done;
    asio::post(server_->io(), [&] {
      front_.update({.members = members});
      done.set_value();
    });
    done.get_future().wait();
  }
  // Returns the whole answer.
  std::string send(const std::string& request) {
    asio::io_context io;
    tcp::socket socket(io);
    socket.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
    asio::write(socket, asio::buffer(request));
    std::string out;
    error_code error;
    asio::read(socket, asio::dynamic_buffer(out), error);
    return out;
  }
  // A metric's value, from /metrics; -1: there is none.
  int metric(const std::string& name) {
    const std::string metrics = get("/metrics");
    const std::size_t at = metrics.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stoi(metrics.substr(at + name.size() + 2));
  }
  // The number of instances with this state.
  int count(const std::string& state) { return metric("loci_front_instances{state=\"" + state + "\"}"); }
  std::string get(const std::string& path, const std::string& more = "") {
    return send(fmt::format("GET {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}\r\n", path, more));
  }
  std::string post(const std::string& path, const std::string& body, const std::string& more = "") {
    return send(
        fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\n{}"
                    "Content-Length: {}\r\n\r\n{}",
                    path, more, body.size(), body));
  }

  SystemClock clock_;
  StoppedClock front_clock_;
  ServeMetrics metrics_{"test"};
  std::shared_ptr<spdlog::logger> log_;
  std::unique_ptr<WorkerPool> workers_ = std::make_unique<WorkerPool>(2);
  std::unique_ptr<HttpServer> server_;
  Front front_;
};

inline const std::string kChat = R"({"model":"tiny","messages":[{"role":"user","content":"hi"}]})";

}  // namespace loci
