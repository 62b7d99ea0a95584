// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/truncation.h"

#include <gtest/gtest.h>

#include "loci/base/random.h"
#include "loci/compute/backend.h"

namespace loci {
namespace {

using Ranges = std::vector<TokenRange>;

Truncation make(std::uint32_t context, TruncationNeeds needs = {}, std::uint32_t percent = 50) {
  const Result<Truncation> made = Truncation::make({context, percent}, needs);
  LOCI_CHECK(made.ok(), "there is room");
  return *made;
}

// The longest history that is not cut, and the most of one that is kept.
std::uint32_t limit_of(const Truncation& truncation) {
  std::uint32_t tokens = 0;
  while (truncation.cuts(tokens + 1).empty()) ++tokens;
  return tokens;
}

TEST(TruncationTest, DropsTheOldestHalfAfterTheFirstBlock) {
  const Truncation truncation = make(2048);
  EXPECT_EQ(limit_of(truncation), 1792u);  // an eighth is for the reply
  EXPECT_EQ(truncation.cuts(1792), Ranges{});
  EXPECT_EQ(truncation.cuts(1793), (Ranges{{32, 1056}}));
  EXPECT_EQ(truncation.cuts(1792 + 1024), (Ranges{{32, 1056}}));
  EXPECT_EQ(truncation.cuts(1793 + 1024), (Ranges{{32, 1056}, {1056, 2080}}));
}

TEST(TruncationTest, TheSystemPromptStaysInWholeBlocks) {
  EXPECT_EQ(make(2048, {.front_tokens = 1}).front_tokens(), 32u);
  EXPECT_EQ(make(2048, {.front_tokens = 32}).front_tokens(), 32u);
  EXPECT_EQ(make(2048, {.front_tokens = 33}).front_tokens(), 64u);
  EXPECT_EQ(make(2048, {.front_tokens = 500}).cuts(1800), (Ranges{{512, 512 + 960}}));  // a quarter stays
}

TEST(TruncationTest, RoomForTheReplyGrowsInSteps) {
  for (const std::uint32_t reply : {0u, 1u, 256u}) EXPECT_EQ(limit_of(make(2048, {0, reply})), 1792u);
  for (const std::uint32_t reply : {257u, 512u}) EXPECT_EQ(limit_of(make(2048, {0, reply})), 1536u);
  for (const std::uint32_t reply : {513u, 5000u}) EXPECT_EQ(limit_of(make(2048, {0, reply})), 1024u);
}

TEST(TruncationTest, AFrontThatLeavesNothingToDropIsRefused) {
  const Result<Truncation> refused = Truncation::make({512, 50}, {.front_tokens = 400});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(refused.status().message().find("512 tokens"), std::string::npos) << refused.status().message();
  EXPECT_TRUE(Truncation::make({512, 50}, {.front_tokens = 384}).ok());
  EXPECT_FALSE(Truncation::make({64, 50}, {}).ok()) << "a context of two blocks";
  EXPECT_FALSE(Truncation::make({512, 50}, {.front_tokens = UINT32_MAX}).ok());
}

// For any rule: whole blocks are dropped, contiguous, after the front; what is kept fits beside the reply;
// and a history that grows a token at a time is cut anew only when what the last cut opened is full.
TEST(TruncationTest, CutsOfAGrowingHistoryChangeOnlyAtCutPoints) {
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    const auto context = static_cast<std::uint32_t>(128 + random.below(8192));
    const TruncationNeeds needs{static_cast<std::uint32_t>(random.below(context)),
                                static_cast<std::uint32_t>(random.below(context))};
    const Result<Truncation> made =
        Truncation::make({context, static_cast<std::uint32_t>(1 + random.below(90))}, needs);
    if (!made.ok()) continue;
    EXPECT_GE(made->front_tokens(), std::max(needs.front_tokens, kBlockTokens));
    EXPECT_EQ(made->front_tokens() % kBlockTokens, 0u);
    const std::uint32_t limit = limit_of(*made);
    const TokenRange first = made->cuts(limit + 1).at(0);
    const std::uint32_t cut_tokens = first.end - first.begin;
    EXPECT_EQ(cut_tokens % kBlockTokens, 0u);
    EXPECT_GT(cut_tokens, 0u);
    Ranges before;
    std::uint32_t since = limit - cut_tokens;  // the length of the last cut
    for (std::uint32_t n = 1; n < 4 * context; ++n) {
      const Ranges ranges = made->cuts(n);
      std::uint32_t dropped = 0, end = made->front_tokens();
      for (const TokenRange& range : ranges) {
        ASSERT_EQ(range.begin, end);
        ASSERT_EQ(range.end - range.begin, cut_tokens);
        end = range.end, dropped += range.end - range.begin;
      }
      ASSERT_LE(n - dropped, limit);
      ASSERT_TRUE(ranges.empty() || n > end) << "something is kept after the last cut";
      if (ranges == before) continue;
      ASSERT_EQ(ranges.size(), before.size() + 1);
      ASSERT_TRUE(std::equal(before.begin(), before.end(), ranges.begin())) << "a cut is never moved";
      ASSERT_EQ(n - since, cut_tokens + (before.empty() ? 1 : 0)) << "a cut is used up first";
      since = n;
      before = ranges;
    }
  }
}

}  // namespace
}  // namespace loci
