// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tenants/tenant_limiter.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/random.h"

namespace loci {
namespace {

constexpr Nanos kMinute = 60 * kNanosPerSecond;

// The definition, in units of 1 / kMinute and a step of a nanosecond at a time would be too slow: so time
// moves in steps of a second, and all that happens falls on one.
class NaiveBucket {
 public:
  explicit NaiveBucket(std::int64_t limit) : limit_(limit), sixtieths_(limit * 60) {}
  void second() { sixtieths_ = std::min(sixtieths_ + limit_, limit_ * 60); }
  bool has(std::int64_t amount) const { return sixtieths_ >= amount * 60; }
  void add(std::int64_t amount) { sixtieths_ = std::min(sixtieths_ + amount * 60, limit_ * 60); }
  std::int64_t seconds_until(std::int64_t amount) const {
    NaiveBucket later = *this;
    std::int64_t seconds = 0;
    for (; !later.has(amount); ++seconds) later.second();
    return seconds;
  }

 private:
  std::int64_t limit_;
  std::int64_t sixtieths_;
};

TEST(RateBucket, IsTheNaiveOne) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Random random(seed);
    const auto limit = 1 + static_cast<std::uint32_t>(random.below(500));
    Nanos now = static_cast<Nanos>(random.below(1000)) * kNanosPerSecond;
    RateBucket bucket;
    bucket.set_limit(limit, now);
    NaiveBucket naive(limit);
    for (int i = 0; i < 300; ++i) {
      for (std::uint64_t seconds = random.below(10); seconds > 0; --seconds) {
        naive.second();
        now += kNanosPerSecond;
      }
      const auto amount = random.below(limit + 1);
      const Nanos wait = bucket.wait_for(amount, now);
      ASSERT_EQ(wait == 0, naive.has(static_cast<std::int64_t>(amount)));
      ASSERT_EQ((wait + kNanosPerSecond - 1) / kNanosPerSecond,
                naive.seconds_until(static_cast<std::int64_t>(amount)));
      if (random.below(3) == 0) {
        bucket.give_back(amount, now);
        naive.add(static_cast<std::int64_t>(amount));
      } else if (wait == 0 || random.below(8) == 0) {  // also more than there is
        bucket.take(amount, now);
        naive.add(-static_cast<std::int64_t>(amount));
      }
    }
  }
}

TEST(RateBucket, LetsNoMoreThroughThanItsRate) {
  RateBucket bucket;
  bucket.set_limit(7, 0);
  std::vector<Nanos> times;
  for (Nanos now = 0; now < 10 * kMinute; now += 123'456'789) {
    if (bucket.wait_for(1, now) > 0) continue;
    bucket.take(1, now);
    times.push_back(now);
  }
  EXPECT_EQ(times.size(), 7u + 7 * 10 - 1);  // a full bucket, and what flowed in
  for (std::size_t i = 0; i + 14 < times.size(); ++i) EXPECT_GE(times[i + 14] - times[i], kMinute);
}

TEST(RateBucket, ANewLimitKeepsWhatWasUsed) {
  RateBucket bucket;
  bucket.set_limit(100, 0);
  bucket.take(80, 0);
  bucket.set_limit(50, 0);
  EXPECT_EQ(bucket.available(0), -30);
  bucket.set_limit(200, 0);
  EXPECT_EQ(bucket.available(0), 120);
}

// A whole request at once.
std::optional<LimitReached> begin(TenantMeter& meter, const TenantLimits& limits, std::uint64_t prompt_tokens,
                                  std::uint64_t tokens, Nanos now) {
  if (auto reached = meter.begin(limits, now)) return reached;
  auto reached = meter.take_tokens(limits, prompt_tokens, tokens, now);
  if (reached) meter.end();
  return reached;
}

void end(TenantMeter& meter, std::uint64_t taken, std::uint64_t used, Nanos now) {
  meter.end();
  meter.settle(taken, used, now);
}

TEST(TenantMeter, RefusesByTheHeaderWhoHasNothingLeft) {
  TenantMeter meter;
  const TenantLimits limits{.requests_per_minute = 10, .tokens_per_minute = 60};
  EXPECT_FALSE(meter.begin(limits, 0));
  EXPECT_FALSE(meter.take_tokens(limits, 10, 60, 0));
  const auto reached = meter.begin(limits, 0);
  ASSERT_TRUE(reached);
  EXPECT_EQ(reached->kind, LimitReached::Kind::kTokens);
  EXPECT_EQ(reached->retry_after, kMinute / 60);
  // What turns out to ask for too much has been a request all the same: it was read.
  EXPECT_FALSE(meter.begin(limits, kMinute / 2));
  EXPECT_TRUE(meter.take_tokens(limits, 10, 60, kMinute / 2));
  EXPECT_EQ(meter.state(limits, kMinute / 2).requests->remaining, 9u);
}

TEST(TenantMeter, GoesOnFromWhatAnotherOneCounted) {
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    Random random(seed);
    const TenantLimits limits{.requests_per_minute = 1 + static_cast<std::uint32_t>(random.below(50)),
                              .tokens_per_minute = 1 + static_cast<std::uint32_t>(random.below(5'000))};
    TenantMeter whole, parted;
    Nanos now = 1'000 * kNanosPerMilli;
    for (int i = 0; i < 300; ++i) {
      now += static_cast<Nanos>(random.below(2'000)) * kNanosPerMilli;
      parted = TenantMeter(limits, parted.use(now), now);
      const std::uint64_t tokens = 1 + random.below(*limits.tokens_per_minute);
      const bool was_refused = begin(whole, limits, tokens - 1, tokens, now).has_value();
      ASSERT_EQ(begin(parted, limits, tokens - 1, tokens, now).has_value(), was_refused);
      if (!was_refused && random.below(2) == 0) {
        const std::uint64_t used = random.below(2 * tokens);
        end(whole, tokens, used, now);
        end(parted, tokens, used, now);
      }
      ASSERT_EQ(parted.use(now), whole.use(now));
    }
  }
}

TEST(TenantMeter, ATimeThatIsStillToComeIsNow) {
  const TenantLimits limits{.requests_per_minute = 60};
  TenantMeter meter(limits, {.requests_missing = 60 * 60'000, .at = 1'000 * kMinute}, kMinute);
  EXPECT_EQ(meter.state(limits, kMinute).requests->remaining, 0u);
  EXPECT_EQ(meter.state(limits, kMinute + kNanosPerSecond).requests->remaining, 1u);
}

TEST(TenantMeter, LimitsRequests) {
  TenantMeter meter;
  const TenantLimits limits{.requests_per_minute = 2};
  EXPECT_FALSE(begin(meter, limits, 1, 1, 0));
  EXPECT_FALSE(begin(meter, limits, 1, 1, 0));
  const auto reached = begin(meter, limits, 1, 1, 0);
  ASSERT_TRUE(reached);
  EXPECT_EQ(reached->kind, LimitReached::Kind::kRequests);
  EXPECT_EQ(reached->retry_after, kMinute / 2);
  EXPECT_TRUE(begin(meter, limits, 1, 1, kMinute / 2 - 1));
  EXPECT_FALSE(begin(meter, limits, 1, 1, kMinute / 2));
}

TEST(TenantMeter, TakesTokensForAllThatMayComeAndSettles) {
  TenantMeter meter;
  const TenantLimits limits{.tokens_per_minute = 1000};
  EXPECT_FALSE(begin(meter, limits, 100, 800, 0));
  EXPECT_EQ(meter.state(limits, 0).tokens->remaining, 200u);
  const auto reached = begin(meter, limits, 100, 800, 0);
  ASSERT_TRUE(reached);
  EXPECT_EQ(reached->kind, LimitReached::Kind::kTokens);
  EXPECT_EQ(reached->retry_after, kMinute * 6 / 10);
  end(meter, 800, 150, 0);
  EXPECT_EQ(meter.state(limits, 0).tokens->remaining, 850u);
  EXPECT_FALSE(begin(meter, limits, 100, 800, 0));
  end(meter, 800, 2000, 0);  // more than was taken: a debt
  EXPECT_EQ(meter.state(limits, 0).tokens->remaining, 0u);
  EXPECT_EQ(meter.state(limits, 0).tokens->reset, kMinute * 215 / 100);
}

TEST(TenantMeter, LetsLongRepliesBeAskedFor) {
  TenantMeter meter;
  const TenantLimits limits{.tokens_per_minute = 1000};
  EXPECT_EQ(TenantMeter::tokens_taken(limits, 100'000), 1000u);
  EXPECT_FALSE(begin(meter, limits, 10, 100'000, 0));
  EXPECT_EQ(meter.state(limits, 0).tokens->remaining, 0u);
  end(meter, 1000, 20, 0);
  const auto too_large = begin(meter, limits, 1000, 1001, 0);
  ASSERT_TRUE(too_large);
  EXPECT_EQ(too_large->kind, LimitReached::Kind::kTooLarge);
}

TEST(TenantMeter, LimitsWhatRunsAtOnceAndForgetsLimitsThatAreGone) {
  TenantMeter meter;
  TenantLimits limits{.concurrent_requests = 1};
  EXPECT_FALSE(begin(meter, limits, 1, 1, 0));
  EXPECT_EQ(begin(meter, limits, 1, 1, 0)->kind, LimitReached::Kind::kConcurrent);
  limits.concurrent_requests.reset();
  EXPECT_FALSE(begin(meter, limits, 1, 1, 0));
  end(meter, 1, 1, 0);
  end(meter, 1, 1, 0);
  EXPECT_EQ(meter.running(), 0u);
  EXPECT_FALSE(meter.state(limits, 0).requests);
}

// What the coroutine returns.
template <class T>
T result_of(boost::asio::awaitable<T> work) {
  std::optional<T> result;
  boost::asio::io_context io;
  boost::asio::co_spawn(
      io, [&]() -> boost::asio::awaitable<void> { result.emplace(co_await std::move(work)); },
      boost::asio::detached);
  io.run();
  return *std::move(result);
}

TenantLimiter::Admission admit(TenantLimiter& limiter, const Tenant& tenant, std::uint64_t prompt_tokens,
                               std::uint64_t tokens,
                               TenantLimiter::Origin origin = TenantLimiter::Origin::kClient) {
  TenantLimiter::Admission admission = result_of(limiter.begin(tenant, origin));
  auto* ticket = std::get_if<TenantTicket>(&admission.result);
  if (ticket == nullptr) return admission;
  TenantLimiter::Refusal refusal = result_of(limiter.take_tokens(*ticket, tenant, prompt_tokens, tokens));
  admission.headers = std::move(refusal.headers);
  if (refusal.error) admission.result = std::move(*refusal.error);
  return admission;
}

bool is_admitted(const TenantLimiter::Admission& admission) {
  return std::holds_alternative<TenantTicket>(admission.result);
}

class ManualClock final : public Clock {
 public:
  Nanos now() const override { return time; }
  Nanos time = 0;
};

TEST(TenantLimiter, HoldsATicketUntilItIsDropped) {
  const ManualClock clock;
  TenantLimiter limiter(clock);
  const Tenant a{.id = "a", .limits = {.tokens_per_minute = 100, .concurrent_requests = 1}};
  const Tenant b{.id = "b", .limits = a.limits};
  auto first = admit(limiter, a, 10, 60);
  ASSERT_TRUE(std::holds_alternative<TenantTicket>(first.result));
  const auto second = admit(limiter, a, 10, 60);
  const ApiError& error = std::get<ApiError>(second.result);
  EXPECT_EQ(error.http_status, 429);
  EXPECT_EQ(error.code, "rate_limit_exceeded");
  EXPECT_EQ(error.retry_after_seconds, 1u);
  EXPECT_TRUE(std::holds_alternative<TenantTicket>(admit(limiter, b, 10, 60).result));  // another's limits
  {
    TenantTicket ticket = std::get<TenantTicket>(std::move(first.result));
    ticket.set_used(30);
  }
  const auto third = admit(limiter, a, 10, 60);
  EXPECT_TRUE(std::holds_alternative<TenantTicket>(third.result));
  const HttpHeaders wanted = {{"x-ratelimit-limit-tokens", "100"},
                              {"x-ratelimit-remaining-tokens", "10"},
                              {"x-ratelimit-reset-tokens", "54s"}};
  EXPECT_EQ(third.headers, wanted);
}

TEST(TenantLimiter, GivesAllBackOfWhatCameToNothing) {
  const ManualClock clock;
  TenantLimiter limiter(clock);
  const Tenant a{.id = "a", .limits = {.tokens_per_minute = 100}};
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(std::holds_alternative<TenantTicket>(admit(limiter, a, 10, 90).result)) << i;
  }
}

// What a server that ended had admitted: it is counted, and others wait for what it takes.
TEST(TenantLimiter, WhatWasAdmittedElsewhereIsNotRefused) {
  ManualClock clock;
  TenantLimiter limiter(clock);
  const Tenant a{.id = "a",
                 .limits = {.requests_per_minute = 2, .tokens_per_minute = 100, .concurrent_requests = 1}};
  std::vector<TenantLimiter::Admission> running;
  running.push_back(admit(limiter, a, 10, 100));
  ASSERT_TRUE(is_admitted(running[0]));
  EXPECT_FALSE(is_admitted(admit(limiter, a, 10, 100)));
  for (int i = 0; i < 2; ++i) {
    running.push_back(admit(limiter, a, 10, 100, TenantLimiter::Origin::kMoved));
    ASSERT_TRUE(is_admitted(running.back())) << i;
    std::get<TenantTicket>(running.back().result).set_used(40);
  }
  EXPECT_FALSE(is_admitted(admit(limiter, a, 100, 100, TenantLimiter::Origin::kMoved)))
      << "too large for any minute: no server admitted it";
  running.clear();
  // Of the tokens 80 are owed, of the requests two.
  clock.time += kMinute;
  EXPECT_FALSE(is_admitted(admit(limiter, a, 10, 30)));
  clock.time += kMinute;
  EXPECT_TRUE(is_admitted(admit(limiter, a, 10, 30)));
}

// Counts for all; answers at once, or when it is told to.
class FakePool final : public LimitPool {
 public:
  void ask(LimitAsk ask, Done done) override {
    asked.push_back(ask);
    if (is_silent) {
      waiting.push_back(std::move(done));
    } else {
      done(is_up ? std::optional(LimitAnswer{.reached = reached, .state = state}) : std::nullopt);
    }
  }
  void end(const std::string&) override { ++ended; }
  void settle(const std::string&, std::uint64_t taken, std::uint64_t used) override {
    settled.emplace_back(taken, used);
  }
  std::uint32_t servers() const override { return 4; }

  bool is_up = true, is_silent = false;
  std::optional<LimitReached> reached;
  RateState state;
  std::vector<LimitAsk> asked;
  std::vector<Done> waiting;
  int ended = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> settled;
};

class PooledLimiter : public testing::Test {
 protected:
  void SetUp() override { limiter_.count_with(pool_); }
  const Tenant tenant_{
      .id = "a", .limits = {.requests_per_minute = 8, .tokens_per_minute = 400, .concurrent_requests = 8}};
  ManualClock clock_;
  FakePool pool_;
  TenantLimiter limiter_{clock_};
};

TEST_F(PooledLimiter, AsksThePoolAndTellsWhatEnded) {
  pool_.state.tokens = RateState::Rate{.limit = 400, .remaining = 7, .reset = kMinute};
  {
    auto admission = admit(limiter_, tenant_, 10, 90);
    ASSERT_TRUE(is_admitted(admission));
    EXPECT_EQ(admission.headers.size(), 3u);
    std::get<TenantTicket>(admission.result).set_used(30);
  }
  ASSERT_EQ(pool_.asked.size(), 2u);
  EXPECT_FALSE(pool_.asked[0].tokens);
  EXPECT_EQ(pool_.asked[1].tokens->all, 90u);
  EXPECT_EQ(pool_.ended, 1);
  EXPECT_EQ(pool_.settled, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{90, 30}}));
  EXPECT_TRUE(is_admitted(admit(limiter_, Tenant{.id = "free"}, 10, 90)));
  EXPECT_EQ(pool_.asked.size(), 2u) << "who has no limits is not counted";
  pool_.reached = LimitReached{.kind = LimitReached::Kind::kRequests, .limit = 8, .retry_after = kMinute};
  EXPECT_EQ(std::get<ApiError>(admit(limiter_, tenant_, 10, 90).result).retry_after_seconds, 60u);
}

TEST_F(PooledLimiter, TellsThePoolWhatWasMoved) {
  {
    auto admission = admit(limiter_, tenant_, 10, 90, TenantLimiter::Origin::kMoved);
    ASSERT_TRUE(is_admitted(admission));
    std::get<TenantTicket>(admission.result).set_used(30);
  }
  ASSERT_EQ(pool_.asked.size(), 1u) << "its tokens were taken where it began";
  EXPECT_EQ(pool_.asked[0].attempt, LimitAsk::Attempt::kMoved);
  EXPECT_EQ(pool_.ended, 1);
  EXPECT_EQ(pool_.settled, (std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, 30}}));
}

TEST_F(PooledLimiter, AsksTwiceWhereOneMayHaveEndedElsewhere) {
  pool_.reached = LimitReached{.kind = LimitReached::Kind::kConcurrent, .limit = 8};
  EXPECT_FALSE(is_admitted(admit(limiter_, tenant_, 10, 90)));
  EXPECT_EQ(pool_.asked.size(), 2u);
}

TEST_F(PooledLimiter, AllowsItsShareWhileNobodyCountsForAll) {
  pool_.is_up = false;
  std::vector<TenantLimiter::Admission> admitted;
  for (int i = 0; i < 2; ++i) {  // of 8 requests, by four servers
    admitted.push_back(admit(limiter_, tenant_, 10, 50));
    EXPECT_TRUE(is_admitted(admitted.back())) << i;
  }
  EXPECT_FALSE(is_admitted(admit(limiter_, tenant_, 10, 50)));
  admitted.clear();
  EXPECT_EQ(pool_.ended, 0);
  EXPECT_TRUE(pool_.settled.empty());
  clock_.time += 10 * kMinute;
  EXPECT_TRUE(is_admitted(admit(limiter_, tenant_, 300, 390))) << "a prompt that the whole limit allows";
  EXPECT_FALSE(is_admitted(admit(limiter_, tenant_, 400, 401)));
}

TEST_F(PooledLimiter, WaitsASecondAndGivesBackWhatComesLater) {
  pool_.is_silent = true;
  boost::asio::io_context io;
  std::optional<TenantLimiter::Admission> admission;
  boost::asio::co_spawn(
      io, [&]() -> boost::asio::awaitable<void> { admission.emplace(co_await limiter_.begin(tenant_)); },
      boost::asio::detached);
  io.run();
  ASSERT_TRUE(admission && is_admitted(*admission)) << "by its own share";
  ASSERT_EQ(pool_.waiting.size(), 1u);
  pool_.waiting[0](LimitAnswer{});
  io.restart();
  io.run();
  EXPECT_EQ(pool_.ended, 1);
  pool_.waiting.clear();  // it has a timer of `io`
}

TEST(TenantLimiter, WritesTimesAsOpenAiDoes) {
  EXPECT_EQ(ratelimit_duration(0), "0ms");
  EXPECT_EQ(ratelimit_duration(1), "1ms");
  EXPECT_EQ(ratelimit_duration(120 * kNanosPerMilli), "120ms");
  EXPECT_EQ(ratelimit_duration(kNanosPerSecond), "1s");
  EXPECT_EQ(ratelimit_duration(6 * kMinute), "6m0s");
}

}  // namespace
}  // namespace loci
