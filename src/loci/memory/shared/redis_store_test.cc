// SPDX-License-Identifier: Apache-2.0
// The store against a server that behaves, and against ones that do not: what it promises as every store does
// (shared_store_contract_testing.h), and what is Redis's alone.
#include "loci/memory/shared/redis_store.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/redis_testing.h"
#include "loci/memory/shared/shared_store_contract_testing.h"
#include "loci/memory/shared/shared_store_testing.h"

namespace loci {
namespace {

using namespace shared_test;

RedisStoreOptions options_at(std::uint16_t port, std::uint8_t secret, Warnings& warnings) {
  return {.address = {.host = "127.0.0.1", .port = port},
          .keys = keys_of(secret),
          .groups = kGroups,
          .time_to_live = 60 * kNanosPerSecond,
          .connect_limit = kPatient,
          .transfer_limit = kPatient,
          .warn = [&warnings](const std::string& line) { warnings.add(line); }};
}

// See shared_store_contract_testing.h.
class RedisPlace {
 public:
  std::unique_ptr<SharedStore> open(Haste haste, std::uint8_t secret = 1) {
    RedisStoreOptions options = options_at(server_.port(), secret, warnings);
    if (haste == Haste::kHasty) options.connect_limit = options.transfer_limit = kNanosPerSecond / 4;
    return open_redis_store(options, clock_).value();
  }
  std::unique_ptr<SharedStore> open_nowhere() {
    return open_redis_store(options_at(1, 1, warnings), clock_).value();
  }
  static std::string nowhere() { return "redis://127.0.0.1:1/0"; }
  static std::string name(std::uint64_t seed, std::uint32_t group) {
    return SharedFormat(keys_of(1), kGroups).name(test_key(seed), group);
  }
  auto values() const { return server_.values(); }
  void set_values(std::map<std::string, std::string> values) { server_.set_values(std::move(values)); }
  void be_silent() {
    server_.answer([](const auto&) { return std::string(); });
  }
  void refuse_writes() { refuse("SET", "-OOM command not allowed when used memory > 'maxmemory'.\r\n"); }
  void refuse_deletions() { refuse("DEL", "-READONLY You can't write against a read only replica.\r\n"); }
  static std::string refusal() { return "READONLY"; }
  void be_well() { server_.answer(nullptr); }
  void dribble(std::chrono::milliseconds pause) { server_.dribble(pause); }
  std::uint64_t questions() const { return server_.commands("STRLEN"); }
  std::uint64_t writes() const { return server_.commands("SET"); }

  Warnings warnings;

 private:
  void refuse(const std::string& name, const std::string& error) {
    server_.answer([=](const auto& command) -> std::optional<std::string> {
      if (command[0] == name) return error;
      return std::nullopt;
    });
  }

  SystemClock clock_;
  RedisFake server_;
};
INSTANTIATE_TYPED_TEST_SUITE_P(Redis, SharedStoreContract, RedisPlace);

class RedisStoreTest : public testing::Test {
 protected:
  RedisStoreOptions options() { return options_at(server_.port(), 1, warnings_); }
  std::unique_ptr<SharedStore> open(RedisStoreOptions options) {
    return open_redis_store(std::move(options), clock_).value();
  }
  // The rate is measured within 200 ms, which may be too short on a busy machine: then another one is opened.
  template <class Condition>
  std::unique_ptr<SharedStore> open_until(Condition is_measured) {
    std::unique_ptr<SharedStore> store;
    (void)in_one_try(100, [&] {
      store.reset();
      greeted_ = server_.commands("PING");
      store = open(options());
      return is_measured(store->first_rate());
    });
    return store;
  }

  SystemClock clock_;
  RedisFake server_;
  Warnings warnings_;
  std::uint64_t greeted_ = 0;  // connections before that of open_until()'s store: each begins with a PING
};

std::set<std::string> names_of_threads() {
  std::set<std::string> names;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "comm");
    std::string name;
    if (std::getline(file, name)) names.insert(name);
  }
  return names;
}

// A name of more than 15 letters would be refused, and the thread would keep that of whoever began it.
TEST_F(RedisStoreTest, EachOfItsThreadsHasItsName) {
  const auto store = open(options());
  for (const char* name : {"loci-shared-ask", "loci-redis-dial", "loci-shared-get", "loci-shared-set"})
    EXPECT_TRUE(eventually([&] { return names_of_threads().contains(name); })) << name;
}

// So that the first plan knows it. A store that does not send texts back says nothing, and is used all the
// same; so is one that is so slow that the text does not come in time.
TEST_F(RedisStoreTest, HowFastItIsIsMeasuredAtTheStart) {
  EXPECT_FALSE(open(options())->first_rate().has_value()) << "it says OK to all that it does not know";
  const auto echo = [](std::size_t most) {
    return [most](const std::vector<std::string>& command) -> std::optional<std::string> {
      if (command[0] != "ECHO") return std::nullopt;
      if (command[1].size() > most) return std::string();
      return "$" + std::to_string(command[1].size()) + "\r\n" + command[1] + "\r\n";
    };
  };
  server_.answer(echo(SIZE_MAX));
  auto store = open_until([](const std::optional<SharedRate>& rate) {
    return rate && rate->bytes_per_second > 1u << 20 && rate->latency < kNanosPerSecond;
  });
  ASSERT_TRUE(store->first_rate().has_value());
  EXPECT_GT(store->first_rate()->bytes_per_second, 1u << 20);
  EXPECT_LT(store->first_rate()->latency, kNanosPerSecond);
  for (const std::size_t most : {std::size_t{100'000}, std::size_t{1}, std::size_t{0}}) {
    // What did not come in 200 ms, there and back.
    const std::uint64_t bound = (most > 1 ? 1'048'576 : 65'536) * 11u;
    server_.answer(echo(most));
    store = open_until([&](const std::optional<SharedRate>& rate) {
      return rate ? rate->bytes_per_second < bound : most == 0;
    });
    // Nobody has asked yet, but the connection on which a text is still to come is replaced.
    await([&] { return server_.commands("PING") > greeted_ + 1; });
    ASSERT_EQ(store->first_rate().has_value(), most > 0) << "by the last text that came";
    if (most > 0) {
      EXPECT_LT(store->first_rate()->bytes_per_second, bound);
    }
    EXPECT_TRUE(write(*store, 1, 0).ok());
    EXPECT_EQ(ask(*store, {1}), std::vector<std::uint8_t>{1});
  }
}

// As of a server that has just been started, or is swapping.
TEST_F(RedisStoreTest, AFirstTextThatIsHeldUpMakesNoneOfTheOthersFast) {
  server_.answer([](const std::vector<std::string>& command) -> std::optional<std::string> {
    if (command[0] != "ECHO") return std::nullopt;
    if (command[1].size() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    return "$" + std::to_string(command[1].size()) + "\r\n" + command[1] + "\r\n";
  });
  const auto store = open_until(
      [](const std::optional<SharedRate>& rate) { return rate && rate->latency < 100 * kNanosPerMilli; });
  ASSERT_TRUE(store->first_rate().has_value());
  EXPECT_LT(store->first_rate()->bytes_per_second, std::uint64_t{1} << 38);
  EXPECT_LT(store->first_rate()->latency, 100 * kNanosPerMilli);
}

TEST_F(RedisStoreTest, ADeletionTooManyIsDropped) {
  const auto store = open(options());
  server_.answer([](const auto&) { return std::string(); });
  for (std::uint64_t seed = 0; seed < 262'144 + 10; ++seed) forget(*store, seed);
  EXPECT_EQ(store->stats().deletions_dropped_total, 10u);
}

// One after the other, those of a large conversation would hold everybody's writes up for seconds.
TEST_F(RedisStoreTest, DeletionsAreAskedForTogether) {
  constexpr std::uint64_t kTogether = 50;
  const auto store = open(options());
  const auto before = std::make_shared<std::uint64_t>(0);
  std::promise<void> queued;
  server_.answer(
      [before, all_queued = queued.get_future().share()](const auto& command) -> std::optional<std::string> {
        if (command[0] == "SET") all_queued.wait();
        if (command[0] != "DEL") return std::nullopt;
        if (++*before < kTogether * kGroups.size()) return "";
        std::string replies;
        for (std::uint64_t i = 0; i < *before; ++i) replies += ":1\r\n";
        return replies;
      });
  std::promise<Status> written;  // while it is carried out, they queue up behind it
  store->write(0, {}, {.key = test_key(1)}, bytes_of(1, 0),
               [&](Status status) { written.set_value(std::move(status)); });
  await([&] { return server_.commands("SET") == 1; });
  for (std::uint64_t seed = 0; seed < kTogether; ++seed) forget(*store, seed);
  queued.set_value();
  EXPECT_TRUE(written.get_future().get().ok());
  await([&] { return server_.commands("DEL") == kTogether * kGroups.size(); });
  EXPECT_TRUE(write(*store, 1, 0).ok());
  EXPECT_EQ(server_.commands("DEL"), kTogether * kGroups.size()) << "each has had its reply";
  EXPECT_EQ(store->stats().failures_total, 0u);
  server_.answer(nullptr);
}

// Of a load that was given up, what has not been asked for is not read.
TEST_F(RedisStoreTest, WhatNobodyWaitsForIsNotRead) {
  class Sink : public CollectingSink {
   public:
    using CollectingSink::CollectingSink;
    bool wanted(std::size_t item) override { return item == 0; }
  };
  const auto store = open(options());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(write(*store, i, 0).ok());
  const auto sink = std::make_shared<Sink>(3);
  std::vector<BlockRead> items;
  for (int i = 0; i < 3; ++i) items.push_back({.group = 0, .slot = {}, .key = test_key(i)});
  store->read(items, 0, sink);
  const auto& read = sink->wait();
  EXPECT_EQ(read[0].bytes, bytes_of(0, 0));
  EXPECT_EQ(read[1].status->code(), StatusCode::kCancelled);
  EXPECT_EQ(read[2].status->code(), StatusCode::kCancelled);
  await([&] { return store->stats().parts_read_total == 1; });  // (they are counted after the last call)
  EXPECT_EQ(store->stats().failures_total, 0u);
}

TEST_F(RedisStoreTest, GarbageIsNeverServed) {
  const std::vector<std::string> garbage = {"$-7\r\n",
                                            "*1000000000\r\n",
                                            "$99999999999999999999\r\n",
                                            "$5\r\nab",
                                            "HTTP/1.1 400 Bad Request\r\n\r\n",
                                            "+OK\r\n",
                                            ":12\r\n",
                                            "$-1\r\n",
                                            "-ERR no\r\n",
                                            "*2\r\n:1\r\n:2\r\n",
                                            "\0\0\0\0",
                                            ":zero\r\n",
                                            "$3\r\nabc\r\n",
                                            "$1073741824\r\n" + std::string(1 << 20, 'x')};
  for (const std::string& text : garbage) {
    ASSERT_TRUE(write(*open(options()), 1, 0).ok());
    RedisStoreOptions fast = options();
    fast.transfer_limit = kNanosPerSecond / 5;
    const auto store = open(fast);
    server_.answer([text](const auto& command) -> std::optional<std::string> {
      if (command[0] == "GETRANGE" || command[0] == "STRLEN") return text;
      return std::nullopt;
    });
    EXPECT_EQ(ask(*store, {1}, kNanosPerSecond / 5), std::vector<std::uint8_t>{0}) << text.substr(0, 20);
    const auto sink = read(*store, {1, 2, 3}, 0);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_FALSE(sink->wait()[i].status->ok()) << text.substr(0, 20);
      EXPECT_EQ(sink->wait()[i].layers, 0u);
    }
    server_.answer(nullptr);
  }
}

TEST_F(RedisStoreTest, AConnectionForQuestionsMayTakeLongerThanOne) {
  const auto store = open(options());
  ASSERT_TRUE(write(*store, 1, 0).ok());
  const auto is_garbage = std::make_shared<std::atomic<bool>>(true);
  server_.answer([is_garbage](const auto& command) -> std::optional<std::string> {
    if (command[0] == "PING") std::this_thread::sleep_for(std::chrono::seconds(2));
    if (command[0] == "STRLEN" && is_garbage->exchange(false)) return "$-7\r\n";
    return std::nullopt;
  });
  EXPECT_EQ(ask(*store, {1}), std::vector<std::uint8_t>{0}) << "garbage ends the connection";
  await([&] { return ask(*store, {1}, 1'500 * kNanosPerMilli) == std::vector<std::uint8_t>{1}; });
  EXPECT_TRUE(store->stats().up);
  EXPECT_EQ(store->stats().failures_total, 1u) << "nothing but the garbage";
  server_.answer(nullptr);
}

TEST_F(RedisStoreTest, ALoadMayTakeAsLongAsItsBytesDo) {
  RedisStoreOptions fast = options();
  fast.transfer_limit = kNanosPerSecond;
  fast.rate_min = 1'000;  // of 300,000 bytes
  fast.readers = 1;
  const auto store = open(fast);
  ASSERT_TRUE(write(*open(options()), 1, 0).ok());
  // One alone comes; those that wait behind it are ended, and the store is no worse for that. On a machine
  // that stands still for a second the first one may be ended, too: then others are read.
  EXPECT_TRUE(in_one_try(10, [&] {
    std::promise<void> late;
    server_.answer([is_late = late.get_future().share()](const auto& command) -> std::optional<std::string> {
      if (command[0] == "GETRANGE") is_late.wait();
      return std::nullopt;
    });
    std::vector<std::shared_ptr<CollectingSink>> sinks;
    for (int i = 0; i < 5; ++i) {
      sinks.push_back(std::make_shared<CollectingSink>(1));
      store->read({{.group = 0, .slot = {}, .key = test_key(1)}}, 0, sinks.back());
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(fast.transfer_limit));
    late.set_value();
    for (std::size_t i = 1; i < 5; ++i)
      EXPECT_EQ(sinks[i]->wait()[0].status->code(), StatusCode::kDeadlineExceeded) << i;
    return sinks.front()->wait()[0].bytes == bytes_of(1, 0);
  }));
  EXPECT_TRUE(store->stats().up);
  EXPECT_EQ(store->stats().failures_total, 0u);
  server_.answer(nullptr);
}

TEST_F(RedisStoreTest, WritesThatWaitSayNothingOfTheStore) {
  RedisStoreOptions fast = options();
  fast.transfer_limit = kNanosPerSecond;
  fast.rate_min = 1;
  const auto store = open(fast);
  // (As above, the first one may be ended, too.)
  Status first = {StatusCode::kUnavailable, "nothing was written"};
  for (int tries = 0; tries < 10 && !first.ok(); ++tries) {
    std::promise<void> late;
    server_.answer([is_late = late.get_future().share()](const auto& command) -> std::optional<std::string> {
      if (command[0] == "SET") is_late.wait();
      return std::nullopt;
    });
    std::vector<std::promise<Status>> done(5);
    for (std::size_t i = 0; i < done.size(); ++i) {
      store->write(0, {}, {.key = test_key(i)}, bytes_of(i, 0),
                   [&done, i](Status status) { done[i].set_value(std::move(status)); });
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(fast.transfer_limit));
    late.set_value();
    first = done[0].get_future().get();
    for (std::size_t i = 1; i < done.size(); ++i)
      EXPECT_EQ(done[i].get_future().get().code(), StatusCode::kDeadlineExceeded) << i;
  }
  EXPECT_TRUE(first.ok()) << first.to_string();
  EXPECT_TRUE(store->stats().up);
  EXPECT_EQ(store->stats().failures_total, 0u);
  server_.answer(nullptr);
}

TEST_F(RedisStoreTest, WhoRefusesTheLoginIsAnError) {
  server_.answer([](const auto& command) -> std::optional<std::string> {
    if (command[0] == "AUTH") return "-WRONGPASS invalid username-password pair\r\n";
    return std::nullopt;
  });
  RedisStoreOptions login = options();
  login.address.password = "secret";
  const auto store = open_redis_store(login, clock_);
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(store.status().message().find("the store refuses the user or the password: WRONGPASS"),
            std::string::npos)
      << store.status().message();
  server_.answer([](const auto& command) -> std::optional<std::string> {
    if (command[0] != "AUTH") return std::nullopt;
    return "-ERR unknown command 'AUTH', with args beginning with: '" + command.back() + "'\r\n";
  });
  const std::string repeated = open_redis_store(login, clock_).status().message();
  EXPECT_NE(repeated.find("the store refuses the user or the password: ERR"), std::string::npos) << repeated;
  EXPECT_EQ(repeated.find("secret"), std::string::npos) << repeated;
  server_.answer([](const auto& command) -> std::optional<std::string> {
    if (command[0] == "SELECT") return "-ERR DB index is out of range\r\n";
    if (command[0] == "PING") return "-NOPERM this user has no permissions\r\n";
    return std::nullopt;
  });
  RedisStoreOptions seventh = options();
  seventh.address.database = 7;
  EXPECT_NE(open_redis_store(seventh, clock_)
                .status()
                .message()
                .find("the store refuses the database's number: ERR DB index"),
            std::string::npos);
  EXPECT_NE(open_redis_store(options(), clock_).status().message().find("the store refuses commands: NOPERM"),
            std::string::npos);
  server_.answer([](const auto&) { return std::string("HTTP/1.1 400 Bad Request\r\n"); });
  const Status other = open_redis_store(options(), clock_).status();
  EXPECT_EQ(other.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(other.message().find("expected a server that speaks Redis's protocol, found another one"),
            std::string::npos)
      << other.message();
}

TEST(RedisAddress, Parses) {
  const RedisAddress plain = parse_redis_address("redis://cache.example").value();
  EXPECT_EQ(plain, (RedisAddress{.host = "cache.example"}));
  const RedisAddress all = parse_redis_address("rediss://us%65r:p%40ss@[::1]:7000/3").value();
  EXPECT_EQ(
      all, (RedisAddress{
               .host = "::1", .port = 7000, .user = "user", .password = "p@ss", .database = 3, .tls = true}));
  EXPECT_EQ(all.shown(), "rediss://[::1]:7000/3");
  EXPECT_EQ(parse_redis_address("redis://:p@h/").value().password, "p");
  for (const char* wrong : {"",
                            "redis:/h",
                            "http://h",
                            "redis://",
                            "redis://:1",
                            "redis://h:0",
                            "redis://h:65536",
                            "redis://h:x",
                            "redis://h:",
                            "redis://h/x",
                            "redis://h/-1",
                            "redis://u@h",
                            "redis://u:@h",
                            "redis://:%zz@h",
                            "redis://[::1",
                            "redis://[[]",
                            "redis://a]b",
                            "redis://[::1]x",
                            "redis://h/1?x=2",
                            "redis://a b"}) {
    const auto parsed = parse_redis_address(wrong);
    EXPECT_FALSE(parsed.ok()) << wrong;
    EXPECT_EQ(parsed.status().message().find("%zz"), std::string::npos) << "a message has no password";
  }
  const auto message = [](const char* url) { return parse_redis_address(url).status().message(); };
  const std::vector<std::pair<const char*, std::string>> cases = {
      {"http://h",
       "expected redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE], or rediss:// for TLS; or "
       "s3://BUCKET[/PREFIX] of an S3 store"},
      {"redis://u@h", "expected USER:PASSWORD or :PASSWORD before the @, found no colon"},
      {"redis://u:@h",
       "expected a password before the @, and two hexadecimal digits after each % in it; found none, or "
       "others"},
      {"redis://[::1", "expected a ] after the address of IPv6, found none"},
      {"redis://[::1]x", "expected :PORT after the ]"},
      {"redis://h:", "expected a port from 1 to 65535 after the :, found none"},
      {"redis://h:65536",
       "expected a port from 1 to 65535 after the host's :, found something else (a password ends with an "
       "@)"},
      {"redis://ann:secret",
       "expected a port from 1 to 65535 after the host's :, found something else (a password ends with an "
       "@)"},
      {"redis://h/x", "expected a database's number, at most 1048576, after the /, found something else"},
  };
  for (const auto& [url, expected] : cases) EXPECT_EQ(message(url), expected) << url;
  EXPECT_NE(message("redis://:1").find("expected a host's name or address as in redis://"),
            std::string::npos);
}

}  // namespace
}  // namespace loci
