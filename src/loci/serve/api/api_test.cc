// SPDX-License-Identifier: Apache-2.0
// The API as a whole, over real connections, without a model: what is refused before one is needed.
#include "loci/serve/api/api.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>
#include <memory>
#include <string>
#include <vector>

#include "loci/base/durable_file.h"
#include "loci/base/eventually_testing.h"
#include "loci/base/folder_testing.h"
#include "loci/serve/http/server.h"
#include "loci/serve/store/naive_store_testing.h"
#include "loci/serve/store/stores_testing.h"
#include "loci/serve/telemetry/metrics.h"

namespace loci {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

class ApiTest : public testing::Test {
 protected:
  void start(ApiOptions options = {}, KeySources keys = {}) {
    services_.reset(new ApiServices{{.workers = workers_,
                                     .store_thread = workers_,
                                     .limiter = limiter_,
                                     .history = history_,
                                     .metrics = metrics_,
                                     .clock = clock_,
                                     .log = log_},
                                    std::move(options),
                                    store_,
                                    tenants_,
                                    prefixes_});
    ASSERT_TRUE(tenants_.open(std::move(keys), log_).ok());
    api_.emplace(*services_);
    server_.emplace(HttpServer::Options{.host = "127.0.0.1", .port = 0, .limits = limits_}, clock_, metrics_,
                    log_);
    ASSERT_TRUE(server_->listen([this](Exchange& exchange) { return api_->handle(exchange); }).ok());
  }
  void TearDown() override { server_.reset(); }

  // The whole answer to one request; `head` has lines that end in \r\n.
  std::string ask(const std::string& line, const std::string& head, const std::string& body = {}) {
    asio::io_context io;
    tcp::socket socket(io);
    socket.connect({asio::ip::make_address("127.0.0.1"), server_->port()});
    const std::string length = body.empty() ? "" : "Content-Length: " + std::to_string(body.size()) + "\r\n";
    asio::write(socket,
                asio::buffer(line + " HTTP/1.1\r\nConnection: close\r\n" + head + length + "\r\n" + body));
    std::string answer;
    boost::system::error_code error;
    asio::read(socket, asio::dynamic_buffer(answer), error);
    return answer;
  }
  static int status_of(const std::string& answer) {
    return answer.starts_with("HTTP/1.1 ") ? std::stoi(answer.substr(9, 3)) : 0;
  }

  // A client that asks and takes nothing of the answer.
  std::unique_ptr<tcp::socket> ask_and_wait(const std::string& path, const std::string& head) {
    auto socket = std::make_unique<tcp::socket>(io_);
    socket->connect({asio::ip::make_address("127.0.0.1"), server_->port()});
    asio::write(*socket, asio::buffer("GET " + path + " HTTP/1.1\r\nConnection: close\r\n" + head + "\r\n"));
    // The first bytes are there: the rest waits in the server.
    char first = 0;
    boost::system::error_code error;
    asio::read(*socket, asio::buffer(&first, 1), error);
    return socket;
  }

  const TestFolder folder_;
  asio::io_context io_;
  ConversationStore* store_ = nullptr;
  HttpLimits limits_;
  SystemClock clock_;
  ServeMetrics metrics_{"test"};
  std::shared_ptr<spdlog::logger> log_ =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  Tenants tenants_;
  TenantLimiter limiter_{clock_};
  PublicPrefixes prefixes_;
  TokenHistory history_;
  WorkerPool workers_{1};
  std::unique_ptr<ApiServices> services_;
  std::optional<Api> api_;
  std::optional<HttpServer> server_;
};

const std::string kHost = "Host: localhost\r\n";
const std::string kJson = "Content-Type: application/json\r\n";
const std::string kPage = "Origin: https://stranger.example\r\n";

TEST_F(ApiTest, WithoutKeysForeignPagesGetNothing) {
  start();
  for (const char* line : {"GET /health", "GET /v1/models", "POST /v1/chat/completions",
                           "OPTIONS /v1/chat/completions", "DELETE /v1/loci/warm/a", "GET /nothing"}) {
    const std::string answer = ask(line, kHost + kJson + kPage);
    EXPECT_EQ(status_of(answer), 403) << line;
    EXPECT_EQ(answer.find("Access-Control"), std::string::npos) << line;
    EXPECT_NE(answer.find("cors_origin https://stranger.example"), std::string::npos) << answer;
    EXPECT_EQ(status_of(ask(line, "Host: stranger.example\r\n" + kJson)), 403) << line;
    std::string whole = line;
    whole.insert(whole.find('/'), "http://stranger.example");
    EXPECT_EQ(status_of(ask(whole, kHost + kJson)), 403) << whole;
  }
  // 503: the model is not there; so the request passed.
  EXPECT_EQ(status_of(ask("POST /v1/chat/completions", kHost + kJson, "{}")), 503);
  EXPECT_EQ(status_of(ask("POST /v1/chat/completions", kHost + kJson + "Origin: http://localhost\r\n", "{}")),
            503);
}

TEST_F(ApiTest, NamedPagesMayUseIt) {
  start({.pages = PageGuard({.origins = {"https://chat.example"}, .host_names = {}})});
  const std::string page = "Origin: https://chat.example\r\n";
  const std::string answer = ask("OPTIONS /v1/chat/completions", kHost + page);
  EXPECT_EQ(status_of(answer), 204);
  for (const char* header : {"Access-Control-Allow-Origin: https://chat.example", "Vary: Origin",
                             "Access-Control-Allow-Methods: POST"}) {
    EXPECT_NE(answer.find(header), std::string::npos) << answer;
  }
  // What a client in a page sends beside the usual is its own affair.
  const auto allowed = [&](const std::string& names) {
    return ask("OPTIONS /v1/chat/completions",
               kHost + page + "Access-Control-Request-Headers: " + names + "\r\n");
  };
  EXPECT_NE(allowed("authorization,x-stainless-lang")
                .find("Access-Control-Allow-Headers: authorization,x-stainless-lang\r\n"),
            std::string::npos);
  for (const std::string& names : {std::string("a<b>"), std::string(3'000, 'a')})
    EXPECT_NE(allowed(names).find("Access-Control-Allow-Headers: Authorization, Content-Type"),
              std::string::npos);
  EXPECT_EQ(status_of(ask("POST /v1/chat/completions", kHost + kJson + page, "{}")), 503);
  EXPECT_EQ(status_of(ask("POST /v1/chat/completions", kHost + kJson + kPage, "{}")), 403);
}

TEST(ServeMetrics, AreReadyWhileRequestsAreTaken) {
  ServeMetrics metrics("test");
  const auto ready = [&](const std::optional<EngineSnapshot>& engine) {
    return metrics.scrape(engine, 0).find("\nloci_ready 1\n") != std::string::npos;
  };
  EngineSnapshot engine;
  engine.tiers.groups.resize(1);
  EXPECT_FALSE(ready(std::nullopt));
  EXPECT_FALSE(ready(engine)) << "it drains, or its device is lost";
  engine.is_ready = true;
  EXPECT_TRUE(ready(engine));
}

TEST(ServeMetrics, SaysWhatFrontsWereTold) {
  ServeMetrics metrics("test");
  EngineSnapshot engine;
  engine.tiers.groups.resize(1);
  EXPECT_EQ(metrics.scrape(engine, 0).find("loci_feed"), std::string::npos) << "it tells no front";
  engine.tiers.feed = FeedStats{.changes_total = 7, .gaps_total = 2, .chunks = 5};
  const std::string text = metrics.scrape(engine, 0);
  for (const char* line :
       {"\nloci_feed_chunks 5\n", "\nloci_feed_changes_total 7\n", "\nloci_feed_gaps_total 2\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
}

TEST_F(ApiTest, WithKeysTheKeyDecides) {
  start({}, {.file = {}, .keys = {"secret"}, .operator_keys = {}});
  const std::string foreign = "Host: stranger.example\r\n" + kJson + kPage;
  EXPECT_EQ(status_of(ask("POST /v1/chat/completions", foreign, "{}")), 401);
  const std::string answer = ask("POST /v1/chat/completions", foreign + "x-api-key: secret\r\n", "{}");
  EXPECT_EQ(status_of(answer), 503);
  EXPECT_EQ(answer.find("Access-Control"), std::string::npos) << "a browser shows the page nothing of it";
}

TEST_F(ApiTest, PagesAreNoOperators) {
  start({.pages = PageGuard({.origins = {"*"}, .host_names = {}})});
  EXPECT_EQ(status_of(ask("GET /v1/loci/warm", kHost)), 200) << "a program on this machine";
  EXPECT_EQ(status_of(ask("GET /v1/loci/warm", kHost + kPage)), 403);
  EXPECT_EQ(status_of(ask("GET /v1/loci/warm", kHost + "Origin: null\r\n")), 403);
}

// It holds nothing of anybody's, and asks for the key that the API wants.
TEST_F(ApiTest, ThePageIsForAnyone) {
  start({}, {.file = {}, .keys = {"secret"}, .operator_keys = {}});
  const std::string page = ask("GET /", kHost);
  EXPECT_EQ(status_of(page), 200);
  EXPECT_NE(page.find("Content-Type: text/html"), std::string::npos);
  EXPECT_NE(page.find("<title>Loci</title>"), std::string::npos);
  EXPECT_EQ(status_of(ask("HEAD /page/app.js", kHost)), 200);
  EXPECT_EQ(status_of(ask("GET /page/none.js", kHost)), 404);
  EXPECT_EQ(status_of(ask("POST /", kHost)), 405);
}

TEST_F(ApiTest, NoPageWhereTheOptionsHaveNone) {
  ApiOptions options;
  options.page = false;
  start(std::move(options));
  EXPECT_EQ(status_of(ask("GET /", kHost)), 404);
  EXPECT_EQ(status_of(ask("GET /page/app.js", kHost)), 404);
}

// Else a stranger's name that leads here would be a page of this server's to the browser.
TEST_F(ApiTest, WithoutKeysThePageHasNoForeignName) {
  start({});
  EXPECT_EQ(status_of(ask("GET /", kHost)), 200);
  EXPECT_EQ(status_of(ask("GET /", "Host: evil.example\r\n")), 403);
}

TEST_F(ApiTest, MetricsAreOpenByDefault) {
  start({}, {.file = {}, .keys = {"secret"}, .operator_keys = {"root"}});
  EXPECT_EQ(status_of(ask("GET /metrics", kHost)), 200);
}

TEST_F(ApiTest, MetricsMayBeTheOperators) {
  const std::string path = "GET /metrics";
  ApiOptions options;
  options.metrics_access = Access::kOperator;
  start(std::move(options), {.file = {}, .keys = {"secret"}, .operator_keys = {"root"}});
  EXPECT_EQ(status_of(ask(path, kHost)), 401);
  const std::string refused = ask(path, kHost + "x-api-key: secret\r\n");
  EXPECT_EQ(status_of(refused), 403);
  EXPECT_EQ(refused.find("loci_"), std::string::npos) << "it tells nothing of the others";
  const std::string root = kHost + "Authorization: Bearer root\r\n";
  EXPECT_EQ(status_of(ask(path, root)), 200);
  services_->draining = true;
  EXPECT_EQ(status_of(ask(path, root)), 200) << "who looks after the server sees how it stops";
}

TEST(ServeMetrics, TellsABoundedNumberOfTenantsApart) {
  ServeMetrics metrics("test");
  metrics.tenant_request_done("early", 200);
  EXPECT_EQ(metrics.scrape({}, 0).find("early"), std::string::npos) << "nobody is named unless it is wanted";
  metrics.tell_tenants_apart();
  for (std::size_t i = 0; i < ServeMetrics::kTenantLabelsMax + 3; ++i)
    metrics.tenant_request_done("t" + std::to_string(i), 200);
  metrics.tenant_tokens("t0", 7, 5, 3);
  const std::string text = metrics.scrape({}, 0);
  const auto has = [&](const std::string& line) { return text.find(line) != std::string::npos; };
  EXPECT_TRUE(has(R"(loci_tenant_requests_total{code="200",tenant="t0"} 1)"));
  EXPECT_TRUE(has(R"(loci_tenant_requests_total{code="200",tenant="other"} 3)"));
  EXPECT_TRUE(has(R"(loci_tenant_tokens_total{kind="cached",tenant="t0"} 5)"));
  EXPECT_FALSE(has("tenant=\"t" + std::to_string(ServeMetrics::kTenantLabelsMax) + "\""));
}

TEST_F(ApiTest, WithoutKeysMetricsMayBeThisMachines) {
  ApiOptions options;
  options.metrics_access = Access::kOperator;
  start(std::move(options));
  EXPECT_EQ(status_of(ask("GET /metrics", kHost)), 200);
  EXPECT_EQ(status_of(ask("GET /metrics", kHost + "Origin: http://localhost\r\n")), 403);
}

// Megabytes that never come: who is no operator is told before them.
TEST_F(ApiTest, TheHeaderDecidesWhoIsAnOperator) {
  start({}, {.file = {}, .keys = {"secret"}, .operator_keys = {"root"}});
  const std::string body = "x-api-key: secret\r\nContent-Length: 5000000\r\n";
  EXPECT_EQ(status_of(ask("POST /v1/loci/warm", kHost + kJson + body)), 403);
}

TEST_F(ApiTest, BodiesAreJson) {
  start();
  const auto status = [&](const std::string& head, const std::string& body) {
    return status_of(ask("POST /v1/completions", kHost + head, body));
  };
  for (const char* type :
       {"application/json", "Application/JSON; charset=utf-8", "application/vnd.api+json"}) {
    EXPECT_EQ(status("Content-Type: " + std::string(type) + "\r\n", "{}"), 503) << type;
  }
  for (const char* type : {"text/plain", "application/x-www-form-urlencoded",
                           "multipart/form-data; boundary=x", "application/jsonp", "text/json"}) {
    EXPECT_EQ(status("Content-Type: " + std::string(type) + "\r\n", "{}"), 415) << type;
  }
  EXPECT_EQ(status("", "{}"), 503) << "programs that name no type";
  EXPECT_EQ(status("Origin: http://localhost\r\n", "{}"), 415) << "pages must";
  EXPECT_EQ(status("Content-Type: text/plain\r\n", ""), 503) << "there is no body";
  EXPECT_EQ(status_of(ask("POST /v1/embeddings", kHost + "Content-Type: text/plain\r\n", "{}")), 400);
}

// A body of megabytes that never comes: who waits for it does not answer.
TEST_F(ApiTest, TheHeaderDecidesWhoMayAsk) {
  start({}, {.file = {}, .keys = {"secret"}, .operator_keys = {}});
  const std::string body = "Content-Length: 5000000\r\n";
  EXPECT_EQ(status_of(ask("POST /v1/chat/completions", kHost + kJson + body)), 401);
  EXPECT_EQ(status_of(ask("POST /nothing", kHost + kJson + body)), 404);
  EXPECT_EQ(status_of(ask("PUT /v1/chat/completions", kHost + kJson + body)), 405);
  EXPECT_EQ(status_of(ask("POST /v1/chat/completions",
                          kHost + "Content-Type: text/plain\r\nx-api-key: secret\r\n" + body)),
            415);
}

// It is refused by its length, before it comes, and as every other request that is refused.
TEST_F(ApiTest, ABodyThatIsTooLargeIsRefusedInTheApisForm) {
  start({.pages = PageGuard({.origins = {"https://chat.example"}, .host_names = {}})},
        {.file = {}, .keys = {"secret"}, .operator_keys = {}});
  const std::string head = kHost + kJson + "Origin: https://chat.example\r\nX-Request-Id: mine\r\n";
  const std::string key = "x-api-key: secret\r\n";
  const std::string length = "Content-Length: " + std::to_string(limits_.body_bytes_max + 1) + "\r\n";
  const std::string answer = ask("POST /v1/messages", head + key + length);
  EXPECT_EQ(status_of(answer), 413);
  for (const char* part : {R"({"type":"error","error":{"type":"request_too_large")", "X-Request-Id: mine\r\n",
                           "Access-Control-Allow-Origin: https://chat.example\r\n", "Connection: close\r\n"})
    EXPECT_NE(answer.find(part), std::string::npos) << answer;
  const std::string counted = metrics_.scrape({}, 0);
  EXPECT_NE(counted.find("/v1/messages\"} 1\n"), std::string::npos) << counted;
  EXPECT_EQ(counted.find("unread"), std::string::npos) << counted;
  EXPECT_EQ(status_of(ask("POST /v1/messages", head + "x-api-key: wrong\r\n" + length)), 401);
  const std::string other = ask("POST /v1/completions", head + key + length + "Expect: 100-continue\r\n");
  EXPECT_EQ(status_of(other), 413) << "it is not told to send it";
  EXPECT_NE(other.find("\"code\":\"body_too_large\""), std::string::npos) << other;
}

TEST_F(ApiTest, WhoIsOverALimitIsToldByTheHeader) {
  const std::string file = folder_.file("keys.toml");
  const KeyEntry key{
      .name = "a", .tenant = "a", .hash = hash_api_key("secret"), .is_operator = false, .created = ""};
  ASSERT_TRUE(replace_file(file, add_key("[limits]\nrequests_per_minute = 2\n", key).value()).ok());
  start({}, {.file = file, .keys = {}, .operator_keys = {}});
  const std::string head = kHost + kJson + "x-api-key: secret\r\n";
  EXPECT_EQ(status_of(ask("POST /v1/completions", head, "{}")), 503) << "no model; it has been a request";
  EXPECT_EQ(status_of(ask("POST /tokenize", head, "{}")), 503) << "every endpoint that computes counts";
  for (const char* line : {"POST /v1/chat/completions", "POST /v1/conversations",
                           "POST /v1/messages/count_tokens", "POST /v1/responses/input_tokens"}) {
    const std::string answer = ask(line, head + "Content-Length: 5000000\r\n");
    EXPECT_EQ(status_of(answer), 429) << answer;
    EXPECT_NE(answer.find("Retry-After: "), std::string::npos);
    EXPECT_NE(answer.find("x-ratelimit-remaining-requests: 0"), std::string::npos);
  }
  EXPECT_EQ(status_of(ask("GET /v1/models", head)), 503) << "reading is free";
}

// Also what an endpoint refuses has counted, so its answer says what is left.
TEST_F(ApiTest, AnAnswerSaysWhatIsLeftOfALimitThatItsRequestCountsAgainst) {
  const std::string file = folder_.file("keys.toml");
  const KeyEntry key{
      .name = "a", .tenant = "a", .hash = hash_api_key("secret"), .is_operator = true, .created = ""};
  ASSERT_TRUE(replace_file(file, add_key("[limits]\nrequests_per_minute = 1000\n", key).value()).ok());
  start({}, {.file = file, .keys = {}, .operator_keys = {}});
  const std::string head = kHost + kJson + "x-api-key: secret\r\n";
  for (const Route& route : api_->router().routes()) {
    const bool counts = route.metering == Metering::kRequest || route.metering == Metering::kByHandler;
    if (route.access == Access::kOpen) continue;
    const std::string line =
        fmt::format("{} {}", boost::beast::http::to_string(route.method).data(), route.pattern);
    const std::string answer = ask(line, head, "{}");
    const std::size_t at = answer.find("x-ratelimit-remaining-requests: 9");
    EXPECT_EQ(at != std::string::npos, counts) << line << answer;
    EXPECT_EQ(answer.find("x-ratelimit-remaining-requests", at + 1), std::string::npos) << line << answer;
  }
}

// What computes or writes counts against its tenant's limits; the exceptions end what runs, or refuse all.
TEST_F(ApiTest, WhateverWritesOrComputesIsMetered) {
  start();
  std::size_t metered = 0;
  for (const Route& route : api_->router().routes()) {
    const bool reads = route.method == boost::beast::http::verb::get;
    const bool free = reads || route.pattern.ends_with("/cancel") ||
                      route.pattern == "/v1/loci/warm/{name}" || route.pattern == "/v1/embeddings";
    const bool counts = route.metering == Metering::kRequest || route.metering == Metering::kByHandler;
    EXPECT_EQ(counts, !free) << route.pattern;
    const bool is_stored =
        route.pattern.starts_with("/v1/responses/") || route.pattern.starts_with("/v1/conversations");
    EXPECT_EQ(route.metering == Metering::kRead, reads && is_stored) << route.pattern;
    EXPECT_EQ(route.metering == Metering::kCancel, is_stored && route.pattern.ends_with("/cancel"));
    metered += free ? 0 : 1;
  }
  EXPECT_GE(metered, 13u);
}

// Each holds its answer and a connection for as long as its client takes to read it.
class ReadsTest : public ApiTest {
 protected:
  static constexpr std::size_t kAnswer = 24 << 20;  // more than sockets hold

  void start_with(const std::string& limits, std::uint64_t answers_bytes_max) {
    std::string keys = limits;
    for (const std::string tenant : {"ann", "bob"}) {
      StoredTurn turn = test_turn("resp_1");
      turn.response.json = '"' + std::string(kAnswer - 2, 'x') + '"';
      ASSERT_TRUE(kept_.commit_turn(tenant, turn).ok());
      ASSERT_TRUE(kept_.commit_turn(tenant, test_turn("resp_2")).ok());
      const KeyEntry key{.name = tenant,
                         .tenant = tenant,
                         .hash = hash_api_key(tenant),
                         .is_operator = false,
                         .created = ""};
      keys = add_key(keys, key).value();
    }
    const std::string file = folder_.file("keys.toml");
    ASSERT_TRUE(replace_file(file, keys).ok());
    store_ = &kept_;
    start({.answers_bytes_max = answers_bytes_max}, {.file = file, .keys = {}, .operator_keys = {}});
  }
  static std::string key(const std::string& name) { return kHost + "X-Api-Key: " + name + "\r\n"; }

  NaiveStore kept_;
};

TEST_F(ReadsTest, ATenantHasSoManyAtOnce) {
  start_with("[limits]\nconcurrent_reads = 2\n", std::uint64_t{1} << 30);
  std::vector<std::unique_ptr<tcp::socket>> readers;
  for (int i = 0; i < 2; ++i) readers.push_back(ask_and_wait("/v1/responses/resp_1", key("ann")));
  for (const char* path : {"/v1/responses/resp_2", "/v1/responses/resp_2/input_items", "/v1/conversations",
                           "/v1/conversations/c/items"}) {
    const std::string refused = ask(std::string("GET ") + path, key("ann"));
    EXPECT_EQ(status_of(refused), 429) << path;
    EXPECT_NE(refused.find("the limit is 2 requests at once"), std::string::npos) << refused;
    EXPECT_NE(refused.find("Retry-After: 1"), std::string::npos) << refused;
  }
  EXPECT_EQ(status_of(ask("POST /v1/responses/resp_2/cancel", key("ann"))), 400) << "it has ended";
  EXPECT_EQ(status_of(ask("GET /v1/responses/resp_2", key("bob"))), 200);
  readers.clear();
  ASSERT_TRUE(eventually([&] { return status_of(ask("GET /v1/responses/resp_2", key("ann"))) == 200; }));
}

// All of them may be behind one proxy.
TEST_F(ReadsTest, WithoutAKeysFileAllClientsTogetherHaveHalfOfTheConnections) {
  ASSERT_TRUE(kept_.commit_turn("default", test_turn("resp_2")).ok());
  StoredTurn turn = test_turn("resp_1");
  turn.response.json = '"' + std::string(kAnswer - 2, 'x') + '"';
  ASSERT_TRUE(kept_.commit_turn("default", turn).ok());
  store_ = &kept_;
  start({.answers_bytes_max = std::uint64_t{1} << 30, .reads_max = 2},
        {.file = {}, .keys = {"one", "two"}, .operator_keys = {}});
  std::vector<std::unique_ptr<tcp::socket>> readers;
  for (const char* name : {"one", "two"}) readers.push_back(ask_and_wait("/v1/responses/resp_1", key(name)));
  const std::string refused = ask("GET /v1/responses/resp_2", key("one"));
  EXPECT_EQ(status_of(refused), 429);
  EXPECT_NE(refused.find("half of max_connections"), std::string::npos) << refused;
  EXPECT_EQ(ApiOptions().reads_max, HttpLimits().connections_max / 2);
}

TEST_F(ReadsTest, AnswersThatWaitAreBoundedTogether) {
  start_with("", 3 * kAnswer);
  std::vector<std::unique_ptr<tcp::socket>> readers;
  for (int i = 0; i < 2; ++i) readers.push_back(ask_and_wait("/v1/responses/resp_1", key("ann")));
  const std::string refused = ask("GET /v1/responses/resp_1", key("ann"));
  EXPECT_EQ(status_of(refused), 503) << refused.substr(0, 1000);
  EXPECT_NE(refused.find("too_many_answers"), std::string::npos) << refused.substr(0, 1000);
  EXPECT_NE(refused.find("Retry-After: 1"), std::string::npos);
  EXPECT_EQ(status_of(ask("GET /v1/responses/resp_2", key("ann"))), 200) << "small ones pass";
  EXPECT_EQ(ask("GET /v1/responses/resp_1", key("bob")).size() > kAnswer, true) << "there is room for others";
  readers.clear();
  ASSERT_TRUE(eventually([&] { return status_of(ask("GET /v1/responses/resp_1", key("ann"))) == 200; }));
}

// What was written is answered: else the client would write it again.
TEST_F(ReadsTest, AWriteIsAnsweredWhereReadersHaveAllTheRoom) {
  start_with("", kAnswer);
  ASSERT_TRUE(kept_.create_conversation("ann", {.id = "conv_1"}, {}).ok());
  const auto reader = ask_and_wait("/v1/responses/resp_1", key("ann"));
  const std::string body = R"({"items": [{"type": "message", "role": "user", "content": ")" +
                           std::string(200'000, 'x') + R"("}]})";
  const std::string path = "/v1/conversations/conv_1/items";
  const std::string added = ask("POST " + path, key("ann") + kJson, body);
  EXPECT_EQ(status_of(added), 200) << added.substr(0, 1000);
  EXPECT_EQ(status_of(ask("GET " + path, key("ann"))), 503) << "reading is refused";
}

TEST_F(ApiTest, ReleasesNoPrefixBeforeItsModelIsServed) {
  start();
  ASSERT_TRUE(prefixes_.begin("first"));
  prefixes_.finish({.name = "first", .id = {}, .tokens = 5, .created = 0});
  EXPECT_EQ(status_of(ask("DELETE /v1/loci/warm/first", kHost)), 503);
  EXPECT_EQ(prefixes_.list().size(), 1u);
}

}  // namespace
}  // namespace loci
