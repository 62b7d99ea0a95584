// SPDX-License-Identifier: Apache-2.0
// Sessions of an agent: what becomes of their blocks, times and sub-agents; what is refused.
#include "loci/sim/weka.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "loci/sim/packed_file.h"
#include "loci/sim/trace_readers.h"
#include "loci/sim/trace_source.h"
#include "loci/sim/trace_writer.h"

namespace loci::sim {
namespace {

// Tools of two blocks, a system's text of one; the second request goes on, the third has another prompt.
const std::string kAgentSession =
    R"({"id":"a","block_size":64,"tool_tokens":128,"system_tokens":70,"requests":[)"
    R"({"t":0,"type":"n","in":330,"out":20,"hash_runs":[[1,5]],"api_time":2.5,"think_time":0},)"
    R"({"t":9,"type":"n","in":384,"out":0,"hash_runs":[[1,6]],"api_time":4,"think_time":6.5},)"
    R"({"t":20,"type":"s","in":140,"out":3,"hash_runs":[[1,1],[9,1]],"api_time":null}]})"
    "\n";

std::string weka_error(const std::string& text) { return parse_weka(text, "w").status().message(); }

Trace weka_trace(const std::string& text) {
  return trace_of_sessions(parse_weka(text, "w").value(), "w", 1, 1);
}

TEST(Weka, ReadsBlocksAndTimes) {
  const Trace trace = weka_trace(kAgentSession);
  ASSERT_EQ(trace.conversations.size(), 1u);
  const std::vector<Turn>& turns = trace.conversations[0].turns;
  ASSERT_EQ(turns.size(), 3u);
  EXPECT_GT(turns[0].at, 0) << "when it begins is drawn";
  EXPECT_EQ(turns[0].after, 0);
  EXPECT_EQ(turns[1].at, 0);
  EXPECT_EQ(turns[1].after, 6'500'000'000);
  EXPECT_EQ(turns[1].noted, turns[0].noted + 9 * kNanosPerSecond);
  EXPECT_EQ(turns[2].after, 7 * kNanosPerSecond) << "20 s, less the 9 + 4 s at which the last one had ended";
  EXPECT_EQ(turns[1].reply_tokens, 1u) << "there is no reply without a token";
  for (const Turn& turn : turns) EXPECT_FALSE(turn.appends);
  // Tools and system's text, then the session's own blocks as places of one content, then what no id names.
  const std::vector<Piece>& first = turns[0].pieces;
  ASSERT_EQ(first.size(), 4u);
  EXPECT_EQ(first[0].tokens, 128u);
  EXPECT_EQ(first[1].tokens, 64u);
  EXPECT_EQ(first[2], (Piece{first[2].content, 128, 4 * 64}));
  EXPECT_EQ(first[3].tokens, 10u);
  const std::vector<Piece>& second = turns[1].pieces;
  EXPECT_EQ(second, (std::vector<Piece>{first[0], first[1], {first[2].content, 192, 4 * 64}}));
  const std::vector<Piece>& third = turns[2].pieces;
  ASSERT_EQ(third.size(), 3u);
  EXPECT_EQ(third[0], (Piece{first[0].content, 64}));
  EXPECT_EQ(third[1], (Piece{first[2].content, 64, 9 * 64}));
  EXPECT_NE(third[2].content, first[3].content);
}

TEST(Weka, SessionsShareToolsOfTheSameLength) {
  std::string other = kAgentSession;
  other.replace(other.find("\"system_tokens\":70"), 18, "\"system_tokens\":80");
  const Trace trace = weka_trace(kAgentSession + kAgentSession + other);
  const auto first = [&](std::size_t session) { return trace.conversations[session].turns[0].pieces; };
  EXPECT_EQ(first(0)[0], first(1)[0]);
  EXPECT_EQ(first(0)[1], first(1)[1]);
  EXPECT_NE(first(0)[2].content, first(1)[2].content) << "ids mean something in their session alone";
  EXPECT_EQ(first(0)[0], first(2)[0]) << "the same tools";
  EXPECT_NE(first(0)[1].content, first(2)[1].content) << "before another text";
  EXPECT_LT(trace.conversations[0].turns[0].at, trace.conversations[1].turns[0].at);
}

TEST(Weka, SubAgentsAreConversationsWithTheirSessionsBlocks) {
  const Trace trace = weka_trace(R"({"block_size":64,"tool_tokens":0,"system_tokens":0,"requests":[)"
                                 R"({"t":0,"in":128,"out":2,"hash_runs":[[1,2]],"think_time":0},)"
                                 R"({"t":5,"type":"subagent","tool_tokens":64,"system_tokens":0,"requests":[)"
                                 R"({"t":1,"in":128,"out":2,"hash_ids":[8,2]}]},)"
                                 R"({"t":5,"type":"subagent","requests":[]},)"
                                 R"({"t":7,"in":192,"out":2,"hash_runs":[[1,3]],"think_time":3}]})");
  ASSERT_EQ(trace.conversations.size(), 2u);
  const Turn& parent = trace.conversations[0].turns[0];
  const Turn& agent = trace.conversations[1].turns[0];
  EXPECT_EQ(trace.conversations[0].turns.size(), 2u);
  EXPECT_EQ(agent.at, parent.at + 6 * kNanosPerSecond);
  ASSERT_EQ(agent.pieces.size(), 2u);
  EXPECT_EQ(agent.pieces[1], (Piece{parent.pieces[0].content, 64, 2 * 64})) << "its session's block 2";
  EXPECT_NE(trace.notes[0].find("1 sub-agents"), std::string::npos) << trace.notes[0];
}

TEST(Weka, NamesWhatIsWrong) {
  const auto request = [](const std::string& fields) {
    return weka_error(R"({"block_size":64,"requests":[{"t":0,"in":130,"out":1,"hash_runs":[[1,2]]},{)" +
                      fields + "}]}");
  };
  EXPECT_EQ(weka_error(R"({"block_size":64})"), "w:1: requests: expected a list, found nothing");
  EXPECT_EQ(weka_error(R"({"block_size":0,"requests":[]})"),
            "w:1: block_size: expected a whole number from 1 to 1048576, found 0");
  EXPECT_EQ(weka_error(R"({"requests":[]})"),
            "w:1: requests: expected at least one request of its own, found none");
  EXPECT_EQ(weka_error("\n"
                       R"({"requests":[3]})"),
            "w:2: requests[0]: expected an object, found number");
  EXPECT_EQ(request(R"("in":1)"), "w:1: requests[1].t: expected this field, found nothing");
  EXPECT_EQ(request(R"("t":-1,"in":1)"),
            "w:1: requests[1].t: expected a number from 0 to 1000000000, found -1");
  EXPECT_EQ(request(R"("t":0,"in":0)"),
            "w:1: requests[1].in: expected a whole number from 1 to 16777216, found 0");
  EXPECT_EQ(request(R"("t":0,"in":1)"), "w:1: requests[1].out: expected this field, found nothing");
  EXPECT_EQ(request(R"("t":0,"in":1,"out":1,"type":"x")"),
            "w:1: requests[1].type: expected one of n, s, found 'x'");
  EXPECT_EQ(request(R"("t":0,"in":1,"out":1,"think_time":"x")"),
            "w:1: requests[1].think_time: expected a number from 0 to 1000000000, found \"x\"");
  EXPECT_EQ(request(R"("t":0,"in":64,"out":1)"),
            "w:1: requests[1].hash_runs: expected a list of [first, count], found nothing");
  EXPECT_EQ(
      request(R"("t":0,"in":130,"out":1,"hash_runs":[[1,1]])"),
      "w:1: requests[1].hash_runs: expected 2 ids, one for each whole block of 64 of 130 tokens, found 1");
  EXPECT_EQ(request(R"("t":0,"in":130,"out":1,"hash_ids":[1,2,3])"),
            "w:1: requests[1].hash_ids: expected 2 ids, one for each whole block of 64 of 130 tokens, found "
            "more");
  for (const std::string run : {"[1,0]", "[1]", "7", "[67108863,1]", "[1,-1]", "[1,18446744073709551615]"})
    EXPECT_EQ(request(R"("t":0,"in":130,"out":1,"hash_runs":[)" + run + "]"),
              "w:1: requests[1].hash_runs: expected [first, count] of ids below 67108863, found " + run);
  EXPECT_EQ(
      weka_error(
          R"({"requests":[{"t":5,"in":1,"out":1,"hash_ids":[]},{"t":4,"in":1,"out":1,"hash_ids":[]}]})"),
      "w:1: requests[1].t: expected times that do not go back, found 4");
  EXPECT_EQ(weka_error(R"({"requests":[{"t":0,"type":"subagent","requests":[{"t":0,"in":1,"out":1}]}]})"),
            "w:1: requests[0].requests[0].hash_runs: expected a list of [first, count], found nothing");
}

// Tools of two blocks, a system's text of three. Head blocks 1-3 and 9-10, and a prompt 1-4, 10, 10.
TEST(Weka, FindsTheHeadsBlocksOnlyInTheirPlaces) {
  const Trace trace = weka_trace(R"({"block_size":64,"tool_tokens":128,"system_tokens":192,"requests":[)"
                                 R"({"t":0,"in":448,"out":2,"hash_runs":[[1,3],[9,2],[20,2]]},)"
                                 R"({"t":1,"in":384,"out":2,"hash_runs":[[1,4],[10,1],[10,1]]}]})");
  const std::vector<Piece>& first = trace.conversations[0].turns[0].pieces;
  ASSERT_EQ(first.size(), 3u);
  const std::uint64_t tools = first[0].content, system = first[1].content, own = first[2].content;
  EXPECT_EQ(first, (std::vector<Piece>{{tools, 128, 0}, {system, 192, 128}, {own, 128, 20 * 64}}));
  EXPECT_EQ(
      trace.conversations[0].turns[1].pieces,
      (std::vector<Piece>{
          {tools, 128, 0}, {system, 64, 128}, {own, 64, 4 * 64}, {system, 64, 4 * 64}, {own, 64, 10 * 64}}));
}

std::string hostile_session(std::uint64_t tools, std::uint64_t prompt, const std::string& first,
                            std::uint64_t requests) {
  const auto request = [&](const std::string& ids) {
    return "{\"t\":0,\"in\":" + std::to_string(prompt) + ",\"out\":1," + ids + "}";
  };
  std::string text =
      "{\"block_size\":1,\"tool_tokens\":" + std::to_string(tools) + ",\"requests\":[" + request(first);
  for (std::uint64_t i = 0; i < requests; ++i)
    text += "," + request("\"hash_runs\":[[0," + std::to_string(prompt) + "]]");
  return text + "]}";
}

// Little text, in which each prompt would become as many pieces as the first one has runs.
TEST(Weka, BoundsThePiecesOfAFile) {
  std::string ids = "\"hash_ids\":[0";
  for (std::uint64_t i = 1; i < 16'384; ++i) ids += i % 2 == 1 ? ",9" : "," + std::to_string(i);
  EXPECT_EQ(
      weka_error("\n" + hostile_session(1u << 24, 16'384, ids + "]", 4'200)),
      "w:2: requests[4096].hash_runs: expected at most 67108864 runs in the file, each cut where a run of "
      "its session's first prompt ends, found more");
}

// A run is one piece, however many blocks it has.
TEST(Weka, TakesLongRunsAtOnce) {
  constexpr std::uint32_t kMost = 1u << 24;
  const Trace trace = weka_trace(hostile_session(100, kMost, "\"hash_runs\":[[0,16777216]]", 5'000));
  const std::vector<Piece>& last = trace.conversations[0].turns.back().pieces;
  ASSERT_EQ(last.size(), 2u);
  EXPECT_EQ(last[1].tokens, kMost - 100);
}

// Places in a content have names of their own in Loci's format, which has no places.
TEST(Weka, IsWrittenWithTheSameBlocksInCommon) {
  const Trace trace = weka_trace(kAgentSession + kAgentSession);
  const Trace again = parse_trace(trace_text(trace, {7}), "again").value();
  ASSERT_EQ(again.requests(), trace.requests());
  const auto at = [&](const Trace& of, std::size_t session, std::size_t turn, std::size_t piece) {
    return of.conversations[session].turns[turn].pieces[piece].content;
  };
  EXPECT_EQ(at(again, 0, 0, 0), at(again, 1, 0, 0));
  EXPECT_EQ(at(again, 0, 0, 2), at(again, 0, 1, 2));
  EXPECT_NE(at(again, 0, 0, 2), at(again, 1, 0, 2));
  EXPECT_NE(at(again, 0, 0, 2), at(again, 0, 2, 1)) << "blocks 5 and 10 of one session";
}

std::uint64_t common_tokens(const std::vector<Piece>& a, const std::vector<Piece>& b) {
  std::uint64_t common = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].content != b[i].content || a[i].skip != b[i].skip) break;
    common += std::min(a[i].tokens, b[i].tokens);
    if (a[i].tokens != b[i].tokens) break;
  }
  return common;
}

// The data's README: 0.973 of a request's blocks are an unchanged prefix of the one before it.
TEST(Weka, ReusesInTheFileWhatItsReadmeSays) {
  const auto path = shared_data("weka-agentic-coding/sessions.jsonl.gz");
  if (!path) GTEST_SKIP() << "the sessions are not at $LOCI_SHARED_DATA";
  const auto sessions = parse_weka(read_text(*path).value(), "w").value();
  ASSERT_EQ(sessions.size(), 517u);
  const Trace trace = trace_of_sessions(sessions, "w", 0.1, 1);
  EXPECT_EQ(trace.requests(), 34'093u);
  EXPECT_EQ(trace.conversations.size(), 517u + 45);
  std::uint64_t prompts = 0, common = 0, of_tools = 0;
  for (std::size_t c = 0; c < trace.conversations.size(); ++c) {
    const std::vector<Turn>& turns = trace.conversations[c].turns;
    for (std::size_t t = 1; t < turns.size(); ++t) {
      prompts += tokens_of(turns[t].pieces);
      common += common_tokens(turns[t - 1].pieces, turns[t].pieces);
    }
    if (c > 0) of_tools += common_tokens(trace.conversations[c - 1].turns[0].pieces, turns[0].pieces) > 9000;
  }
  EXPECT_NEAR(static_cast<double>(common) / static_cast<double>(prompts), 0.973, 0.004);
  EXPECT_GT(of_tools, 20u) << "sessions that begin with the tools of the one before them";
}

TEST(Weka, ReadsTheOriginalsForm) {
  const auto path = shared_data("weka-agentic-coding/raw-sample/trace_0057.json.gz");
  const auto runs = shared_data("weka-agentic-coding/sessions.jsonl.gz");
  if (!path || !runs) GTEST_SKIP() << "the sessions are not at $LOCI_SHARED_DATA";
  const auto original = parse_weka(read_text(*path).value(), "w").value();
  ASSERT_EQ(original.size(), 1u);
  ASSERT_EQ(original[0].requests[0].blocks, (std::vector<WekaRun>{{1, 205}}));
  const auto all = parse_weka(read_text(*runs).value(), "w").value();
  EXPECT_TRUE(std::ranges::any_of(all, [&](const WekaSession& session) {
    return session.requests.size() == original[0].requests.size() &&
           session.requests.back().blocks == original[0].requests.back().blocks &&
           session.tool_tokens == original[0].tool_tokens;
  }));
}

}  // namespace
}  // namespace loci::sim
