// SPDX-License-Identifier: Apache-2.0
// Measures how much a front adds to the time to a reply's first event: 64 streams at once (or a given number)
// from an instance that only echoes (20 events, 10 ms apart), alternately asked directly and through a front
// in the same process. Aim: less than 1 ms at the median, 5 ms at the 99th percentile.
#include <fmt/format.h>
#include <spdlog/sinks/null_sink.h>

#include <algorithm>
#include <boost/asio/connect.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <cstdlib>
#include <future>
#include <thread>
#include <vector>

#include "loci/cluster/front.h"
#include "loci/serve/http/server.h"
#include "loci/serve/telemetry/metrics.h"

namespace loci {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Time = std::chrono::steady_clock;

constexpr int kEvents = 20, kRequests = 20, kRounds = 5;

// A conversation of some 4,000 tokens.
std::string chat_body() {
  return R"({"model":"echo","stream":true,"messages":[{"role":"user","content":")" +
         std::string(16'000, 'x') + "\"}]}";
}

asio::awaitable<void> echo(Exchange& exchange) {
  if (co_await exchange.read_body()) co_return;
  co_await exchange.begin_stream("text/event-stream");
  asio::steady_timer pause(exchange.io());
  for (int i = 0; i < kEvents; ++i) {
    if (!co_await exchange.stream("data: {\"token\":1}\n\n")) co_return;
    pause.expires_after(std::chrono::milliseconds(10));
    co_await pause.async_wait(asio::use_awaitable);
  }
  co_await exchange.end_stream();
}

// The times to the first event of one client's requests, one after the other, in milliseconds.
std::vector<double> ask(std::uint16_t port, const std::string& request,
                        std::chrono::milliseconds begin_after) {
  std::this_thread::sleep_for(begin_after);
  asio::io_context io;
  tcp::socket socket(io);
  socket.connect({asio::ip::make_address("127.0.0.1"), port});
  socket.set_option(tcp::no_delay(true));
  std::vector<double> out;
  std::string got;
  std::array<char, 4096> piece{};
  for (int i = 0; i < kRequests; ++i) {
    const Time::time_point begin = Time::now();
    asio::write(socket, asio::buffer(request));
    bool is_first = true;
    got.clear();
    while (!got.ends_with("0\r\n\r\n")) {
      got.append(piece.data(), socket.read_some(asio::buffer(piece)));
      if (is_first && got.find("data:") != std::string::npos) {
        out.push_back(std::chrono::duration<double, std::milli>(Time::now() - begin).count());
        is_first = false;
      }
    }
  }
  return out;
}

std::vector<double> measure(std::uint16_t port, int streams) {
  const std::string body = chat_body();
  const std::string request = fmt::format(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      body.size(), body);
  std::vector<std::future<std::vector<double>>> clients;
  for (int i = 0; i < streams; ++i) {
    const std::chrono::milliseconds begin_after(i * 200 / streams);
    clients.push_back(
        std::async(std::launch::async, [&, begin_after] { return ask(port, request, begin_after); }));
  }
  std::vector<double> all;
  for (auto& client : clients) {
    const std::vector<double> times = client.get();
    all.insert(all.end(), times.begin(), times.end());
  }
  std::sort(all.begin(), all.end());
  return all;
}

double part(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<std::size_t>(share * static_cast<double>(sorted.size() - 1))];
}

void run(int streams) {
  const auto log =
      std::make_shared<spdlog::logger>("benchmark", std::make_shared<spdlog::sinks::null_sink_mt>());
  const SystemClock clock;
  ServeMetrics metrics("benchmark");
  WorkerPool workers(2);
  HttpServer instance({.host = "127.0.0.1", .port = 0, .tls = {}, .limits = {}}, clock, metrics, log);
  HttpServer server({.host = "127.0.0.1", .port = 0, .tls = {}, .limits = {}}, clock, metrics, log);
  Front front({}, server.io(), workers, clock, log);
  if (!instance.listen(&echo).ok() ||
      !server.listen([&front](Exchange& exchange) { return front.handle(exchange); }).ok())
    return;
  const Member member{
      .id = "0000000000000001", .host = "127.0.0.1", .port = instance.port(), .models = {"echo"}};
  asio::post(server.io(), [&] { front.update({.members = {member}}); });
  fmt::print("{} streams, {} requests each; time to the first event in ms\n", streams, kRequests);
  fmt::print("{:>8} {:>10} {:>10} {:>10} {:>10}\n", "round", "direct", "p99", "front", "p99");
  std::vector<double> added, added_p99;
  for (int round = 0; round < kRounds; ++round) {
    const std::vector<double> direct = measure(instance.port(), streams),
                              through = measure(server.port(), streams);
    fmt::print("{:>8} {:>10.3f} {:>10.3f} {:>10.3f} {:>10.3f}\n", round, part(direct, 0.5),
               part(direct, 0.99), part(through, 0.5), part(through, 0.99));
    added.push_back(part(through, 0.5) - part(direct, 0.5));
    added_p99.push_back(part(through, 0.99) - part(direct, 0.99));
  }
  std::sort(added.begin(), added.end());
  std::sort(added_p99.begin(), added_p99.end());
  fmt::print("the front adds {:.3f} ms at the median, {:.3f} ms at p99 (medians of {} rounds)\n",
             part(added, 0.5), part(added_p99, 0.5), kRounds);
  server.stop(0);
  instance.stop(0);
}

}  // namespace
}  // namespace loci

// front_benchmark [STREAMS]
int main(int count, char** arguments) { loci::run(count > 1 ? std::max(1, std::atoi(arguments[1])) : 64); }
