// SPDX-License-Identifier: Apache-2.0
#include "loci/compute/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <system_error>

#include "loci/base/rounds_testing.h"
#include "loci/base/thread_limit_testing.h"
#include "loci/compute/cpu/buffer.h"
#include "loci/compute/cpu/numa.h"

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

TEST(ThreadPoolTest, RunsEachTaskOnce) {
  for (std::uint32_t threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    for (const std::uint32_t count : {0u, 1u, 2u, 3u, 100u}) {
      std::vector<std::atomic<int>> runs(count);
      pool.run_each(count, [&](std::uint32_t i) { runs[i].fetch_add(1, std::memory_order_relaxed); });
      for (const std::atomic<int>& each : runs) EXPECT_EQ(each.load(), 1) << threads << ", " << count;
    }
  }
}

TEST(ThreadPoolTest, WhatWasWrittenBeforeABarrierIsSeenAfterIt) {
  constexpr std::uint64_t kPhases = test_rounds(2000);
  for (std::uint32_t threads = 1; threads <= 4; ++threads) {
    ThreadPool pool(threads);
    std::vector<std::uint64_t> now(threads, 1), next(threads);  // plain memory: the barrier orders it
    pool.run([&](std::uint32_t thread) {
      for (std::uint64_t phase = 0; phase < kPhases; ++phase) {
        next[thread] = std::accumulate(now.begin(), now.end(), std::uint64_t{0}) % 1000003;
        pool.barrier(thread);
        now[thread] = next[thread];
        pool.barrier(thread);
      }
    });
    std::uint64_t expected = 1;
    for (std::uint64_t phase = 0; phase < kPhases; ++phase) expected = expected * threads % 1000003;
    for (const std::uint64_t value : now) EXPECT_EQ(value, expected);
  }
}

TEST(ThreadPoolTest, WithoutThreadsThereIsNoPool) {
  for (const std::size_t left : {0u, 1u, 2u}) {
    const ThreadLimit limit(left);
    EXPECT_THROW(ThreadPool(5), std::system_error) << left;
  }
  ThreadPool pool(3);  // and nothing is left over
  std::atomic<int> runs = 0;
  pool.run([&](std::uint32_t) { ++runs; });
  EXPECT_EQ(runs, 3);
}

TEST(NumaTest, ListsOfNumbers) {
  using Numbers = std::vector<std::uint32_t>;
  EXPECT_EQ(parse_number_list("0"), (Numbers{0}));
  EXPECT_EQ(parse_number_list("0-2,5,7-8"), (Numbers{0, 1, 2, 5, 7, 8}));
  for (const char* broken : {"", "x", "1-", "3-1", "1,,2", "1 2", "0-99999999"})
    EXPECT_TRUE(parse_number_list(broken).empty()) << broken;
  EXPECT_FALSE(memory_nodes().empty());
}

// A huge page can only lie at a multiple of its size.
TEST(BufferTest, LargeBuffersAreWholeHugePages) {
  Result<Buffer> buffer = Buffer::allocate(5u << 20, "a test");
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % (2u << 20), 0u);
  EXPECT_EQ(buffer->size() % (2u << 20), 0u);
  buffer->data()[0] = buffer->data()[buffer->size() - 1] = 1;
}

}  // namespace
}  // namespace loci::cpu
