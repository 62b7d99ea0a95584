// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/trace_dialogues.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "loci/sim/trace_readers.h"

namespace loci {
namespace {

std::int64_t words_in(const std::string& text) { return 1 + std::ranges::count(text, ' '); }

TEST(TraceDialogues, SayAsManyWordsAsATraceHasTokens) {
  const char* const text =
      R"({"time_ms": 0, "conversation": "a", "prompt_tokens": 100, "reply_tokens": 20}
         {"time_ms": 900, "prompt_tokens": 40, "reply_tokens": 7, "cancel_ms": 5, "block_tokens": 16, "hashes": [81, 5, 912]}
         {"time_ms": 1000, "prompt_tokens": 20, "reply_tokens": 7, "block_tokens": 16, "hashes": [81, 6]}
         {"time_ms": 31000, "conversation": "a", "prompt_tokens": 150, "reply_tokens": 30, "think_ms": 30000})";
  const auto load = dialogues_of(sim::parse_trace(text, "t").value());
  ASSERT_TRUE(load.ok());
  ASSERT_EQ(load->dialogues.size(), 3u);
  const Dialogue& talk = load->dialogues[0];
  ASSERT_EQ(talk.turns.size(), 2u);
  EXPECT_EQ(words_in(talk.turns[0]), 100);
  EXPECT_EQ(words_in(talk.turns[1]), 30) << "the rest is the first prompt and its reply";
  EXPECT_EQ(talk.reply_tokens, (std::vector<std::uint32_t>{20, 30}));
  EXPECT_EQ(talk.alone, (std::vector<bool>{false, false}));
  EXPECT_EQ(load->times[0][1].after, 30 * kNanosPerSecond);
  EXPECT_EQ(load->times[1][0].at, 900 * kNanosPerMilli);
  // Equal hashes are equal words.
  const std::string &one = load->dialogues[1].turns[0], &other = load->dialogues[2].turns[0];
  EXPECT_EQ(words_in(one), 40);
  EXPECT_TRUE(load->dialogues[1].alone[0]);
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(one, other).in1 - one.begin());
  EXPECT_EQ(words_in(one.substr(0, same)), 17) << "16 words and the space behind them";
  EXPECT_EQ(load->cancels, 1u);
}

TEST(TraceDialogues, AWordIsWhereItsContentHasIt) {
  const std::string whole = words_of({.content = 7, .tokens = 9});
  EXPECT_EQ(whole,
            words_of({.content = 7, .tokens = 4}) + " " + words_of({.content = 7, .tokens = 5, .skip = 4}));
  EXPECT_NE(whole, words_of({.content = 8, .tokens = 9}));
}

TEST(TraceDialogues, RefuseMoreWordsThanMemoryHolds) {
  sim::Trace trace;
  for (int i = 0; i < 20; ++i) trace.conversations.push_back({{{.pieces = {{1, 1u << 24}}}}});
  const Status status = dialogues_of(trace).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "expected prompts of at most 200,000,000 tokens in all, found 335,544,320: take fewer requests "
            "(--trace-requests)");
}

}  // namespace
}  // namespace loci
