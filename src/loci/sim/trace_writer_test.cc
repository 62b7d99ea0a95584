// SPDX-License-Identifier: Apache-2.0
// A written trace is read again as the same requests, and reveals only lengths, times and which prompts are
// alike.
#include "loci/sim/trace_writer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "loci/base/folder_testing.h"
#include "loci/sim/packed_file.h"
#include "loci/sim/trace_readers.h"
#include "loci/sim/workload.h"

namespace loci::sim {
namespace {

constexpr TraceKey kKey{1, 2, 3};

// The pieces of both, with the contents of each numbered as they come.
class Alike {
 public:
  bool operator()(const std::vector<Piece>& a, const std::vector<Piece>& b) {
    if (a.size() != b.size()) return false;
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (a[i].tokens != b[i].tokens || a[i].skip != b[i].skip) return false;
      if (first_.try_emplace(a[i].content, first_.size()).first->second !=
          second_.try_emplace(b[i].content, second_.size()).first->second)
        return false;
    }
    return true;
  }

 private:
  std::map<std::uint64_t, std::size_t> first_, second_;
};

void expect_same(const Trace& before, const Trace& after) {
  ASSERT_EQ(after.conversations.size(), before.conversations.size());
  Alike alike;
  for (std::size_t c = 0; c < before.conversations.size(); ++c) {
    const std::vector<Turn>& were = before.conversations[c].turns;
    const std::vector<Turn>& are = after.conversations[c].turns;
    ASSERT_EQ(are.size(), were.size());
    for (std::size_t t = 0; t < were.size(); ++t) {
      EXPECT_EQ(are[t].at, were[t].at);
      EXPECT_EQ(are[t].after, were[t].after);
      EXPECT_EQ(are[t].reply_tokens, were[t].reply_tokens);
      EXPECT_EQ(are[t].cancel_after, were[t].cancel_after);
      EXPECT_EQ(are[t].appends && t > 0, were[t].appends && t > 0);
      if (were[t].appends && t > 0) {
        EXPECT_EQ(tokens_of(are[t].pieces), tokens_of(were[t].pieces));
      } else {
        EXPECT_TRUE(alike(were[t].pieces, are[t].pieces)) << c << "." << t;
        EXPECT_TRUE(alike(were[t].reply, are[t].reply)) << c << "." << t;
      }
    }
  }
}

TEST(TraceWriter, WorkloadsComeBackAsTheyWere) {
  for (const char* kind : {"sharegpt-pensieve", "text-analysis", "documents"}) {
    const auto trace =
        make_workload({.kind = kind, .conversations = 40, .contexts = 8, .zipf = 1, .tasks = 3});
    ASSERT_TRUE(trace.ok()) << trace.status().message();
    const auto again = parse_trace(trace_text(*trace, kKey), "again");
    ASSERT_TRUE(again.ok()) << again.status().message();
    expect_same(*trace, *again);
  }
}

TEST(TraceWriter, RepliesThatAreNamedComeBack) {
  Trace trace;
  trace.conversations = {
      {{{.at = 0, .appends = false, .pieces = {{5, 40}}, .reply = {{6, 9}}, .reply_tokens = 9, .noted = 0},
        {.after = 1'234'567,
         .appends = false,
         .pieces = {{5, 40}, {6, 9}, {7, 3}},
         .reply = {{7, 2, 3}, {8, 1}},
         .reply_tokens = 3,
         .noted = 50'000'001}}},
      {{{.at = 10'000'000, .appends = false, .pieces = {{5, 11}}, .reply_tokens = 2, .cancel_after = 7}}}};
  const std::string text = trace_text(trace, kKey);
  const auto again = parse_trace(text, "again");
  ASSERT_TRUE(again.ok()) << again.status().message() << "\n" << text;
  expect_same(trace, *again);
  EXPECT_EQ(again->conversations[0].turns[1].noted, 50'000'001) << "to the nanosecond";
  EXPECT_EQ(in_time_order(*again)[1].conversation, 1u);
}

TEST(TraceWriter, HashesAreOfAKeyThatNobodyHas) {
  // The contents stand for what an earlier trace's hashes say, which may be linked to it.
  Trace trace;
  trace.conversations = {{{{.appends = false, .pieces = {{123'456'789, 40}}, .reply_tokens = 2}}}};
  const TestFolder folder;
  const std::string path = folder.file("trace.jsonl");
  std::string texts[2];
  for (std::string& text : texts) {
    ASSERT_TRUE(write_trace(trace, path).ok());
    text = read_text(path).value();
    EXPECT_EQ(text.find("123456789"), std::string::npos) << text;
  }
  EXPECT_NE(texts[0], texts[1]);
  EXPECT_NE(trace_text(trace, kKey), trace_text(trace, TraceKey{}));
  EXPECT_EQ(write_trace(trace, "/nowhere/at/all").code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace loci::sim
