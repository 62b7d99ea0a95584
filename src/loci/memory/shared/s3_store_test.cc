// SPDX-License-Identifier: Apache-2.0
// The store against a server that behaves, and against ones that do not: what it promises as every store does
// (shared_store_contract_testing.h), and what is S3's alone.
#include "loci/memory/shared/s3_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/memory/shared/s3_store_testing.h"
#include "loci/memory/shared/shared_store_contract_testing.h"

namespace loci {
namespace {

using namespace shared_test;

// See shared_store_contract_testing.h.
class S3Place {
 public:
  std::unique_ptr<SharedStore> open(Haste haste, std::uint8_t secret = 1) {
    S3StoreOptions options = options_at(server_.port(), secret, warnings);
    if (haste == Haste::kHasty) options.connect_limit = options.transfer_limit = kSoon;
    return open_s3_store(std::move(options), clock_).value();
  }
  std::unique_ptr<SharedStore> open_nowhere() {
    return open_s3_store(options_at(1, 1, warnings), clock_).value();
  }
  static std::string nowhere() {
    return "s3://bucket/some/place/?endpoint=http://127.0.0.1:1&region=eu-north-1&style=path";
  }
  static std::string name(std::uint64_t seed, std::uint32_t group) { return path_of(seed, group); }
  std::map<std::string, std::string> values() const {
    std::map<std::string, std::string> out;
    for (const auto& [name, object] : server_.objects()) out[name] = object.bytes;
    return out;
  }
  void set_values(const std::map<std::string, std::string>& values) {
    S3Fake::Objects objects;
    for (const auto& [name, bytes] : values) objects[name] = {.bytes = bytes};
    server_.set_objects(std::move(objects));
  }
  void be_silent() {
    server_.answer([](const auto&) { return std::string(); });
  }
  void refuse_writes() { refuse("PUT", S3Fake::error("507 Insufficient Storage", "QuotaExceeded")); }
  void refuse_deletions() { refuse("DELETE", S3Fake::error("403 Forbidden", "AccessDenied")); }
  static std::string refusal() { return "AccessDenied"; }
  void be_well() { server_.answer(nullptr); }
  void dribble(std::chrono::milliseconds pause) { server_.dribble(pause); }
  std::uint64_t questions() const { return server_.requests("HEAD"); }
  std::uint64_t writes() const { return server_.requests("PUT"); }

  Warnings warnings;

 private:
  void refuse(const std::string& method, const std::string& error) {
    server_.answer([=](const auto& request) -> std::optional<std::string> {
      if (request.method == method) return error;
      return std::nullopt;
    });
  }

  SystemClock clock_;
  S3Fake server_;
};
INSTANTIATE_TYPED_TEST_SUITE_P(S3, SharedStoreContract, S3Place);

using S3StoreTest = S3StoreFixture;

TEST_F(S3StoreTest, LargeValuesAreReadInPiecesAndLayersComeInOrder) {
  S3StoreOptions large = options();
  large.groups = {{.layers = 40, .layer_slice_bytes = 100'000}, kGroups[1]};
  const auto store = open(large);
  const std::vector<std::byte> block = test_bytes(7, {.layers = 40, .layer_slice_bytes = 100'000});
  for (const std::uint64_t seed : {1, 2, 3}) {
    std::promise<Status> done;
    store->write(0, {}, {.key = test_key(seed)}, block,
                 [&](Status status) { done.set_value(std::move(status)); });
    EXPECT_TRUE(done.get_future().get().ok());
  }
  const auto sink = read(*store, {1, 2, 3}, 0);  // (The sink checks the order.)
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(sink->wait()[i].bytes, block);
  EXPECT_EQ(server_.requests("GET"), 1u + 3 * 2) << "the probe, and two pieces of each value";
}

TEST_F(S3StoreTest, AValueOfAnotherLengthIsAbsentOrDamaged) {
  const auto store = open(options());
  for (const std::uint64_t seed : {1, 2}) ASSERT_TRUE(write(*store, seed, 0).ok());
  S3Fake::Objects objects = server_.objects();
  objects[path(1, 0)].bytes.resize(100);
  objects[path(2, 0)].bytes.clear();
  server_.set_objects(objects);
  EXPECT_EQ(ask(*store, {1, 2}), (std::vector<std::uint8_t>{0, 0}));
  const auto sink = read(*store, {1, 2}, 0);
  for (std::size_t i = 0; i < 2; ++i) EXPECT_EQ(sink->wait()[i].status->code(), StatusCode::kDataLoss);
  await([&] { return server_.objects().empty(); });
}

TEST_F(S3StoreTest, AValueHasItsTimeToLive) {
  const auto store = open(options());  // 1,000 s
  for (const std::uint64_t seed : {1, 2, 3, 4}) ASSERT_TRUE(write(*store, seed, 0).ok());
  set_age(1, 0, 400);
  set_age(2, 0, 600);
  set_age(3, 0, 1000);
  set_age(4, 0, 600);
  EXPECT_EQ(ask(*store, {1, 2, 3}), (std::vector<std::uint8_t>{1, 1, 0}));
  const auto sink = read(*store, {1, 2, 3}, 0);
  EXPECT_TRUE(sink->wait()[0].status->ok());
  EXPECT_TRUE(sink->wait()[1].status->ok());
  EXPECT_EQ(sink->wait()[2].status->code(), StatusCode::kNotFound);
  // What was used and is older than half its time begins anew, and nothing else does.
  await([&] { return server_.objects().at(path(2, 0)).age == 0; });
  EXPECT_EQ(server_.objects().at(path(1, 0)).age, 400);
  EXPECT_EQ(read(*store, {2}, 0)->wait()[0].bytes, bytes_of(2, 0)) << "a copy onto itself is the same";
  // So does what is to be written and is there.
  for (const std::uint64_t seed : {1, 3, 4}) ASSERT_TRUE(write(*store, seed, 0).ok());
  EXPECT_EQ(server_.objects().at(path(1, 0)).age, 400);
  EXPECT_EQ(server_.objects().at(path(3, 0)).age, 0);
  EXPECT_EQ(server_.objects().at(path(4, 0)).age, 0);
  EXPECT_EQ(store->stats().parts_present_total, 1u);
  S3StoreOptions for_ever = options();
  for_ever.time_to_live = 0;
  set_age(3, 0, 1'000'000'000);
  EXPECT_EQ(ask(*open(for_ever), {3}), std::vector<std::uint8_t>{1});
}

TEST_F(S3StoreTest, AStoreThatAsksForPatienceIsTriedAgain) {
  const auto store = open(options());
  const auto refusals = std::make_shared<std::atomic<int>>(2);
  answer_objects([refusals](const auto&) -> std::optional<std::string> {
    if (refusals->fetch_sub(1) > 0) return S3Fake::error("503 Slow Down", "SlowDown");
    return std::nullopt;
  });
  EXPECT_TRUE(write(*store, 1, 0).ok());
  EXPECT_EQ(server_.requests("HEAD"), 3u);
  *refusals = 2;
  EXPECT_EQ(read(*store, {1}, 0)->wait()[0].bytes, bytes_of(1, 0));
  EXPECT_EQ(store->stats().failures_total, 0u);
  // With a limit: three tries of a read.
  *refusals = 1000;
  EXPECT_EQ(read(*store, {1}, 0)->wait()[0].status->code(), StatusCode::kUnavailable);
  EXPECT_EQ(*refusals, 1000 - 3);
  server_.answer(nullptr);
}

TEST_F(S3StoreTest, AStoreThatAsksOnlyWritersForPatienceIsRead) {
  const auto store = open(options());
  ASSERT_TRUE(write(*store, 1, 0).ok());
  answer_objects([](const auto& request) -> std::optional<std::string> {
    if (request.method == "HEAD") return S3Fake::error("503 Slow Down", "SlowDown");
    return std::nullopt;
  });
  for (int i = 2; i < 6; ++i) EXPECT_EQ(write(*store, i, 0).code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(store->stats().parts_refused_total, 4u);
  EXPECT_EQ(store->stats().failures_total, 0u);
  EXPECT_EQ(read(*store, {1}, 0)->wait()[0].bytes, bytes_of(1, 0));
  server_.answer(nullptr);
}

TEST_F(S3StoreTest, AReadGoesOnWhereItsConnectionBroke) {
  const auto store = open(options());
  ASSERT_TRUE(write(*store, 1, 0).ok());
  const std::string whole = server_.objects().at(path(1, 0)).bytes;
  const auto cuts = std::make_shared<std::atomic<int>>(2);
  const auto goes_on = std::make_shared<std::atomic<bool>>(false);
  answer_objects([this, whole, cuts, goes_on](const auto& request) -> std::optional<std::string> {
    if (request.method != "GET" || cuts->fetch_sub(1) <= 0) return std::nullopt;
    std::size_t first = 0;
    EXPECT_EQ(std::sscanf(request.header.at("range").c_str(), "bytes=%zu-", &first), 1);
    *goes_on = *goes_on || first == 70'000;
    server_.hang_up(1);
    return fmt::format(
        "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\n"
        "Content-Range: bytes {}-{}/{}\r\n\r\n{}",
        whole.size() - first, first, whole.size() - 1, whole.size(), whole.substr(first, 70'000));
  });
  EXPECT_EQ(read(*store, {1}, 0)->wait()[0].bytes, bytes_of(1, 0));
  EXPECT_TRUE(*goes_on);
  EXPECT_EQ(server_.requests("GET"), 1u + 3) << "the probe, two that were cut, and the rest";
  EXPECT_EQ(store->stats().failures_total, 0u);
  server_.answer(nullptr);
}

TEST_F(S3StoreTest, AFullStoreRefusesAndStays) {
  const auto store = open(options());
  for (const char* const status :
       {"507 Insufficient Storage", "403 Forbidden", "500 Internal Server Error"}) {
    answer_objects([=](const auto& request) -> std::optional<std::string> {
      if (request.method == "PUT") return S3Fake::error(status, "QuotaExceeded");
      return std::nullopt;
    });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(write(*store, i, 0).code(), StatusCode::kResourceExhausted);
  }
  EXPECT_EQ(store->stats().parts_refused_total, 9u);
  EXPECT_EQ(store->stats().failures_total, 0u);
  EXPECT_TRUE(store->stats().up);
  // SeaweedFS looks for room for longer than anybody waits.
  S3StoreOptions brief = options();
  brief.transfer_limit = kNanosPerSecond / 2;
  const auto other = open(brief);
  await([&] { return other->stats().up; });
  answer_objects([=](const auto& request) -> std::optional<std::string> {
    if (request.method == "PUT") return "";
    return std::nullopt;
  });
  for (int i = 0; i < 4; ++i) EXPECT_EQ(write(*other, i, 0).code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(other->stats().failures_total, 0u);
  EXPECT_TRUE(other->stats().up);
}

TEST_F(S3StoreTest, GarbageIsNeverServed) {
  const std::string body(1 << 20, 'x');
  const std::vector<std::string> garbage = {
      "-ERR unknown command 'GET'\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "HTTP/1.1 200 OK\r\n\r\n" + body,
      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
      "HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\n\r\n" + body.substr(0, 100),
      "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 7-106/300084\r\nContent-Length: 100\r\n\r\n" +
          body.substr(0, 100),
      S3Fake::reply("206 Partial Content", "Content-Range: bytes 0-1048575/300084\r\n", body),
      S3Fake::reply("200 OK", "", body.substr(0, 300'084)),
      S3Fake::reply("404 Not Found", "", body),
      S3Fake::error("400 Bad Request", "Nonsense"),
      S3Fake::error("301 Moved", "PermanentRedirect"),
      "HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n",
      "HTTP/1.1 204 No Content\r\n\r\n",
      std::string(4, '\0')};
  for (const std::string& text : garbage) {
    ASSERT_TRUE(write(*open(options()), 1, 0).ok());
    const auto store = open(hasty());
    answer_objects([text](const auto&) -> std::optional<std::string> { return text; });
    const std::vector<std::uint8_t> said = ask(*store, {1}, kNanosPerSecond / 5);
    // (One says that it is as long as it should be; reading it tells.)
    if (!text.starts_with("HTTP/1.1 200 OK\r\nContent-Length: 300084")) {
      EXPECT_EQ(said, std::vector<std::uint8_t>{0}) << text.substr(0, 60);
    }
    const auto sink = read(*store, {1, 2, 3}, 0);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_FALSE(sink->wait()[i].status->ok()) << text.substr(0, 60);
      EXPECT_EQ(sink->wait()[i].layers, 0u);
    }
    server_.answer(nullptr);
  }
}

TEST_F(S3StoreTest, WhyItIsStillNotAskedIsToldWhenItChanges) {
  AdvancedClock clock;
  const auto store = open_s3_store(options(), clock).value();
  server_.answer([](const auto&) { return S3Fake::error("500 Internal Server Error", "InternalError"); });
  await([&] {
    (void)ask(*store, {1});
    return !store->stats().up;
  });
  server_.answer([](const auto&) { return S3Fake::error("403 Forbidden", "ExpiredToken"); });
  const std::string token = "is still not asked: the store refuses the session's token";
  await([&] {
    clock.advance(kNanosPerSecond);
    return warnings_.count(token) > 0;
  });
  server_.answer([](const auto&) { return S3Fake::error("301 Moved", "PermanentRedirect"); });
  await([&] {
    clock.advance(kNanosPerSecond);
    return warnings_.count("found it in eu-west-7") > 0;
  });
  const std::uint64_t probes = server_.requests("GET");
  await([&] {
    clock.advance(kNanosPerSecond);
    return server_.requests("GET") >= probes + 3;
  });
  EXPECT_EQ(warnings_.count("is still not asked"), 2) << warnings_.all();
  server_.answer(nullptr);
  await([&] {
    clock.advance(kNanosPerSecond);
    return store->stats().up;
  });
}

TEST_F(S3StoreTest, NobodyWaitsForCredentialsThatDoNotCome) {
  AdvancedClock clock;
  const auto calls = std::make_shared<std::atomic<int>>(0);
  std::promise<void> readable;
  S3StoreOptions options = this->options();
  options.credentials = [calls, mine = credentials_,
                         may_end = readable.get_future().share()]() -> Result<S3Credentials> {
    if (calls->fetch_add(1) > 0) may_end.wait();
    return mine;
  };
  const auto store = open_s3_store(options, clock).value();
  server_.answer([](const auto&) { return S3Fake::error("500 Internal Server Error", "InternalError"); });
  await([&] {
    (void)ask(*store, {1});
    return !store->stats().up;
  });
  server_.answer(nullptr);
  await([&] {
    EXPECT_EQ(ask(*store, {1}), std::vector<std::uint8_t>{0});
    clock.advance(kNanosPerSecond);
    return *calls > 1;
  });
  clock.advance(kPatient);
  await([&] { return store->stats().up; });  // with those that it had
  EXPECT_TRUE(write(*store, 1, 0).ok());
  readable.set_value();
}

TEST_F(S3StoreTest, WhatAnOperatorHasToMendEndsTheStart) {
  S3StoreOptions wrong = options();
  wrong.credentials = []() -> Result<S3Credentials> {
    return S3Credentials{.key_id = S3Fake::kKeyId, .secret = "other", .token = {}};
  };
  EXPECT_NE(start(wrong).message().find("the store refuses the key's secret"), std::string::npos);
  wrong.credentials = []() -> Result<S3Credentials> {
    return S3Credentials{.key_id = "nobody", .secret = S3Fake::kSecret, .token = {}};
  };
  EXPECT_NE(start(wrong).message().find("the store does not know the key's id"), std::string::npos);
  wrong.credentials = []() -> Result<S3Credentials> { return invalid_argument("none"); };
  EXPECT_EQ(start(wrong).message(), "none");
  wrong = options();
  wrong.address.bucket = "another";
  EXPECT_NE(start(wrong).message().find("found no such bucket"), std::string::npos);
  const std::vector<std::pair<std::string, std::string>> said = {
      {S3Fake::error("403 Forbidden", "AccessDenied"), "s3:ListBucket"},
      {S3Fake::error("403 Forbidden", "RequestTimeTooSkewed"), "set the clock"},
      {S3Fake::error("400 Bad Request", "ExpiredToken"), "the session's token"},
      {S3Fake::error("400 Bad Request", "AuthorizationHeaderMalformed"), "found it in eu-west-7"},
      {S3Fake::reply("301 Moved Permanently", "x-amz-bucket-region: us-west-2\r\n", ""),
       "expected the bucket bucket in the region eu-north-1, found it in us-west-2"},
      {S3Fake::reply("404 Not Found", "", "<html>nothing</html>"),
       "found another one: the store answers 404"},
      {"-ERR unknown command\r\n", "expected a server that speaks S3's protocol, found another one"}};
  for (const auto& [reply, expected] : said) {
    server_.answer([text = reply](const auto&) { return text; });
    const Status status = start(options());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << expected;
    EXPECT_NE(status.message().find(expected), std::string::npos) << status.message();
  }
  server_.answer([](const auto&) { return S3Fake::error("503 Slow Down", "SlowDown"); });
  EXPECT_TRUE(start(options()).ok()) << "it may be well later";
  server_.answer(nullptr);
}

TEST_F(S3StoreTest, CredentialsMayBeReplaced) {
  credentials_.token = "one";
  server_.expect_token("one");
  Mutex mutex;
  S3Credentials current = credentials_;
  S3StoreOptions session = options();
  session.credentials = [&]() -> Result<S3Credentials> {
    const MutexLock lock(mutex);
    return current;
  };
  const auto store = open(session);
  EXPECT_TRUE(write(*store, 1, 0).ok()) << "a session's token is sent and signed";
  server_.expect_token("two");
  await([&] {
    (void)ask(*store, {1});
    return !store->stats().up;
  });
  {
    const MutexLock lock(mutex);
    current.token = "two";
  }
  await([&] { return store->stats().up; });
  await([&] { return read(*store, {1}, 0)->wait()[0].status->ok(); });
  EXPECT_TRUE(write(*store, 2, 0).ok());
}

}  // namespace
}  // namespace loci
