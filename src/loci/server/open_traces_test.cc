// SPDX-License-Identifier: Apache-2.0
#include "loci/server/open_traces.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <string>
#include <thread>

#include "loci/base/eventually_testing.h"
#include "loci/base/folder_testing.h"

namespace loci {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

TEST(OpenTracesTest, ReadsUrlsOfCollectors) {
  const auto read = [](const char* url) {
    const Result<TraceCollector> collector = parse_traces_url(url);
    if (!collector.ok()) return "error of " + std::string(collector.status().field());
    return collector->address.host + " " + collector->address.port + " " + collector->path +
           (collector->address.tls ? " tls" : "");
  };
  EXPECT_EQ(read("http://127.0.0.1:4318"), "127.0.0.1 4318 /v1/traces");
  EXPECT_EQ(read("http://127.0.0.1:4318/"), "127.0.0.1 4318 /v1/traces");
  EXPECT_EQ(read("http://collector"), "collector 80 /v1/traces");
  EXPECT_EQ(read("http://collector/otlp/v1/traces?a=b"), "collector 80 /otlp/v1/traces?a=b");
  EXPECT_EQ(read("http://collector?a=b"), "collector 80 /?a=b");
  EXPECT_EQ(read("http://collector/?"), "collector 80 /");
  EXPECT_EQ(read("http://collector/x?"), "collector 80 /x?");
  EXPECT_EQ(read("https://collector.example/x"), "collector.example 443 /x tls");
  EXPECT_EQ(read("http://[::1]"), "::1 80 /v1/traces");
  EXPECT_EQ(read("http://[::1]:4318/x#y"), "::1 4318 /x");
  for (const char* url : {"", "collector:4318", "grpc://collector:4317", "http://", "http:///v1/traces",
                          "http://a b", "http://collector:0", "http://collector:99999", "http://[::1",
                          "http://a/\r\nX: y", "http://user:secret@collector"})
    EXPECT_EQ(read(url), "error of traces") << url;
}

TEST(OpenTracesTest, AnErrorShowsNoPassword) {
  const Status status = parse_traces_url("https://user:hidden@collector/x").status();
  EXPECT_EQ(status.message(),
            "expected a URL without a user and a password, found an '@': option trace_headers gives a key");
  EXPECT_TRUE(parse_traces_url("https://collector/x@y").ok());
}

TEST(OpenTracesTest, AFileOfHeadersMustBeRightAtTheStart) {
  const SystemClock clock;
  const TestFolder folder;
  const std::string path = folder.file("headers");
  const auto log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  const Status status = open_traces({.url = "http://127.0.0.1:1", .headers_file = path}, clock, log).status();
  EXPECT_EQ(status.field(), "trace_headers");
  EXPECT_EQ(status.message(), path + " is not there");
  EXPECT_TRUE(open_traces({.url = "", .headers_file = path}, clock, log).ok()) << "nobody reads it";
}

TEST(OpenTracesTest, NothingIsTracedWithoutAUrl) {
  const SystemClock clock;
  const Result<Traces> traces = open_traces({.url = {}, .service = "loci"}, clock, nullptr);
  ASSERT_TRUE(traces.ok());
  EXPECT_EQ(traces->exporter, nullptr);
  EXPECT_EQ(traces->tracer, nullptr);
}

// The whole way to a collector: one that is overloaded at first.
TEST(OpenTracesTest, SpansReachACollector) {
  asio::io_context io;
  tcp::acceptor acceptor(io, {asio::ip::make_address("127.0.0.1"), 0});
  std::string requests;
  std::thread collector([&] {
    for (const char* answer :
         {"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
          "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"}) {
      tcp::socket socket(io);
      acceptor.accept(socket);
      std::string request;
      asio::read_until(socket, asio::dynamic_buffer(request), "\"spans\"");
      asio::write(socket, asio::buffer(std::string(answer)));
      socket.shutdown(tcp::socket::shutdown_send);
      boost::system::error_code ignored;
      asio::read(socket, asio::dynamic_buffer(request), ignored);
      requests += request;
    }
  });
  const SystemClock clock;
  const auto log = std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  const std::string url = "http://127.0.0.1:" + std::to_string(acceptor.local_endpoint().port());
  Result<Traces> traces =
      open_traces({.url = url,
                   .headers = {{"authorization", "Basic c2VjcmV0Og=="}, {"X-Team", "a b"}},
                   .service = "named",
                   .attributes = {{"host.name", "h"}, {"deployment.environment", "test"}}},
                  clock, log);
  ASSERT_TRUE(traces.ok());
  const TracedRequest traced = traces->tracer->begin("", clock.now());
  traces->tracer->end(Tracer::span_of(traced, SpanKind::kServer, "GET /x", clock.now()));
  EXPECT_TRUE(eventually([&] { return traces->tracer->counts().sent == 1; }));
  collector.join();
  EXPECT_EQ(traces->tracer->counts().dropped, 0u);
  EXPECT_TRUE(requests.starts_with("POST /v1/traces HTTP/1.1\r\n")) << requests;
  EXPECT_NE(requests.find("Content-Type: application/json\r\n"), std::string::npos) << requests;
  for (const char* part : {"\r\nauthorization: Basic c2VjcmV0Og==\r\n", "\r\nX-Team: a b\r\n",
                           R"({"key":"service.name","value":{"stringValue":"named"}})",
                           R"({"key":"host.name","value":{"stringValue":"h"}})",
                           R"({"key":"deployment.environment","value":{"stringValue":"test"}})"})
    EXPECT_NE(requests.find(part), std::string::npos) << part << " in " << requests;
  EXPECT_NE(requests.find(to_hex(traced.context.trace)), std::string::npos) << requests;
}

}  // namespace
}  // namespace loci
