// SPDX-License-Identifier: Apache-2.0
// PostgreSQL servers that go away, come back, or stand still.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/serve/store/postgres_store_testing.h"

namespace loci {
namespace {

TEST_F(PostgresStoreTest, ItWorksAgainWhenTheServerIsBack) {
  const auto store = open({.lock_timeout = 200 * kNanosPerMilli});
  ASSERT_TRUE(store->commit_turn("ann", test_turn("r0")).ok());
  server_->kill();
  const Status gone = store->commit_turn("ann", test_turn("r1"));
  EXPECT_EQ(gone.code(), StatusCode::kUnavailable) << gone.to_string();
  EXPECT_EQ(store->response("ann", "r0").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(PostgresStore::open(url_, {}).status().code(), StatusCode::kUnavailable);
  server_->start();
  EXPECT_TRUE(store->commit_turn("ann", test_turn("r2")).ok());
  EXPECT_TRUE(store->response("ann", "r0").ok());
  // A connection that was lost while nobody used it is made again unnoticed.
  server_->kill();
  server_->start();
  EXPECT_TRUE(store->commit_turn("ann", test_turn("r3")).ok());
}

// It is there, takes what is sent, and does nothing: no connection breaks.
TEST_F(PostgresStoreTest, AServerThatStandsStillHoldsNoCallForLong) {
  const auto store = open({.lock_timeout = 200 * kNanosPerMilli, .answer_timeout = 500 * kNanosPerMilli});
  int turns = 0;
  // A server that goes on may be slow, too, on a busy machine: then the next turn is committed.
  const auto commits = [&] {
    Status status;
    (void)in_one_try(100, [&] {
      status = store->commit_turn("ann", test_turn(fmt::format("r{}", turns++)));
      if (!status.ok()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return status.ok();
    });
    return status;
  };
  const Status first = commits();
  ASSERT_TRUE(first.ok()) << first.to_string();
  const std::string known = fmt::format("r{}", turns - 1);
  server_->pause();
  std::vector<std::thread> threads;
  std::atomic<int> refused = 0, unanswered = 0;
  for (int t = 0; t < 12; ++t) {  // more than there are connections
    threads.emplace_back([&] {
      const Status status = store->response("ann", known).status();
      refused += status.code() == StatusCode::kUnavailable;
      unanswered += status.message().find("has not answered for 500.0 ms") != std::string::npos;
    });
  }
  for (std::thread& thread : threads) thread.join();  // or the test never ends
  EXPECT_EQ(refused, 12);
  EXPECT_GT(unanswered, 0);
  EXPECT_EQ(store->commit_turn("ann", test_turn(fmt::format("r{}", turns++))).code(),
            StatusCode::kUnavailable);
  server_->go_on();
  const Status next = commits();
  EXPECT_TRUE(next.ok()) << next.to_string();
  EXPECT_TRUE(in_one_try(100, [&] { return store->response("ann", known).ok(); }));
}

// Where each call waited for itself, a few dozen requests would hold all threads that serve the store.
TEST_F(PostgresStoreTest, OneCallAtATimeAsksAServerThatStandsStill) {
  using Time = std::chrono::steady_clock;
  const auto store = open({.lock_timeout = 200 * kNanosPerMilli, .answer_timeout = 500 * kNanosPerMilli});
  ASSERT_TRUE(eventually([&] { return store->size_bytes().ok(); }));
  server_->pause();
  // Nobody has had an answer for a second when the first call is given up.
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  ASSERT_TRUE(eventually(
      [&] { return store->size_bytes().status().message().find("has not answered") != std::string::npos; }));
  std::atomic<int> refused = 0, slow = 0;
  const auto ask_at_once = [&] {
    refused = slow = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 20; ++t) {
      threads.emplace_back([&] {
        const auto begin = Time::now();
        const Status status = store->size_bytes().status();
        EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.to_string();
        refused += status.message().find("another request asks it just now") != std::string::npos;
        slow += Time::now() - begin > std::chrono::milliseconds(400);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  // On a busy machine some may begin only after the one that asks has given up: then all ask again.
  const auto most_are_refused = [&] {
    ask_at_once();
    return slow <= 5 && refused >= 15;
  };
  EXPECT_TRUE(in_one_try(10, most_are_refused)) << refused << " were refused at once, " << slow << " waited";
  const auto back = [&] { return store->size_bytes().ok(); };
  server_->go_on();
  EXPECT_TRUE(eventually(back));
  int turns = 0;  // (a busy server may be slow, too)
  EXPECT_TRUE(in_one_try(
      100, [&] { return store->commit_turn("ann", test_turn(fmt::format("r{}", turns++))).ok(); }));
}

TEST_F(PostgresStoreTest, AStopDoesNotWaitForAServerThatStandsStill) {
  int turns = 0;
  Status status;
  // On a busy machine the call may come only after the stop: then there is another one.
  EXPECT_TRUE(in_one_try(20, [&] {
    const auto store = open();  // its calls wait for half a minute
    const std::string turn = fmt::format("r{}", turns++);
    EXPECT_TRUE(store->commit_turn("ann", test_turn(turn)).ok());
    server_->pause();
    std::thread waiting([&] { status = store->response("ann", turn).status(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    store->abandon();
    waiting.join();
    EXPECT_EQ(store->commit_turn("ann", test_turn("late")).code(), StatusCode::kUnavailable);
    server_->go_on();
    return status.message().find("did not answer before this server stopped waiting") != std::string::npos;
  })) << status.to_string();
}

}  // namespace
}  // namespace loci
