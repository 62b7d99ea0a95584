// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/store_keeper.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <sstream>
#include <thread>

#include "loci/base/eventually_testing.h"
#include "loci/serve/store/naive_store_testing.h"
#include "loci/serve/telemetry/log_line.h"

namespace loci {
namespace {

class StoppedClock final : public Clock {
 public:
  Nanos now() const override { return at; }
  Nanos at = 0;
};

TEST(EndedServers, HaveEndedWhereTheySeemToAtEveryLook) {
  constexpr Nanos kSecond = kNanosPerSecond;
  const std::vector<std::string> one = {"a"}, both = {"a", "b"}, none;
  EndedServers servers;
  const auto look = [&](Nanos at, const std::vector<std::string>& seem, Nanos took = 0) {
    return servers.look(at * kSecond, at * kSecond + took, seem, {});
  };
  EXPECT_EQ(look(100, one), none);
  EXPECT_EQ(look(102, both), none);
  EXPECT_EQ(look(104, both), none);
  EXPECT_EQ(look(106, both), one);
  EXPECT_EQ(look(108, {"b"}), (std::vector<std::string>{"b"}));
  // Somebody who is back begins anew.
  EXPECT_EQ(look(110, none), none);
  EXPECT_EQ(look(112, both), none);
  EXPECT_EQ(look(114, both), none);
  EXPECT_EQ(look(116, both), none);
  // Nothing is known of the time before a look that took long, or after looks that failed.
  EXPECT_EQ(look(118, both, 2 * kSecond), none);
  EXPECT_EQ(look(122, both), none);
  EXPECT_EQ(look(127, both), none);
  EXPECT_EQ(look(129, both), none);
  EXPECT_EQ(look(131, both), none);
  EXPECT_EQ(look(132, both), both);
}

// Of a frozen machine its row alone says so, which takes five seconds by itself.
TEST(EndedServers, AreSurerWhereTheirRowsAreSilent) {
  constexpr Nanos kHalf = kNanosPerSecond / 2;
  const std::vector<std::string> both = {"a", "b"}, silent = {"a"}, none;
  EndedServers servers;
  for (Nanos at = 0; at < 4; ++at) {
    EXPECT_EQ(servers.look(at * kHalf, at * kHalf, both, silent), none) << at;
    EXPECT_TRUE(servers.is_in_doubt());
  }
  EXPECT_EQ(servers.look(4 * kHalf, 4 * kHalf, both, silent), silent);
  EXPECT_TRUE(servers.is_in_doubt()) << "of the other one";
  for (Nanos at = 5; at < 10; ++at) EXPECT_EQ(servers.look(at * kHalf, at * kHalf, {"b"}, none), none) << at;
  EXPECT_EQ(servers.look(10 * kHalf, 10 * kHalf, {"b"}, none), std::vector<std::string>{"b"});
  EXPECT_FALSE(servers.is_in_doubt());
  // It was only slow.
  EXPECT_EQ(servers.look(11 * kHalf, 11 * kHalf, silent, silent), none);
  EXPECT_EQ(servers.look(12 * kHalf, 12 * kHalf, none, none), none);
  EXPECT_FALSE(servers.is_in_doubt());
  EXPECT_EQ(servers.look(16 * kHalf, 16 * kHalf, silent, silent), none) << "it begins anew";
}

TEST(QuotaLog, EachTenantIsNamedAtOnceAndThenOnceInAPeriod) {
  std::ostringstream out;
  const auto logger =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
  logger->set_formatter(log_formatter(LogFormat::kText));
  const auto written = [&] {
    const std::string text = out.str();
    out.str("");
    return text;
  };
  StoppedClock clock;
  QuotaLog log(clock, 100, logger);
  const auto expect_told = [&](const char* tenant, int deleted) {
    const std::string line = written();
    EXPECT_TRUE(line.ends_with(fmt::format(" tenant={} deleted={}\n", tenant, deleted))) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  };
  log.made_room("ann", 2);
  expect_told("ann", 2);
  log.made_room("bob", 1);
  expect_told("bob", 1);
  clock.at = 99;
  log.made_room("ann", 3);
  log.made_room("ann", 4);
  EXPECT_EQ(written(), "");
  clock.at = 100;
  log.made_room("ann", 5);
  expect_told("ann", 12);
}

// Says for some calls that it has more to do, though nothing goes.
class BusyStore final : public NaiveStore {
 public:
  Result<StoreExpiry> expire(std::int64_t, const StoreLimits&) override {
    ++calls;
    return StoreExpiry{.gone = 0, .has_more = left.fetch_sub(1) > 1};
  }
  std::atomic<int> left = 0, calls = 0;
};

// At the first look a server seems to have ended; after that the database does not answer.
class SilentStore final : public NaiveStore {
 public:
  Result<std::uint64_t> fail_interrupted(const std::vector<std::string>&,
                                         const ConfirmEnded& confirm) override {
    const int call = calls.load();
    if (call < kCalls) asked_at[static_cast<std::size_t>(call)] = clock.now();
    ++calls;
    if (call == 0) {
      EXPECT_TRUE(confirm({"7"}).empty());
      return std::uint64_t{0};
    }
    return Status(StatusCode::kUnavailable, "it does not answer");
  }
  static constexpr int kCalls = 3;
  SystemClock clock;
  std::array<Nanos, kCalls> asked_at{};
  std::atomic<int> calls = 0;
};

bool comes_to(const std::atomic<int>& value, int expected) {
  return eventually([&] { return value >= expected; });
}

TEST(StoreKeeper, LooksMoreOftenOnlyWhileItIsAnswered) {
  std::ostringstream out;
  const auto logger =
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(out));
  constexpr Nanos kPeriod = 600 * kNanosPerMilli;
  SilentStore store;
  {
    WorkerPool pool(2);
    fail_interrupted_responses(pool, store, kPeriod, [] { return std::vector<std::string>(); }, logger);
    EXPECT_TRUE(comes_to(store.calls, SilentStore::kCalls));
  }
  EXPECT_GE(store.asked_at[1] - store.asked_at[0], kPeriod / 4);
  EXPECT_GE(store.asked_at[2] - store.asked_at[1], kPeriod) << "nobody gets surer by asking more often";
}

TEST(StoreKeeper, WorksWhileThereIsMoreAndWhenItIsAsked) {
  const auto logger = std::make_shared<spdlog::logger>("test");
  ServeMetrics metrics("0");
  BusyStore store;
  store.left = 3;
  std::function<void()> ask;
  {
    WorkerPool pool(2);
    ask = keep_store(pool, store, {.limits = {}, .period = 3'600 * kNanosPerSecond}, metrics, logger);
    EXPECT_TRUE(comes_to(store.calls, 3)) << "at once, not after the pause";
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(store.calls, 3);
    store.left = 2;
    ask();
    EXPECT_TRUE(comes_to(store.calls, 5));
    for (int i = 0; i < 100; ++i) ask();
    EXPECT_TRUE(comes_to(store.calls, 6));
  }
  const int calls = store.calls;
  ask();
  EXPECT_EQ(store.calls, calls) << "nobody is there any more";
}

}  // namespace
}  // namespace loci
