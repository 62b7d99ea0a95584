#include "loci/compute/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

namespace loci::cpu {
namespace {

TEST(ThreadPoolTest, SharesEverythingOutOnce) {
  for (std::uint32_t threads = 1; threads <= 5; ++threads) {
    ThreadPool pool(threads);
    for (const std::uint32_t total : {0u, 1u, 2u, 3u, 7u, 64u, 1000u}) {
      std::vector<std::atomic<int>> taken(total);
      for (int phase = 1; phase <= 20; ++phase) {
        pool.run([&](std::uint32_t thread) {
          WorkRange range;
          while (pool.claim(thread, total, range)) {
            ASSERT_LT(range.begin, range.end);
            for (std::uint32_t i = range.begin; i < range.end; ++i)
              taken[i].fetch_add(1, std::memory_order_relaxed);
          }
        });
        for (std::uint32_t i = 0; i < total; ++i)
          ASSERT_EQ(taken[i].load(), phase) << threads << " threads, " << i;
      }
    }
  }
}

TEST(ThreadPoolTest, WhatWasWrittenBeforeABarrierIsSeenAfterIt) {
  constexpr std::uint32_t kPhases = 2000;
  for (std::uint32_t threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    std::vector<std::uint64_t> now(threads, 1), next(threads);  // plain memory: the barrier orders it
    pool.run([&](std::uint32_t thread) {
      for (std::uint32_t phase = 0; phase < kPhases; ++phase) {
        next[thread] = std::accumulate(now.begin(), now.end(), std::uint64_t{0}) % 1000003;
        pool.barrier(thread);
        now[thread] = next[thread];
        pool.barrier(thread);
      }
    });
    std::uint64_t expected = 1;
    for (std::uint32_t phase = 0; phase < kPhases; ++phase) expected = expected * threads % 1000003;
    for (const std::uint64_t value : now) EXPECT_EQ(value, expected);
  }
}

}  // namespace
}  // namespace loci::cpu
