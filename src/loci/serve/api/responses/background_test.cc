// SPDX-License-Identifier: Apache-2.0
// Responses in the background: what a run keeps of its events, and what becomes of an end that the store does
// not take.
#include "loci/serve/api/responses/background.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>

#include "loci/base/mutex.h"
#include "loci/serve/http/server.h"
#include "loci/serve/store/naive_store_testing.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

namespace asio = boost::asio;

// --- one run ---

std::string event_of(std::size_t bytes) { return "data: " + std::string(bytes - 8, 'x') + "\n\n"; }

TEST(BackgroundRun, TellsOfACancelThatCameBefore) {
  asio::io_context io;
  BackgroundRun run(io, std::make_shared<BackgroundEvents>(), "ann");
  run.cancel();
  int told = 0;
  run.on_cancel([&] { ++told; });
  EXPECT_EQ(told, 1);
  run.cancel();
  EXPECT_EQ(told, 1) << "once";
}

TEST(BackgroundRun, KeepsABoundedPartOfItsEvents) {
  asio::io_context io;
  BackgroundRun run(io, std::make_shared<BackgroundEvents>(), "ann");
  constexpr std::size_t kBytes = 1 << 20;
  for (int i = 0; i < 40; ++i) run.append(event_of(kBytes));
  EXPECT_LE(run.event_bytes(), (std::size_t{16} << 20) + kBytes);
}

TEST(BackgroundRun, NumbersEventsByTheirPlaceInTheWholeStream) {
  asio::io_context io;
  BackgroundRun run(io, std::make_shared<BackgroundEvents>(), "ann");
  constexpr std::size_t kBytes = 1 << 20;
  for (int i = 0; i < 40; ++i) run.append(event_of(kBytes));
  EXPECT_EQ(run.next_event(), 40u);
  EXPECT_TRUE(run.has_dropped(0));
  EXPECT_FALSE(run.has_dropped(39));
  EXPECT_FALSE(run.has_dropped(24)) << "the latest 16 MiB";
}

// The events of a reply's end show all of it: who reads along must not lose them.
TEST(BackgroundRun, KeepsAllThatWasAppendedLast) {
  asio::io_context io;
  BackgroundRun run(io, std::make_shared<BackgroundEvents>(), "ann");
  run.append(event_of(100));
  const std::string huge = event_of(std::size_t{12} << 20);
  run.append(huge + huge + huge);
  EXPECT_FALSE(run.has_dropped(1));
  run.append(event_of(100));
  EXPECT_TRUE(run.has_dropped(2));
  EXPECT_FALSE(run.has_dropped(3));
}

// A server whose handler a test gives.
class BackgroundFollowers : public testing::Test {
 protected:
  static Call call_of(Exchange& exchange) {
    return {.exchange = exchange, .tenant = {}, .ticket = {}, .resumed = {}, .prefill = {}, .parameters = {}};
  }

  const SystemClock clock_;
  ServeMetrics metrics_{"test"};
  HttpServer server_{
      HttpServer::Options{.host = "127.0.0.1", .port = 0, .limits = {}}, clock_, metrics_,
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>())};
};

// A run that goes on has no end to be waited for.
TEST_F(BackgroundFollowers, HeadDoesNotFollow) {
  const auto follow = [](Exchange& exchange) -> asio::awaitable<void> {
    Call call = call_of(exchange);
    const auto run =
        std::make_shared<BackgroundRun>(exchange.io(), std::make_shared<BackgroundEvents>(), "ann");
    run->append(event_of(100));
    co_await BackgroundResponses::follow(call, run, 0, kNanosPerSecond);
  };
  ASSERT_TRUE(server_.listen(follow).ok());
  asio::io_context io;
  asio::ip::tcp::socket socket(io);
  socket.connect({asio::ip::make_address("127.0.0.1"), server_.port()});
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  const std::string request = "HEAD / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  asio::write(socket, asio::buffer(request));
  std::string answer;
  boost::system::error_code error;
  asio::read(socket, asio::dynamic_buffer(answer), error);
  EXPECT_EQ(error, asio::error::eof);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("\r\n\r\n")) << answer;
  EXPECT_EQ(answer.find("data: "), std::string::npos) << answer;
}

// A prompt may take minutes, and clients and proxies give up what says nothing for one.
TEST_F(BackgroundFollowers, WhoFollowsOneThatSaysNothingIsToldThatItLives) {
  std::shared_ptr<BackgroundRun> run;
  const auto follow = [&](Exchange& exchange) -> asio::awaitable<void> {
    Call call = call_of(exchange);
    if (exchange.path() == "/end") {
      run->end();
      HttpResponse done;
      co_await exchange.respond(std::move(done));
      co_return;
    }
    run = std::make_shared<BackgroundRun>(exchange.io(), std::make_shared<BackgroundEvents>(), "ann");
    run->append(event_of(100));
    co_await BackgroundResponses::follow(call, run, 0, kNanosPerMilli);
  };
  ASSERT_TRUE(server_.listen(follow).ok());
  asio::io_context io;
  asio::ip::tcp::socket socket(io), ends(io);
  const timeval patience{.tv_sec = 60, .tv_usec = 0};
  for (asio::ip::tcp::socket* one : {&socket, &ends}) {
    one->connect({asio::ip::make_address("127.0.0.1"), server_.port()});
    setsockopt(one->native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  const std::string end = " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
  asio::write(socket, asio::buffer("GET /" + end));
  std::string answer;
  boost::system::error_code error;
  asio::read_until(socket, asio::dynamic_buffer(answer), "3\r\n:\n\n\r\n3\r\n:\n\n", error);
  EXPECT_FALSE(error) << answer;
  EXPECT_NE(answer.find(event_of(100)), std::string::npos);
  asio::write(ends, asio::buffer("GET /end" + end));
  asio::read(socket, asio::dynamic_buffer(answer), error);
  EXPECT_EQ(error, asio::error::eof);
  EXPECT_TRUE(answer.ends_with("\r\n0\r\n\r\n")) << answer;
}

// Each event wakes all of them, on the network thread.
TEST_F(BackgroundFollowers, ABoundedNumberFollowsARun) {
  std::shared_ptr<BackgroundRun> run;
  const auto follow = [&](Exchange& exchange) -> asio::awaitable<void> {
    Call call = call_of(exchange);
    if (run == nullptr)
      run = std::make_shared<BackgroundRun>(exchange.io(), std::make_shared<BackgroundEvents>(), "ann");
    if (exchange.path() == "/end") run->end();
    if (exchange.path() == "/event") run->append(event_of(100));
    co_await BackgroundResponses::follow(call, run, 0, kNanosPerSecond);
  };
  ASSERT_TRUE(server_.listen(follow).ok());
  asio::io_context io;
  std::deque<asio::ip::tcp::socket> sockets;
  const auto ask = [&](const std::string& path) -> asio::ip::tcp::socket& {
    asio::ip::tcp::socket& socket = sockets.emplace_back(io);
    socket.connect({asio::ip::make_address("127.0.0.1"), server_.port()});
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    setsockopt(socket.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    asio::write(socket, asio::buffer("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n"));
    return socket;
  };
  const auto status_of = [](asio::ip::tcp::socket& socket) {
    std::string head(12, '\0');
    boost::system::error_code error;
    asio::read(socket, asio::buffer(head), error);
    return head.substr(9);
  };
  for (std::uint32_t i = 0; i < BackgroundRun::kFollowersMax; ++i)
    EXPECT_EQ(status_of(ask(i == 0 ? "/event" : "/")), "200") << i;
  EXPECT_EQ(status_of(ask("/")), "429");
  sockets.front().close();
  std::string status;
  for (int tries = 0; tries < 3'000 && status != "200"; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    status = status_of(ask("/"));
  }
  EXPECT_EQ(status, "200") << "the place of one that has left";
  ask("/end");
  server_.stop(kNanosPerSecond);
}

// Readers of many runs hold all of them, also when these have ended.
TEST(BackgroundRun, AllTogetherKeepABoundedPartOfTheirEvents) {
  asio::io_context io;
  constexpr std::size_t kEvent = 1'000, kAll = 100 * kEvent;
  const auto all = std::make_shared<BackgroundEvents>(kAll);
  BackgroundRun small(io, all, "ann");
  small.append(event_of(kEvent));
  std::deque<BackgroundRun> runs;
  for (int i = 0; i < 20; ++i) {
    BackgroundRun& run = runs.emplace_back(io, all, "ann");
    for (int event = 0; event < 20; ++event) {
      run.append(event_of(kEvent));
      ASSERT_LE(all->size_bytes(), kAll);
      ASSERT_FALSE(run.has_dropped(run.next_event() - 1)) << "what came last";
    }
    run.end();
  }
  EXPECT_TRUE(runs.front().has_dropped(0));
  EXPECT_FALSE(small.has_dropped(0)) << "who has most gives up first";
  // What is appended at once is kept whatever it takes, until others need the room.
  BackgroundRun large(io, all, "ann");
  large.append(event_of(2 * kAll));
  EXPECT_EQ(all->size_bytes(), 2 * kAll);
  BackgroundRun::Position at;
  EXPECT_EQ(large.read(at, 10).size(), 10u);
  small.append(event_of(kEvent));
  EXPECT_TRUE(large.has_dropped(at.event)) << "its reader is told, though it was in the middle of it";
  runs.clear();
  EXPECT_EQ(all->size_bytes(), small.event_bytes());
}

// Many small runs of one tenant take nothing from another's, however large.
TEST(BackgroundRun, TheTenantThatHasMostGivesUpItsEvents) {
  asio::io_context io;
  constexpr std::size_t kEvent = 1'000, kAll = 100 * kEvent;
  const auto all = std::make_shared<BackgroundEvents>(kAll);
  BackgroundRun large(io, all, "bob");
  for (int i = 0; i < 30; ++i) large.append(event_of(kEvent));
  std::deque<BackgroundRun> flood;
  for (int i = 0; i < 200; ++i) {
    BackgroundRun& one = flood.emplace_back(io, all, "ann");
    for (int event = 0; event < 2; ++event) one.append(event_of(kEvent));
  }
  EXPECT_LE(all->size_bytes(), kAll);
  EXPECT_FALSE(large.has_dropped(0));
}

TEST(BackgroundRun, IsReadInParts) {
  asio::io_context io;
  BackgroundRun run(io, std::make_shared<BackgroundEvents>(), "ann");
  const std::string stream = event_of(10) + event_of(25) + event_of(9);
  run.append(stream);
  for (const std::size_t bytes_max : {1u, 7u, 10u, 35u, 1000u}) {
    BackgroundRun::Position at;
    std::string read, part;
    while (!(part = run.read(at, bytes_max)).empty()) {
      EXPECT_LE(part.size(), bytes_max);
      read += part;
    }
    EXPECT_EQ(read, stream) << bytes_max;
    EXPECT_EQ(at.event, 3u);
  }
  BackgroundRun::Position second{.event = 1};
  EXPECT_EQ(run.read(second, 1000), stream.substr(10));
  BackgroundRun::Position later{.event = 7};
  EXPECT_EQ(run.read(later, 1000), "") << "has not come yet";
}

// --- ends that the store does not take ---

// Fails as it is told to, while the test looks.
class FailingStore final : public NaiveStore {
 public:
  using Fault = std::function<Status(const StoredTurn&)>;
  void set_fault(Fault fault) {
    const MutexLock lock(mutex_);
    fault_ = std::move(fault);
  }
  Status commit_turn(std::string_view tenant, const StoredTurn& turn) override {
    const MutexLock lock(mutex_);
    if (fault_) LOCI_RETURN_IF_ERROR(fault_(turn));
    return NaiveStore::commit_turn(tenant, turn);
  }
  Result<StoredResponse> response(std::string_view tenant, std::string_view id) override {
    const MutexLock lock(mutex_);
    return NaiveStore::response(tenant, id);
  }
  Status delete_response(std::string_view tenant, std::string_view id) override {
    const MutexLock lock(mutex_);
    return NaiveStore::delete_response(tenant, id);
  }

 private:
  Mutex mutex_;
  Fault fault_ GUARDED_BY(mutex_);
};

// A response whose tenant may not use as many tokens: it fails without a model.
class BackgroundResponsesTest : public testing::Test {
 protected:
  BackgroundResponsesTest() {
    served_.context_tokens = 1000;
    services_.served = &served_;
    auto tenant = std::make_shared<Tenant>();
    tenant->id = "ann";
    tenant->limits.tokens_per_minute = 1;
    tenant_ = tenant;
  }

  void start(const std::string& id, std::size_t input_bytes = 5) {
    asio::co_spawn(io_, begin(id, input_bytes), asio::detached);
    run_until([&] { return responses_->find("ann", id) != nullptr && responses_->find("ann", id)->ended(); });
    EXPECT_FALSE(refused_) << refused_->message;
  }
  asio::awaitable<void> begin(std::string id, std::size_t input_bytes) {
    TenantLimiter::Admission admission = co_await limiter_.begin(*tenant_);
    auto turn = std::make_shared<ResponseTurn>();
    turn->record = std::make_shared<ResponseRecord>(ResponseHead{
        .id = id, .created_at = 5, .model = "m", .conversation = {}, .echo = {{"background", true}}});
    turn->input = {test_item(id + "_in", std::string(input_bytes, 'x'))};
    PreparedResponse prepared{.turn = turn, .generation = {}};
    prepared.generation.prompts = {std::vector<TokenId>(50, TokenId(1))};
    prepared.generation.dropped = {{}};
    prepared.generation.ticket = std::get<TenantTicket>(std::move(admission.result));
    ReplyOrigin origin{.io = io_, .tenant = tenant_, .request_id = "r", .path = "/v1/responses"};
    refused_ = co_await responses_->start(std::move(origin), std::move(prepared), HeldTurn());
    ++asked_;
  }
  // Whether it came to be.
  bool run_until(const std::function<bool()>& done,
                 std::chrono::milliseconds limit = std::chrono::seconds(120)) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done() && std::chrono::steady_clock::now() < end) {
      io_.restart();
      io_.run_for(std::chrono::milliseconds(10));
    }
    return done();
  }
  std::string status(const std::string& id) {
    const Result<StoredResponse> stored = store_.response("ann", id);
    return stored.ok() ? stored->status : "none";
  }
  static FailingStore::Fault on_end(Status status) {
    return [status](const StoredTurn& turn) { return turn.response.status == "failed" ? status : Status(); };
  }
  static Status full() { return {StatusCode::kUnavailable, "the disk is full"}; }

  FailingStore store_;
  SystemClock clock_;
  ServeMetrics metrics_{"test"};
  std::shared_ptr<spdlog::logger> log_ =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::null_sink_mt>());
  Tenants tenants_;
  TenantLimiter limiter_{clock_};
  PublicPrefixes prefixes_;
  TokenHistory history_;
  ServedModel served_;
  std::shared_ptr<const Tenant> tenant_;
  int asked_ = 0;                    // calls of start() that returned
  std::optional<ApiError> refused_;  // by the last of them
  asio::io_context io_;
  WorkerPool workers_{1};
  ApiServices services_{{.workers = workers_,
                         .store_thread = workers_,
                         .limiter = limiter_,
                         .history = history_,
                         .metrics = metrics_,
                         .clock = clock_,
                         .log = log_},
                        {},
                        &store_,
                        tenants_,
                        prefixes_};
  std::shared_ptr<BackgroundResponses> responses_ = std::make_shared<BackgroundResponses>(services_);
};

// As where a front sends one request twice.
TEST_F(BackgroundResponsesTest, OfTwoWithOneIdTheSecondIsRefused) {
  asio::co_spawn(io_, begin("resp_1", 5), asio::detached);
  asio::co_spawn(io_, begin("resp_1", 5), asio::detached);
  ASSERT_TRUE(run_until([&] { return asked_ == 2 && status("resp_1") == "failed"; }));
  asio::co_spawn(io_, begin("resp_1", 5), asio::detached);
  ASSERT_TRUE(run_until([&] { return asked_ == 3; }));
  ASSERT_TRUE(refused_);
  EXPECT_EQ(refused_->http_status, 409);
  refused_.reset();
  start("resp_2");
}

// A response that the store does not take can be asked for again.
TEST_F(BackgroundResponsesTest, WhatWasNotStoredLeavesNothingBehind) {
  store_.set_fault([](const StoredTurn&) { return full(); });
  asio::co_spawn(io_, begin("resp_1", 5), asio::detached);
  ASSERT_TRUE(run_until([&] { return asked_ == 1; }));
  ASSERT_TRUE(refused_);
  EXPECT_EQ(responses_->find("ann", "resp_1"), nullptr);
  store_.set_fault({});
  refused_.reset();
  start("resp_1");
}

TEST_F(BackgroundResponsesTest, AnEndIsStoredOnceTheStoreTakesIt) {
  store_.set_fault(on_end(full()));
  start("resp_1");
  start("resp_2");
  EXPECT_EQ(status("resp_1"), "queued");
  const auto is_over = [&] { return status("resp_1") != "queued"; };
  EXPECT_FALSE(run_until(is_over, 3 * kStorePause)) << "several attempts";
  store_.set_fault({});
  EXPECT_TRUE(run_until([&] { return status("resp_1") == "failed" && status("resp_2") == "failed"; }));
  EXPECT_NE(store_.response("ann", "resp_1")->json.find("rate_limit_exceeded"), std::string::npos);
}

TEST_F(BackgroundResponsesTest, AnExceptionOfTheStoreIsNoLastWord) {
  int left = 2;
  store_.set_fault([&left](const StoredTurn& turn) -> Status {
    if (turn.response.status == "failed" && left-- > 0) throw std::runtime_error("out of memory");
    return {};
  });
  start("resp_1");
  EXPECT_TRUE(run_until([&] { return status("resp_1") == "failed"; }));
}

TEST_F(BackgroundResponsesTest, AnEndThatWaitsIsShownAndBounded) {
  store_.set_fault(on_end(full()));
  start("resp_1");
  const std::optional<StoredResponse> kept = responses_->unstored("ann", "resp_1");
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->status, "failed");
  EXPECT_FALSE(responses_->unstored("bob", "resp_1"));
  start("resp_2", UnstoredEnds::kBytesMax);
  EXPECT_FALSE(responses_->unstored("ann", "resp_2")) << "more than may wait";
  store_.set_fault({});
  EXPECT_TRUE(run_until([&] { return !responses_->unstored("ann", "resp_1"); }));
  EXPECT_EQ(status("resp_1"), "failed");
}

TEST_F(BackgroundResponsesTest, ADeletedResponseDoesNotComeBackWithItsEnd) {
  store_.set_fault(on_end(full()));
  start("resp_1");
  ASSERT_TRUE(store_.delete_response("ann", "resp_1").ok());
  store_.set_fault({});
  EXPECT_TRUE(run_until([&] { return !responses_->unstored("ann", "resp_1"); }));
  EXPECT_EQ(status("resp_1"), "none");
}

// One that the store never takes holds up no other.
TEST_F(BackgroundResponsesTest, EndsAreTriedInTurn) {
  store_.set_fault(on_end(full()));
  start("resp_1");
  start("resp_2");
  store_.set_fault([](const StoredTurn& turn) {
    const bool is_refused = turn.response.id == "resp_1" && turn.response.status == "failed";
    return is_refused ? data_loss("a page is damaged") : Status();
  });
  EXPECT_TRUE(run_until([&] { return status("resp_2") == "failed"; }));
  EXPECT_EQ(status("resp_1"), "queued");
}

}  // namespace
}  // namespace loci
