// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/shared/redis_resolver.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "loci/base/thread_limit_testing.h"

namespace loci {
namespace {

// However busy the machine is.
constexpr Nanos kUntilItComes = 3600 * kNanosPerSecond;

// Lookups that end when the test says so, each with an address or without one.
class RedisResolverTest : public testing::Test {
 protected:
  struct World {
    std::atomic<int> begun{0};
    std::promise<bool> found;  // of the first
    std::shared_future<bool> ready = found.get_future().share();
    addrinfo address{};
  };

  RedisResolver::LookUp look_up() {
    return [world = world_](const std::string& host, std::uint16_t port) -> Result<RedisResolver::Addresses> {
      ++world->begun;
      if (host != "cache.example" || port != 7) return invalid_argument("not what was asked for");
      if (!world->ready.get()) return Status(StatusCode::kUnavailable, "nobody");
      return RedisResolver::Addresses(world, &world->address);
    };
  }

  SystemClock clock_;
  const std::shared_ptr<World> world_ = std::make_shared<World>();
};

TEST_F(RedisResolverTest, WhileOneLookupHangsNoOtherBegins) {
  RedisResolver resolver("cache.example", 7, clock_, look_up());
  for (int i = 0; i < 20; ++i) {
    const Status late = resolver.resolve(clock_.now()).status();
    EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded);
    EXPECT_EQ(late.message(), "cache.example was not resolved in time");
  }
  std::vector<std::future<bool>> waiting;
  for (int i = 0; i < 3; ++i) {
    waiting.push_back(std::async(std::launch::async, [&] {
      const auto found = resolver.resolve(clock_.now() + kUntilItComes);
      return found.ok() && found.value().get() == &world_->address;
    }));
  }
  world_->found.set_value(true);
  for (auto& one : waiting) EXPECT_TRUE(one.get());
}

TEST_F(RedisResolverTest, AnAnswerThatComesLateIsTheNextOnes) {
  RedisResolver resolver("cache.example", 7, clock_, look_up());
  EXPECT_FALSE(resolver.resolve(clock_.now()).ok());
  world_->found.set_value(true);
  const auto found = resolver.resolve(clock_.now() + kUntilItComes);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(world_->begun, 1);
  EXPECT_TRUE(resolver.resolve(clock_.now() + kUntilItComes).ok());
  EXPECT_EQ(world_->begun, 2) << "an address that was used is asked for anew: the host may have moved";
}

TEST_F(RedisResolverTest, WhoIsNotThereIsAskedForAgain) {
  RedisResolver resolver("cache.example", 7, clock_, look_up());
  world_->found.set_value(false);
  for (int i = 1; i <= 2; ++i) {
    EXPECT_EQ(resolver.resolve(clock_.now() + kUntilItComes).status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(world_->begun, i);
  }
}

TEST_F(RedisResolverTest, WithoutAThreadForALookupTheNextOneTriesAgain) {
  RedisResolver resolver("cache.example", 7, clock_, look_up());
  world_->found.set_value(true);
  {
    const ThreadLimit limit(0);
    const Status refused = resolver.resolve(clock_.now() + kUntilItComes).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable) << refused.message();
  }
  EXPECT_TRUE(resolver.resolve(clock_.now() + kUntilItComes).ok());
}

TEST_F(RedisResolverTest, ItsEndWaitsForNoLookup) {
  auto resolver = std::make_unique<RedisResolver>("cache.example", 7, clock_, look_up());
  auto waits = std::async(std::launch::async,
                          [&] { return resolver->resolve(clock_.now() + kUntilItComes).status(); });
  while (world_->begun == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  resolver->stop();
  EXPECT_EQ(waits.get().code(), StatusCode::kCancelled);
  resolver.reset();
  world_->found.set_value(true);  // nothing is touched that is gone
}

TEST_F(RedisResolverTest, NumbersNeedNoLookup) {
  RedisResolver resolver("::1", 7, clock_, look_up());
  EXPECT_TRUE(resolver.resolve(clock_.now()).ok());
  EXPECT_EQ(world_->begun, 0);
}

}  // namespace
}  // namespace loci
