// SPDX-License-Identifier: Apache-2.0
// A feed for which there is no memory. In a program of its own, as it replaces what every allocation calls,
// and the thread sanitizer has that too.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

#include "loci/base/random.h"
#include "loci/cluster/feed/block_feed_testing.h"

namespace {

// How many more pieces of memory this thread gets.
thread_local std::size_t block_feed_test_pieces = SIZE_MAX;

}  // namespace

// All that operator delete below may get: sanitizers have their own of those that are left out.
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  if (block_feed_test_pieces == 0) return nullptr;
  --block_feed_test_pieces;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new(std::size_t size) {
  if (void* const memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace loci {
namespace {

// In another thread, because it might wait for ever.
bool answers(const std::shared_ptr<BlockFeed>& feed) {
  auto answered = std::make_shared<std::promise<void>>();
  std::thread([feed, answered] {
    static_cast<void>(feed->stats());
    answered->set_value();
  }).detach();
  return answered->get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready;
}

// Whatever piece of memory is missing: what was told is taken in when there is some again.
TEST(BlockFeed, WithoutMemoryItLosesNothingAndHoldsUpNobody) {
  const PublishedChunksOptions chunks{.chunks_max = 12, .of_block_max = 2, .events_kept = 64};
  const auto feed = std::make_shared<BlockFeed>(BlockFeedOptions{.chunks = chunks});
  BlockFeed plain({.chunks = chunks});
  Random random(11);
  std::size_t refusals = 0;
  for (std::uint64_t turn = 0; turn < 400; ++turn) {
    std::vector<std::uint64_t> text;
    for (std::uint64_t count = 1 + random.below(4); count > 0; --count)
      text.push_back(4 * (1 + random.below(40)));
    const std::vector<ChainKey> keys = {block_key(random.below(20)), block_key(20 + random.below(20))};
    const std::vector<BlockPlace> places = {
        {block_key(random.below(40)), random.below(2) == 0 ? std::optional(Tier::kHost) : std::nullopt}};
    for (BlockFeed* const each : {feed.get(), &plain}) {
      each->prompt(
          {.chunks = text, .chunk_bytes = 256, .bytes = 256 * text.size(), .ends = {}, .tenant = turn % 7},
          keys, 64);
      each->moved(places);
    }
    for (std::size_t pieces = 0;; ++pieces) {
      bool was_refused = false;
      block_feed_test_pieces = pieces;
      try {
        static_cast<void>(feed->stats());
      } catch (const std::bad_alloc&) {
        was_refused = true;
      }
      block_feed_test_pieces = SIZE_MAX;
      feed->check_invariants();
      if (!was_refused) break;
      ++refusals;
      if (turn == 0) {
        ASSERT_TRUE(answers(feed));
      }
    }
  }
  EXPECT_GT(refusals, 200u);
  Reader with, without;
  with.read(*feed);
  without.read(plain);
  EXPECT_EQ(with.held, without.held);
  EXPECT_FALSE(with.held.empty());
}

}  // namespace
}  // namespace loci
