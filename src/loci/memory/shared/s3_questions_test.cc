// SPDX-License-Identifier: Apache-2.0
// How many objects a question asks for, in which turns, and when it is answered.
#include "loci/memory/shared/s3_questions.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/memory/shared/s3_store_testing.h"

namespace loci {
namespace {

using namespace shared_test;

using S3QuestionsTest = S3StoreFixture;

std::vector<std::uint64_t> seeds_from(std::uint64_t first, std::size_t count) {
  std::vector<std::uint64_t> seeds(count);
  for (std::size_t i = 0; i < count; ++i) seeds[i] = first + i;
  return seeds;
}

TEST_F(S3QuestionsTest, ManyQuestionsAreUnderWayAtOnceAndNotMore) {
  S3StoreOptions narrow = options();
  narrow.questions_at_once = 8;
  const auto store = open(narrow);
  have(seeds_from(0, 60));
  answer_objects([this](const auto&) -> std::optional<std::string> {
    EXPECT_TRUE(eventually([this] { return server_.most_at_once() >= 8; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // more would come by now
    return std::nullopt;
  });
  EXPECT_EQ(ask(*store, seeds_from(0, 60)), std::vector<std::uint8_t>(60, 2));
  EXPECT_EQ(server_.most_at_once(), 8u);
  EXPECT_EQ(server_.requests("HEAD"), 120u);
}

TEST_F(S3QuestionsTest, OfAnUnknownPromptFewBlocksAreAskedFor) {
  const auto store = open(options());
  EXPECT_EQ(ask(*store, seeds_from(0, 8192)), std::vector<std::uint8_t>(8192, 0));
  EXPECT_EQ(server_.requests("HEAD"), 2 * S3Questions::kMissesMax);
  EXPECT_EQ(store->stats().parts_asked_total, 2 * S3Questions::kMissesMax);
  EXPECT_EQ(store->stats().asks_failed_total, 0u) << "it is answered, and early";
}

TEST_F(S3QuestionsTest, HolesArePassedAndWhatFollowsALongOneIsNot) {
  const auto store = open(options());
  constexpr std::size_t kHole = S3Questions::kMissesMax;
  // 100 blocks, a hole that is passed, 3 blocks, one that is not, a block. (A window may reach into it.)
  constexpr std::size_t kLong = kHole + S3Questions::kWindowMax;
  have(seeds_from(0, 100));
  have(seeds_from(100 + kHole - 1, 3));
  have({102 + kHole + kLong});
  std::vector<std::uint8_t> wanted(103 + kHole + kLong, 0);
  for (std::size_t i = 0; i < 100; ++i) wanted[i] = 2;
  for (std::size_t i = 0; i < 3; ++i) wanted[100 + kHole - 1 + i] = 2;
  EXPECT_EQ(ask(*store, seeds_from(0, wanted.size())), wanted);
  EXPECT_LT(server_.requests("HEAD"), 2 * wanted.size());
}

TEST_F(S3QuestionsTest, QuestionsTakeTurns) {
  S3StoreOptions narrow = options();
  narrow.questions_at_once = 2 * S3Questions::kMissesMax;
  const auto store = open(narrow);
  have(seeds_from(0, 4000));
  have({9000});
  const auto asked = std::make_shared<std::atomic<std::uint64_t>>(0);
  std::promise<void> both_came;
  answer_objects(
      [asked, have_come = both_came.get_future().share()](const auto&) -> std::optional<std::string> {
        ++*asked;
        have_come.wait();
        return std::nullopt;
      });
  std::promise<std::vector<std::uint8_t>> first, second;
  std::vector<ChainKey> keys;
  for (const std::uint64_t seed : seeds_from(0, 4000)) keys.push_back(test_key(seed));
  store->ask(std::move(keys), 600 * kNanosPerSecond,
             [&](std::vector<std::uint8_t> groups) { first.set_value(std::move(groups)); });
  await([&] { return *asked > 0; });
  std::uint64_t asked_by_then = 0;
  store->ask({test_key(9000)}, kPatient, [&](std::vector<std::uint8_t> groups) {
    asked_by_then = *asked;
    second.set_value(std::move(groups));
  });
  both_came.set_value();
  EXPECT_EQ(second.get_future().get(), std::vector<std::uint8_t>{2});
  EXPECT_LT(asked_by_then, 8000u) << "the first has not been answered by then";
  EXPECT_EQ(first.get_future().get(), std::vector<std::uint8_t>(4000, 2));
}

TEST_F(S3QuestionsTest, AQuestionIsAnsweredInTimeWithWhatIsKnown) {
  const auto store = open(options());
  ASSERT_TRUE(write(*store, 1, 0).ok());
  ASSERT_TRUE(write(*store, 2, 0).ok());
  std::promise<void> late;
  answer_objects([is_late = late.get_future().share(),
                  slow = path(2, 0)](const auto& request) -> std::optional<std::string> {
    if (request.path == slow) is_late.wait();
    return std::nullopt;
  });
  // (Until the first one's answer was in time.)
  await([&] { return ask(*store, {1, 2}, kNanosPerSecond / 5) == std::vector<std::uint8_t>{1, 0}; });
  EXPECT_GE(store->stats().asks_failed_total, 1u);
  late.set_value();
  await([&] { return ask(*store, {1, 2}) == std::vector<std::uint8_t>{1, 1}; });
  EXPECT_EQ(store->stats().failures_total, 0u) << "a store that is slow";
}

}  // namespace
}  // namespace loci
