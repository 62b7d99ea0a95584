// SPDX-License-Identifier: Apache-2.0
// The store against a server that behaves, and against ones that do not.
#include "loci/memory/shared/redis_store.h"

#include <gtest/gtest.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "loci/memory/shared/redis_connection.h"
#include "loci/memory/shared/redis_fake.h"
#include "loci/memory/shared/shared_store_test_values.h"

namespace loci {
namespace {

using namespace shared_test;

class RedisStoreTest : public testing::Test {
 protected:
  RedisStoreOptions options(std::uint8_t secret = 1) {
    RedisStoreOptions options{.address = {.host = "127.0.0.1", .port = server_.port()},
                              .keys = keys_of(secret),
                              .groups = kGroups,
                              .time_to_live = 60 * kNanosPerSecond,
                              .connect_limit = kPatient,
                              .transfer_limit = kPatient};
    options.warn = [this](const std::string& line) { warnings_.add(line); };
    return options;
  }
  std::unique_ptr<SharedStore> open(RedisStoreOptions options) {
    return open_redis_store(std::move(options), clock_).value();
  }

  std::string warnings() const { return warnings_.all(); }

  SystemClock clock_;
  RedisFake server_;
  Warnings warnings_;
};

TEST_F(RedisStoreTest, WhatIsWrittenIsFoundAndRead) {
  const auto store = open(options());
  for (std::uint64_t seed = 0; seed < 9; ++seed) {
    for (std::uint32_t group = 0; group < 2; ++group) EXPECT_TRUE(write(*store, seed, group).ok());
  }
  EXPECT_EQ(ask(*store, {3, 100, 8}), (std::vector<std::uint8_t>{3, 0, 3}));
  for (std::uint32_t group = 0; group < 2; ++group) {
    const auto sink = read(*store, {0, 1, 2, 3, 4, 5, 6, 7, 8}, group);
    for (std::size_t i = 0; i < 9; ++i) {
      EXPECT_TRUE(sink->wait()[i].status->ok());
      EXPECT_EQ(sink->wait()[i].bytes, bytes_of(i, group));
    }
  }
  await([&] { return store->stats().parts_read_total == 18; });
  const SharedStoreStats stats = store->stats();
  EXPECT_EQ(stats.parts_written_total, 18u);
  EXPECT_EQ(stats.parts_found_total, 4u);
  EXPECT_TRUE(stats.up);
}

TEST_F(RedisStoreTest, AnotherServerFindsIt) {
  const auto one = open(options()), other = open(options()), stranger = open(options(2));
  EXPECT_TRUE(write(*one, 5, 0).ok());
  EXPECT_EQ(ask(*other, {5}), std::vector<std::uint8_t>{1});
  EXPECT_EQ(read(*other, {5}, 0)->wait()[0].bytes, bytes_of(5, 0));
  EXPECT_EQ(ask(*stranger, {5}), std::vector<std::uint8_t>{0}) << "under another secret";
  // It is not written again.
  EXPECT_TRUE(write(*other, 5, 0).ok());
  EXPECT_EQ(server_.commands("SET"), 1u);
  EXPECT_EQ(other->stats().parts_present_total, 1u);
}

TEST_F(RedisStoreTest, WhatIsGoneOrDamagedIsToldSo) {
  const auto store = open(options());
  for (std::uint64_t seed = 0; seed < 4; ++seed) ASSERT_TRUE(write(*store, seed, 0).ok());
  const SharedFormat format(keys_of(1), kGroups);
  std::map<std::string, std::string> values = server_.values();
  values.erase(format.name(test_key(0), 0));
  values[format.name(test_key(1), 0)].back() ^= 1;                            // in the last pack
  values[format.name(test_key(2), 0)] = values[format.name(test_key(3), 0)];  // another's
  server_.set_values(values);
  EXPECT_EQ(ask(*store, {0, 1, 2, 3}), (std::vector<std::uint8_t>{0, 1, 1, 1}));
  const auto sink = read(*store, {0, 1, 2, 3}, 0);
  EXPECT_EQ(sink->wait()[0].status->code(), StatusCode::kNotFound);
  EXPECT_EQ(sink->wait()[1].status->code(), StatusCode::kDataLoss);
  EXPECT_EQ(sink->wait()[1].layers, 4u) << "what came before the damaged pack was genuine";
  EXPECT_EQ(sink->wait()[2].status->code(), StatusCode::kDataLoss);
  EXPECT_EQ(sink->wait()[2].layers, 0u);
  EXPECT_EQ(sink->wait()[3].bytes, bytes_of(3, 0));
  // (Counted once the last item's end is told.)
  await([&] { return store->stats().parts_gone_total == 1 && store->stats().parts_damaged_total == 2; });
  await([&] { return server_.values().size() == 1; });  // what is damaged is deleted
  EXPECT_TRUE(write(*store, 2, 0).ok());
  EXPECT_EQ(read(*store, {2}, 0)->wait()[0].bytes, bytes_of(2, 0)) << "and written anew";
}

TEST_F(RedisStoreTest, ForgettingDeletes) {
  const auto store = open(options());
  ASSERT_TRUE(write(*store, 1, 0).ok());
  ASSERT_TRUE(write(*store, 1, 1).ok());
  forget(*store, 1);
  await([&] { return server_.values().empty(); });
}

TEST_F(RedisStoreTest, AFullStoreRefusesAndStays) {
  server_.answer([](const auto& command) -> std::optional<std::string> {
    if (command[0] == "SET") return "-OOM command not allowed when used memory > 'maxmemory'.\r\n";
    return std::nullopt;
  });
  const auto store = open(options());
  for (int i = 0; i < 10; ++i) EXPECT_EQ(write(*store, i, 0).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store->stats().parts_refused_total, 10u);
  EXPECT_TRUE(store->stats().up);
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

TEST_F(RedisStoreTest, ASilentStoreCostsDeadlinesThenNothing) {
  RedisStoreOptions fast = options();
  fast.transfer_limit = fast.connect_limit = kNanosPerSecond;
  const auto store = open(fast);
  await([&] { return store->stats().up; });
  server_.answer([](const auto&) { return std::string(); });
  await([&] {
    EXPECT_EQ(ask(*store, {1}, kNanosPerSecond / 20), std::vector<std::uint8_t>{0});
    return !store->stats().up;
  });
  await([&] { return warnings().find("is not asked until it answers again") != std::string::npos; });
  const std::uint64_t asked = server_.commands("STRLEN");
  EXPECT_EQ(ask(*store, {1}), std::vector<std::uint8_t>{0});
  EXPECT_EQ(read(*store, {1}, 0)->wait()[0].status->code(), StatusCode::kUnavailable);
  EXPECT_EQ(write(*store, 1, 0).code(), StatusCode::kUnavailable);
  EXPECT_EQ(server_.commands("STRLEN"), asked) << "it was asked all the same";
  server_.answer(nullptr);
  await([&] { return store->stats().up; });  // a probe finds it
  await([&] { return write(*store, 1, 0).ok(); });
  await([&] { return ask(*store, {1}) == std::vector<std::uint8_t>{1}; });
}

// Nothing is written, so nobody but questions could have it tried again.
TEST_F(RedisStoreTest, WhatQuestionsFoundAwayIsTriedAgain) {
  RedisStoreOptions fast = options();
  fast.transfer_limit = fast.connect_limit = kNanosPerSecond;
  const auto store = open(fast);
  await([&] { return store->stats().up; });
  server_.answer([](const auto&) { return std::string(); });
  await([&] {
    (void)ask(*store, {1}, kNanosPerSecond / 20);
    return !store->stats().up;
  });
  server_.answer(nullptr);
  await([&] { return store->stats().up; });
}

TEST_F(RedisStoreTest, DeletionsThatAreNotTakenAreCounted) {
  server_.answer([](const auto& command) -> std::optional<std::string> {
    if (command[0] == "DEL") return "-READONLY You can't write against a read only replica.\r\n";
    return std::nullopt;
  });
  const auto store = open(options());
  ASSERT_TRUE(write(*store, 1, 0).ok());
  for (const std::uint64_t seed : {1, 2, 3}) forget(*store, seed);
  await([&] { return store->stats().deletions_dropped_total == 3; });
  EXPECT_TRUE(store->stats().up);
  EXPECT_EQ(server_.values().size(), 1u);
  const std::string told = warnings();
  ASSERT_NE(told.find("did not take a deletion"), std::string::npos) << told;
  EXPECT_EQ(told.find("did not take a deletion"), told.rfind("did not take a deletion")) << "told once";
  EXPECT_NE(told.find("READONLY"), std::string::npos) << told;
  server_.answer(nullptr);
  forget(*store, 1);
  await([&] { return server_.values().empty(); });
  ASSERT_TRUE(write(*store, 2, 0).ok()) << "so the answer to the deletion before it was read";
  EXPECT_EQ(store->stats().deletions_dropped_total, 3u);

  // Beyond 262,144 that wait.
  server_.answer([](const auto&) { return std::string(); });
  for (std::uint64_t seed = 0; seed < 262'144 + 10; ++seed) forget(*store, seed);
  EXPECT_EQ(store->stats().deletions_dropped_total, 3u + 10);
}

TEST_F(RedisStoreTest, DeletionsAreKeptUntilTheStoreIsBack) {
  const auto other = open(options());
  ASSERT_TRUE(write(*other, 1, 0).ok());
  ASSERT_TRUE(write(*other, 2, 1).ok());
  RedisStoreOptions fast = options();
  fast.transfer_limit = fast.connect_limit = kNanosPerSecond / 10;
  const auto store = open(fast);
  server_.answer([](const auto&) { return std::string(); });
  for (const std::uint64_t seed : {1, 2})
    forget(*store, seed);
  await([&] { return !store->stats().up; });
  EXPECT_EQ(server_.values().size(), 2u);
  server_.answer(nullptr);
  await([&] { return server_.values().empty(); });
  EXPECT_EQ(store->stats().deletions_dropped_total, 0u);
}

TEST_F(RedisStoreTest, AConnectionForQuestionsMayTakeLongerThanOne) {
  const auto store = open(options());
  ASSERT_TRUE(write(*store, 1, 0).ok());
  std::atomic<bool> is_garbage = true;
  server_.answer([&](const auto& command) -> std::optional<std::string> {
    if (command[0] == "PING") std::this_thread::sleep_for(std::chrono::milliseconds(1'000));
    if (command[0] == "STRLEN" && is_garbage.exchange(false)) return "$-7\r\n";
    return std::nullopt;
  });
  EXPECT_EQ(ask(*store, {1}), std::vector<std::uint8_t>{0}) << "garbage ends the connection";
  await([&] { return ask(*store, {1}, 400 * kNanosPerMilli) == std::vector<std::uint8_t>{1}; });
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
  std::promise<void> late;
  server_.answer([is_late = late.get_future().share()](const auto& command) -> std::optional<std::string> {
    if (command[0] == "GETRANGE") is_late.wait();
    return std::nullopt;
  });
  // One alone comes; those that wait behind it are ended, and the store is no worse for that.
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<CollectingSink>(1));
    store->read({{.group = 0, .slot = {}, .key = test_key(1)}}, 0, sinks.back());
  }
  std::this_thread::sleep_for(std::chrono::nanoseconds(fast.transfer_limit));
  late.set_value();
  EXPECT_EQ(sinks.front()->wait()[0].bytes, bytes_of(1, 0));
  for (int i = 1; i < 5; ++i)
    EXPECT_EQ(sinks[static_cast<std::size_t>(i)]->wait()[0].status->code(), StatusCode::kDeadlineExceeded)
        << i;
  EXPECT_TRUE(store->stats().up);
  EXPECT_EQ(store->stats().failures_total, 0u);
  server_.answer(nullptr);
}

TEST_F(RedisStoreTest, WritesThatWaitSayNothingOfTheStore) {
  RedisStoreOptions fast = options();
  fast.transfer_limit = kNanosPerSecond;
  fast.rate_min = 1;
  const auto store = open(fast);
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
  EXPECT_TRUE(done[0].get_future().get().ok());
  for (std::size_t i = 1; i < done.size(); ++i)
    EXPECT_EQ(done[i].get_future().get().code(), StatusCode::kDeadlineExceeded) << i;
  EXPECT_TRUE(store->stats().up);
  EXPECT_EQ(store->stats().failures_total, 0u);
  server_.answer(nullptr);
}

TEST_F(RedisStoreTest, AByteNowAndThenIsNoAnswer) {
  RedisStoreOptions fast = options();
  fast.transfer_limit = kNanosPerSecond / 4;
  ASSERT_TRUE(write(*open(options()), 1, 0).ok());
  const auto store = open(fast);
  server_.dribble(std::chrono::milliseconds(20));
  EXPECT_EQ(read(*store, {1}, 0)->wait()[0].status->code(), StatusCode::kDeadlineExceeded);
  server_.dribble(std::chrono::milliseconds(0));
}

TEST_F(RedisStoreTest, ItsEndEndsWhatWaits) {
  auto store = open(options());
  server_.answer([](const auto&) { return std::string(); });
  auto sink = std::make_shared<CollectingSink>(1);
  std::promise<std::vector<std::uint8_t>> answer;
  std::promise<Status> written;
  store->read({{.group = 0, .slot = {}, .key = test_key(1)}}, 0, sink);
  store->ask({test_key(1)}, 3600 * kNanosPerSecond,
             [&](auto groups) { answer.set_value(std::move(groups)); });
  store->write(0, {}, {.key = test_key(1)}, bytes_of(1, 0),
               [&](Status status) { written.set_value(std::move(status)); });
  store.reset();
  sink->wait();
  EXPECT_FALSE(sink->wait()[0].status->ok());
  EXPECT_EQ(answer.get_future().get(), std::vector<std::uint8_t>{0});
  EXPECT_FALSE(written.get_future().get().ok());
}

TEST_F(RedisStoreTest, WhoIsNotThereIsNamedAndTriedAgain) {
  RedisStoreOptions nobody = options();
  nobody.address.port = 1;
  const auto store = open(nobody);
  EXPECT_NE(warnings().find("redis://127.0.0.1:1/0 cannot be reached"), std::string::npos) << warnings();
  EXPECT_FALSE(store->stats().up);
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
      {"redis://h:65536", "expected a port from 1 to 65535, found '65536'"},
      {"redis://h/x", "expected a database's number after the /, found 'x'"},
  };
  for (const auto& [url, expected] : cases) EXPECT_EQ(message(url), expected) << url;
  EXPECT_NE(message("redis://:1").find("expected a host's name or address as in redis://"),
            std::string::npos);
}

}  // namespace
}  // namespace loci
