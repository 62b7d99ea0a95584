// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/workers/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <latch>
#include <stdexcept>
#include <string>

namespace loci {
namespace {

namespace asio = boost::asio;

// The tenants of all jobs in the order in which they are taken; each takes its tenant's time.
std::string order(FairJobs& jobs, const std::map<std::string, Nanos>& took) {
  std::string out;
  while (const auto next = jobs.take()) {
    out += next->tenant;
    jobs.ended(next->tenant, took.at(next->tenant));
  }
  return out;
}

TEST(FairJobs, TakesTurnsInTimeNotInJobs) {
  FairJobs jobs(1);
  for (int i = 0; i < 4; ++i) jobs.add("a", [] {});
  for (int i = 0; i < 12; ++i) jobs.add("b", [] {});
  EXPECT_EQ(order(jobs, {{"a", 40}, {"b", 10}}), "abbbbabbbbabbbba");
  EXPECT_EQ(jobs.waiting(), 0u);
}

TEST(FairJobs, WhoComesIsNotBehindAFlood) {
  FairJobs jobs(1);
  for (int i = 0; i < 50; ++i) jobs.add("a", [] {});
  for (int i = 0; i < 20; ++i) {
    const auto next = jobs.take();
    jobs.ended(next->tenant, 1'000);
  }
  jobs.add("b", [] {});
  EXPECT_EQ(jobs.take()->tenant, "b");
}

// Who was away for long has no credit to hold others up with.
TEST(FairJobs, NobodyCatchesUp) {
  FairJobs jobs(1);
  jobs.add("b", [] {});
  EXPECT_EQ(order(jobs, {{"b", 10}}), "b");
  for (int i = 0; i < 100; ++i) jobs.add("a", [] {});
  for (int i = 0; i < 90; ++i) {
    const auto next = jobs.take();
    jobs.ended(next->tenant, 10);
  }
  for (int i = 0; i < 10; ++i) jobs.add("b", [] {});
  const std::string rest = order(jobs, {{"a", 10}, {"b", 10}});
  EXPECT_LE(rest.find('a'), 2u) << rest;
}

TEST(FairJobs, ATenantRunsNoMoreThanItMay) {
  FairJobs jobs(2);
  for (int i = 0; i < 5; ++i) jobs.add("a", [] {});
  EXPECT_EQ(jobs.take()->tenant, "a");
  EXPECT_EQ(jobs.take()->tenant, "a");
  EXPECT_FALSE(jobs.take().has_value());
  jobs.add("b", [] {});
  EXPECT_EQ(jobs.take()->tenant, "b");
  jobs.ended("a", 5);
  EXPECT_EQ(jobs.take()->tenant, "a");
  EXPECT_EQ(jobs.waiting(), 2u);
}

TEST(WorkerPool, GivesValuesAndExceptionsBack) {
  asio::io_context io;
  WorkerPool pool(2);
  int value = 0;
  std::string failed;
  const auto both = [&]() -> asio::awaitable<void> {
    const auto good = [] { return 7; };
    value = co_await pool.run("a", good);
    const auto bad = []() -> int { throw std::runtime_error("no"); };
    try {
      value = co_await pool.run("a", bad);
    } catch (const std::exception& error) {
      failed = error.what();
    }
  };
  asio::co_spawn(io, both, asio::detached);
  io.run();
  EXPECT_EQ(value, 7);
  EXPECT_EQ(failed, "no");
}

// A tenant with long jobs on as many threads as it can have leaves one for another's.
TEST(WorkerPool, OneTenantNeverHasAllThreads) {
  asio::io_context io;
  WorkerPool pool(3);
  std::latch go(1);
  std::atomic<int> running = 0, most = 0, ended = 0;
  bool other_ran = false;
  const auto slow = [&]() -> asio::awaitable<void> {
    const auto job = [&] {
      const int now = ++running;
      for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
      }
      go.wait();
      --running;
      return 0;
    };
    co_await pool.run("flood", job);
    ++ended;
  };
  const auto other = [&]() -> asio::awaitable<void> {
    const auto job = [] { return 1; };
    co_await pool.run("other", job);
    other_ran = true;
    go.count_down();
  };
  for (int i = 0; i < 20; ++i) asio::co_spawn(io, slow, asio::detached);
  asio::co_spawn(io, other, asio::detached);
  io.run_for(std::chrono::seconds(20));
  EXPECT_TRUE(other_ran) << "all threads were the flood's";
  if (!other_ran) go.count_down();
  EXPECT_EQ(ended, 20);
  EXPECT_LE(most, 2);
}

}  // namespace
}  // namespace loci
