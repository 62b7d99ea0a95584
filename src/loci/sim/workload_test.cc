// SPDX-License-Identifier: Apache-2.0
// Workloads: what they are fitted to, and their limits.
#include "loci/sim/workload.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace loci::sim {
namespace {

double mean_turns(const Trace& trace) {
  return static_cast<double>(trace.requests()) / static_cast<double>(trace.conversations.size());
}

// AttentionStore §2.3: 47 % of the conversations are above 2K tokens, 30 % above 4K, 27 % have one turn.
TEST(Workload, IsFittedToWhatIsPublished) {
  const auto trace =
      make_workload({.kind = "sharegpt-attentionstore", .conversations = 9000, .tokens_max = 0, .seed = 3});
  ASSERT_TRUE(trace.ok());
  EXPECT_NEAR(mean_turns(*trace), 5.75, 0.25);
  double over[2] = {}, single = 0;
  for (const Conversation& talk : trace->conversations) {
    std::uint64_t tokens = 0;
    for (const Turn& turn : talk.turns) tokens += turn.pieces[0].tokens + turn.reply_tokens;
    over[0] += tokens > 2048;
    over[1] += tokens > 4096;
    single += talk.turns.size() == 1;
  }
  EXPECT_NEAR(over[0] / 9000, 0.47, 0.02);
  EXPECT_NEAR(over[1] / 9000, 0.30, 0.02);
  EXPECT_NEAR(single / 9000, 0.27, 0.02);
  EXPECT_FALSE(trace->notes.empty());
}

// Pensieve table 2, but for conversations above 16,384 tokens.
TEST(Workload, HasPensievesMeans) {
  for (const auto& [kind, turns, input, reply] :
       {std::tuple{"sharegpt-pensieve", 5.56, 37.77, 204.58}, std::tuple{"ultrachat", 3.86, 51.78, 257.81}}) {
    const auto trace = make_workload({.kind = kind, .conversations = 20'000, .tokens_max = 0});
    ASSERT_TRUE(trace.ok());
    double in = 0, out = 0;
    for (const Conversation& talk : trace->conversations) {
      for (const Turn& turn : talk.turns) {
        in += turn.pieces[0].tokens;
        out += turn.reply_tokens;
      }
    }
    EXPECT_NEAR(mean_turns(*trace), turns, 0.03 * turns) << kind;
    EXPECT_NEAR(in / static_cast<double>(trace->requests()), input, 0.04 * input) << kind;
    EXPECT_NEAR(out / static_cast<double>(trace->requests()), reply, 0.04 * reply) << kind;
  }
}

TEST(Workload, CopiesOfDocumentsComeInTheSameOrder) {
  const auto made = [](std::uint32_t copies) {
    return make_workload({.kind = "documents", .conversations = 8, .tasks = 3, .copies = copies}).value();
  };
  const auto contents = [](const Trace& trace, std::size_t talk) {
    std::vector<std::uint64_t> out;
    for (const Turn& turn : trace.conversations[talk].turns)
      for (const Piece& piece : turn.pieces) out.push_back(piece.content);
    return out;
  };
  const Trace alone = made(1), thrice = made(3);
  for (std::size_t talk = 0; talk < 8; ++talk) {
    EXPECT_EQ(contents(thrice, talk), contents(alone, talk % 3)) << "three different ones, thrice at most";
    EXPECT_EQ(thrice.conversations[talk].turns[0].at, alone.conversations[talk].turns[0].at);
  }
  EXPECT_NE(contents(alone, 3), contents(alone, 0));
}

std::string workload_error(const WorkloadOptions& options) {
  const auto trace = make_workload(options);
  EXPECT_EQ(trace.status().code(), trace.ok() ? StatusCode::kOk : StatusCode::kInvalidArgument);
  return trace.status().message();
}

// HCache table 1, MemServe section 8.2, Berkeley section VII-B.
TEST(Workload, NamesTheTextsOfThePapers) {
  for (const auto& [kind, turns, first, reply] :
       {std::tuple{"l-eval", 1u, 16'340u + 45u, 50u},
        std::tuple{"l-eval-paper-assistant", 1u, 10'604u + 143u, 405u},
        std::tuple{"l-eval-gsm-100", 1u, 5'452u + 77u, 4u},
        std::tuple{"l-eval-quality", 1u, 7'054u + 92u, 19u}, std::tuple{"loogle", 5u, 1'000u + 24u, 23u},
        std::tuple{"react", 1u, 1'508u + 150u, 100u}, std::tuple{"chat", 1u, 256u + 38u, 205u}}) {
    WorkloadOptions options = workload_of_kind(kind);
    options.conversations = 50;
    const auto trace = make_workload(options);
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    EXPECT_EQ(trace->name, kind);
    EXPECT_EQ(trace->notes.size(), 2u) << "what is published, and what is assumed";
    for (const Conversation& talk : trace->conversations) {
      EXPECT_EQ(talk.turns.size(), turns) << kind;
      EXPECT_EQ(tokens_of(talk.turns[0].pieces), first) << kind;
      EXPECT_EQ(talk.turns.back().reply_tokens, reply) << kind;
      EXPECT_EQ(talk.turns.back().after, 0) << kind;
    }
  }
  // All share the examples of ReAct and the system prompt; L-Eval has many contexts.
  const auto beginnings = [](std::string_view kind) {
    WorkloadOptions options = workload_of_kind(kind);
    options.conversations = 50;
    std::set<std::uint64_t> ids;
    const Trace trace = make_workload(options).value();
    for (const Conversation& talk : trace.conversations) ids.insert(talk.turns[0].pieces[0].content);
    return ids.size();
  };
  EXPECT_EQ(beginnings("react"), 1u);
  EXPECT_EQ(beginnings("chat"), 1u);
  EXPECT_GT(beginnings("l-eval"), 20u);
  EXPECT_EQ(beginnings("loogle"), 50u);
}

TEST(Workload, HasAtMostAsManyRequestsAsATraceMayHave) {
  EXPECT_EQ(workload_error({.kind = "documents", .conversations = 1000, .tasks = 1'000'000}),
            "workload.conversations: expected at most 10000000 requests, conversations times tasks, found "
            "1000000000");
  EXPECT_EQ(workload_error({.kind = "conversations", .conversations = 10'000'000}),
            "workload.conversations: expected at most 10000000 requests, conversations times turns, found "
            "50000000");
  EXPECT_EQ(workload_error({.kind = "documents", .conversations = 100, .tasks = 100}), "");
}

TEST(Workload, HasTimesThatATraceMayHave) {
  EXPECT_EQ(
      workload_error({.kind = "documents", .conversations = 100, .rate = 1e-9}),
      "workload.rate: expected conversations that all begin within 10^9 s, found 100 of 1e-09 a second");
  EXPECT_EQ(
      workload_error({.kind = "text-analysis", .conversations = 100, .rate = 1e-8}),
      "workload.rate: expected conversations that all begin within 10^9 s, found 100 of 1e-08 a second");
  EXPECT_EQ(
      workload_error({.kind = "documents", .conversations = 1, .think_s = 1e9, .think = "constant"}),
      "workload.think_s: expected turns that are due within 10^9 s of the begin, found 1e+09, and a turn "
      "that is due after 5e+09 s");
  EXPECT_EQ(workload_error({.kind = "documents", .conversations = 1, .think_s = 1e8, .think = "constant"}),
            "");
}

TEST(Workload, SaysThatHardlyAConversationIsAsShortAsItMustBe) {
  const std::string none = workload_error({.conversations = 50, .tokens_max = 2});
  EXPECT_EQ(none,
            "workload.tokens_max: expected a limit that lets 50 conversations be drawn in a hundred times as "
            "many tries, found 2, which 0 of 5101 keep");
  // Some are found, but too few: they used to be all.
  const std::string few = workload_error({.conversations = 2000, .tokens_max = 18});
  EXPECT_TRUE(few.starts_with("workload.tokens_max: expected a limit that lets 2000 ")) << few;
  EXPECT_EQ(few.find("which 0 of"), std::string::npos) << few;
  const auto enough = make_workload({.conversations = 300, .tokens_max = 60});
  ASSERT_TRUE(enough.ok()) << enough.status().message();
  EXPECT_EQ(enough->conversations.size(), 300u);
}

}  // namespace
}  // namespace loci::sim
