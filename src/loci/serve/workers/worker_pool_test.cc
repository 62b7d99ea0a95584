// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/workers/worker_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <ctime>
#include <functional>
#include <latch>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/base/random.h"

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
  EXPECT_EQ(jobs.waiting_of("a"), 2u);
  EXPECT_EQ(jobs.waiting_of("b") + jobs.waiting_of("nobody"), 0u);
}

// The same decisions, each by a look at all tenants.
class NaiveJobs {
 public:
  explicit NaiveJobs(unsigned running_max) : running_max_(running_max) {}

  void add(const std::string& name) {
    Tenant& tenant = tenants_[name];
    if (tenant.jobs == 0 && tenant.running == 0) tenant.used = std::max(tenant.used, floor_);
    ++tenant.jobs;
  }
  std::string take() {
    auto least = tenants_.end();
    for (auto one = tenants_.begin(); one != tenants_.end(); ++one) {
      if (one->second.jobs == 0 || one->second.running >= running_max_) continue;
      if (least == tenants_.end() || one->second.used < least->second.used) least = one;
    }
    if (least == tenants_.end()) return {};
    --least->second.jobs;
    ++least->second.running;
    floor_ = std::max(floor_, least->second.used);
    return least->first;
  }
  void ended(const std::string& name, Nanos took) {
    --tenants_[name].running;
    tenants_[name].used += took;
  }
  // Whom it has to remember: who is idle and has used no more than the floor begins as a new one does.
  std::size_t known() const {
    return static_cast<std::size_t>(std::ranges::count_if(tenants_, [this](const auto& one) {
      return one.second.jobs > 0 || one.second.running > 0 || one.second.used > floor_;
    }));
  }

 private:
  struct Tenant {
    int jobs = 0;
    unsigned running = 0;
    Nanos used = 0;
  };
  const unsigned running_max_;
  std::map<std::string, Tenant> tenants_;
  Nanos floor_ = 0;
};

TEST(FairJobs, DecidesAsALookAtAllTenantsWould) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Random random(seed);
    const auto running_max = static_cast<unsigned>(1 + random.below(3));
    const std::uint64_t tenants = 1 + random.below(20), add_percent = 20 + random.below(40);
    FairJobs jobs(running_max);
    NaiveJobs naive(running_max);
    std::vector<std::string> running;
    for (int step = 0; step < 500; ++step) {
      const std::uint64_t what = random.below(100);
      if (what < add_percent) {
        const std::string name = "t" + std::to_string(random.below(tenants));
        jobs.add(name, [] {});
        naive.add(name);
      } else if (what < 80) {
        const auto next = jobs.take();
        ASSERT_EQ(next ? next->tenant : "", naive.take()) << "seed " << seed << " step " << step;
        if (next) running.push_back(next->tenant);
        ASSERT_EQ(jobs.tenants(), naive.known()) << "seed " << seed << " step " << step;
      } else if (!running.empty()) {
        const std::size_t at = random.below(running.size());
        const auto took = static_cast<Nanos>(random.below(4));  // ties are frequent
        jobs.ended(running[at], took);
        naive.ended(running[at], took);
        running.erase(running.begin() + static_cast<std::ptrdiff_t>(at));
      }
      jobs.check_invariants();
    }
  }
}

// Of a processor: what others do meanwhile does not count.
double thread_nanos() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e9 + static_cast<double>(used.tv_nsec);
}

// The network thread waits for who takes a job.
TEST(FairJobs, ManyTenantsCostNoMoreThanTheirLogarithm) {
  const auto nanos_of_a_job = [](int tenants) {
    FairJobs jobs(2);
    for (int i = 0; i < tenants; ++i) jobs.add("tenant " + std::to_string(i), [] {});
    const double begin = thread_nanos();
    constexpr int kJobs = 2'000;
    for (int i = 0; i < kJobs; ++i) {
      const auto next = jobs.take();
      jobs.ended(next->tenant, 1'000 + i);
      jobs.add(next->tenant, [] {});
    }
    return (thread_nanos() - begin) / kJobs;
  };
  const double few = nanos_of_a_job(10);
  const double many = nanos_of_a_job(10'000);
  RecordProperty("nanos_of_ten", std::to_string(few));
  RecordProperty("nanos_of_ten_thousand", std::to_string(many));
  EXPECT_LT(many, 40 * few + 5'000);
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
  io.run_for(std::chrono::seconds(120));
  EXPECT_TRUE(other_ran) << "all threads were the flood's";
  if (!other_ran) go.count_down();
  EXPECT_EQ(ended, 20);
  EXPECT_LE(most, 2);
}

// Jobs that end when the test lets them, in a pool whose waits are bounded.
class HeldJobs {
 public:
  explicit HeldJobs(const WorkerWaits& waits) : pool_(2, waits) {}
  ~HeldJobs() { let_go(); }
  void begin(const std::string& tenant, AtStandstill at_standstill = AtStandstill::kRefuse,
             std::shared_ptr<WorkerLeave> leave = nullptr) {
    asio::co_spawn(
        io_,
        [this, tenant, at_standstill, leave]() -> asio::awaitable<void> {
          const auto job = [this] {
            ++begun_;
            go_.wait();
            return Status();
          };
          const Status status = co_await pool_.run(tenant, job, at_standstill, leave);
          ++(status.ok() ? done_ : refused_);
        },
        asio::detached);
  }
  // All that can go on has gone on then, however late this thread is.
  void run_for(std::chrono::milliseconds time) {
    io_.restart();
    io_.run_for(time);
    io_.restart();
    io_.poll();
  }
  // True once condition() is; false if it is not for long.
  bool run_until(const std::function<bool()>& condition) {
    for (int i = 0; i < 12'000 && !condition(); ++i) run_for(std::chrono::milliseconds(5));
    return condition();
  }
  bool run_until_begun(int count) {
    return run_until([&] { return begun() == count; });
  }
  bool run_until_done(int count) {
    return run_until([&] { return done() == count; });
  }
  bool run_until_refused(int count) {
    return run_until([&] { return refused() == count; });
  }
  void let_go() {
    if (!go_.try_wait()) go_.count_down();
  }
  int begun() const { return begun_; }
  int done() const { return done_; }
  int refused() const { return refused_; }

 private:
  asio::io_context io_;
  std::latch go_{1};
  std::atomic<int> begun_ = 0;
  int done_ = 0, refused_ = 0;
  WorkerPool pool_;
};

TEST(WorkerPool, WhoWaitsTooLongIsRefusedAndWhatHasBegunIsWaitedFor) {
  HeldJobs jobs({.wait_max = kNanosPerSecond});
  jobs.begin("a");
  jobs.begin("b");
  ASSERT_TRUE(jobs.run_until_begun(2));
  for (int i = 0; i < 5; ++i) jobs.begin("a");
  EXPECT_TRUE(jobs.run_until_refused(5));
  EXPECT_EQ(jobs.done(), 0);
  jobs.let_go();
  EXPECT_TRUE(jobs.run_until_done(2));
  EXPECT_EQ(jobs.begun(), 2) << "what was refused is not done";
}

// Nobody wants the result any more: who waits for a thread goes on, and what has begun is waited for.
TEST(WorkerPool, WhoLeavesWaitsForNoThread) {
  HeldJobs jobs(WorkerWaits{});
  const auto first = std::make_shared<WorkerLeave>(), later = std::make_shared<WorkerLeave>();
  jobs.begin("a", AtStandstill::kRefuse, first);
  jobs.begin("b");
  ASSERT_TRUE(jobs.run_until_begun(2));
  jobs.begin("a", AtStandstill::kRefuse, later);
  jobs.run_for(std::chrono::milliseconds(50));
  EXPECT_EQ(jobs.refused(), 0);
  for (const auto& leave : {first, later}) leave->leave();
  EXPECT_TRUE(jobs.run_until_refused(1));
  jobs.begin("a", AtStandstill::kRefuse, later);
  EXPECT_TRUE(jobs.run_until_refused(2)) << "who has left begins nothing";
  jobs.let_go();
  EXPECT_TRUE(jobs.run_until_done(2));
  EXPECT_EQ(jobs.begun(), 2);
}

TEST(WorkerPool, WhereNothingGetsOnFewWait) {
  const WorkerWaits waits{.waiting_max = 10, .still_after = kNanosPerSecond};
  constexpr std::chrono::milliseconds kLonger(1'100);
  std::optional<HeldJobs> held;
  // A machine that stands still for a second is one where nothing gets on: then others come.
  EXPECT_TRUE(in_one_try(10, [&] {
    if (held) {
      held->let_go();
      held->run_until([&] { return held->done() + held->refused() == 50; });
    }
    held.emplace(waits);
    for (int i = 0; i < 50; ++i) held->begin("a");
    held->run_for(std::chrono::milliseconds(100));
    return held->refused() == 0;
  })) << "many at once are no reason";
  HeldJobs& jobs = *held;
  jobs.run_for(kLonger);
  for (int i = 0; i < 50; ++i) jobs.begin("a");
  EXPECT_TRUE(jobs.run_until_refused(50));
  for (int i = 0; i < 10; ++i) jobs.begin("a", AtStandstill::kWait);
  jobs.begin("b");
  EXPECT_TRUE(jobs.run_until_begun(2)) << "a thread is left for others";
  for (int i = 0; i < 5; ++i) jobs.begin("b");
  jobs.run_for(std::chrono::milliseconds(100));
  EXPECT_EQ(jobs.refused(), 50) << "few of b's wait, however many of a's do";
  for (int i = 0; i < 50; ++i) jobs.begin("b");
  EXPECT_TRUE(jobs.run_until_refused(95)) << "ten of b's wait";
  jobs.let_go();
  EXPECT_TRUE(jobs.run_until_done(71));
  for (int i = 0; i < 29; ++i) jobs.begin("b");
  EXPECT_TRUE(jobs.run_until_done(100)) << "it gets on again";
  // After a pause, too, in which nobody came.
  std::this_thread::sleep_for(kLonger);
  for (int i = 0; i < 50; ++i) jobs.begin("b");
  EXPECT_TRUE(jobs.run_until_done(150));
}

TEST(WorkerPool, ARefusalIsWhatTheJobWouldHaveReturned) {
  const WorkerWaits waits{.waiting_max = 0, .still_after = -1, .refused = {StatusCode::kUnavailable, "away"}};
  asio::io_context io;
  WorkerPool pool(2, waits);
  const auto all = [&]() -> asio::awaitable<void> {
    const auto result = [] { return Result<int>(7); };
    const Result<int> number = co_await pool.run("a", result);
    EXPECT_EQ(number.status().message(), "away");
    const auto answer = [] { return std::variant<std::string, ApiError>("good"); };
    const std::variant<std::string, ApiError> said = co_await pool.run("a", answer);
    const ApiError* error = std::get_if<ApiError>(&said);
    if (error == nullptr) {
      ADD_FAILURE() << "it ran";
      co_return;
    }
    EXPECT_EQ(error->http_status, 503);
    EXPECT_EQ(error->retry_after_seconds, 1u);
  };
  asio::co_spawn(io, all, asio::detached);
  io.run();
}

}  // namespace
}  // namespace loci
