// SPDX-License-Identifier: Apache-2.0
// Other projects' traces of which a line is a request: excerpts here, and the files themselves where they
// are.
#include "loci/sim/trace_readers.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "loci/sim/packed_file.h"
#include "loci/sim/scenario.h"
#include "loci/sim/servegen.h"
#include "loci/sim/trace_source.h"
#include "loci/sim/weka.h"

namespace loci::sim {
namespace {

std::vector<Nanos> first_times(const Trace& trace) {
  std::vector<Nanos> times;
  for (const Conversation& conversation : trace.conversations) times.push_back(conversation.turns[0].at);
  return times;
}

template <class Parse>
std::string reading_error(const Parse& parse, const std::string& text) {
  return parse(text, "t").status().message();
}

std::string mooncake_line(std::uint64_t time) {
  return "{\"timestamp\":" + std::to_string(time) +
         ",\"input_length\":600,\"output_length\":5,\"hash_ids\":[0,1]}\n";
}

// Printing a value takes a call for each of its levels, so a line may not have many.
TEST(TraceReaders, RefuseALineThatIsTooDeep) {
  for (const std::size_t levels : {std::size_t{64}, std::size_t{1'000'000}}) {
    const std::string deep = std::string(levels, '[') + std::string(levels, ']');
    const std::string expected = "expected at most 64 levels of arrays and objects, found more";
    EXPECT_EQ(reading_error(parse_trace, "\n{\"time_ms\":" + deep + "}"), "t:2: line: " + expected);
    EXPECT_EQ(reading_error(parse_mooncake, "{\"hash_ids\":" + deep + "}"), "t:1: line: " + expected);
    EXPECT_EQ(reading_error(parse_weka, "{\"requests\":" + deep + "}"), "t:1: line: " + expected);
    EXPECT_EQ(reading_error(parse_servegen, "{\"trace\":" + deep + "}"), "t:1: line: " + expected);
    EXPECT_EQ(parse_scenario_text("{\"model\":" + deep + "}", "s").status().message(), "s: " + expected);
    nlohmann::json json = nlohmann::json::object();
    EXPECT_EQ(set_field(json, "model", "[" + deep + "]").message(), "model: " + expected);
  }
  std::string path = "model";
  for (int level = 0; level < 64; ++level) path += ".a";
  nlohmann::json json = nlohmann::json::object();
  EXPECT_EQ(set_field(json, path, "1").message(),
            path.substr(0, 40) + ": expected at most 64 levels of arrays and objects, found more");
  const std::string open(1'000'000, '[');
  EXPECT_EQ(reading_error(parse_trace, "{\"time_ms\":" + open),
            "t:1: line: expected at most 64 levels of arrays and objects, found more");
}

TEST(TraceReaders, ShowOnlyTheTypeOfWhatIsNested) {
  const std::string deep = std::string(63, '[') + std::string(63, ']');
  EXPECT_EQ(reading_error(parse_trace, "{\"time_ms\":" + deep + "}"),
            "t:1: time_ms: expected milliseconds from 0 to 10^12, found array");
  EXPECT_EQ(reading_error(parse_trace, R"({"time_ms":{"a":1}})"),
            "t:1: time_ms: expected milliseconds from 0 to 10^12, found object");
  EXPECT_EQ(reading_error(parse_trace, R"({"time_ms":[1,"x"]})"),
            "t:1: time_ms: expected milliseconds from 0 to 10^12, found [1,\"x\"]");
}

TEST(Mooncake, ReadsBlocksAndLengths) {
  const auto trace = parse_mooncake(
      "{\"timestamp\":0,\"input_length\":600,\"output_length\":5,\"hash_ids\":[0,1]}\n"
      "{\"timestamp\":3000,\"input_length\":1024,\"output_length\":2,\"hash_ids\":[0,2]}\n",
      "m.jsonl");
  ASSERT_TRUE(trace.ok());
  EXPECT_EQ(trace->conversations[0].turns[0].pieces[0], trace->conversations[1].turns[0].pieces[0]);
  EXPECT_EQ(trace->conversations[1].turns[0].at, 3 * kNanosPerSecond);
  EXPECT_TRUE(trace->notes.empty()) << "no two requests have the same time";
  EXPECT_EQ(
      parse_mooncake(R"({"timestamp":0,"input_length":600,"output_length":5,"hash_ids":[0]})", "m.jsonl")
          .status()
          .message(),
      "m.jsonl:1: hash_ids: expected 2 hashes for 600 tokens in blocks of 512, found 1");
  EXPECT_EQ(reading_error(parse_mooncake, mooncake_line(5) + mooncake_line(4)),
            "t:2: timestamp: expected times that do not go back, found an earlier one");
}

TEST(Mooncake, SpreadsRequestsOfOneTimeOverTheirStep) {
  std::string text;
  for (const std::uint64_t time : {0, 0, 0, 3000, 3000, 6000, 90'000, 90'000}) text += mooncake_line(time);
  const Trace trace = parse_mooncake(text, "m.jsonl").value();
  constexpr Nanos kHalf = kNanosPerSecond / 2;
  EXPECT_EQ(first_times(trace), (std::vector<Nanos>{0, 2 * kHalf, 4 * kHalf, 6 * kHalf, 9 * kHalf, 12 * kHalf,
                                                    180 * kHalf, 183 * kHalf}))
      << "a step is as long as the median one at most, and so is the last";
  for (const Conversation& conversation : trace.conversations)
    EXPECT_EQ(conversation.turns[0].noted, conversation.turns[0].at);
  ASSERT_EQ(trace.notes.size(), 1u);
  EXPECT_TRUE(trace.notes[0].starts_with("8 requests have 4 different times, in the median 3 s apart"))
      << trace.notes[0];
  EXPECT_EQ(first_times(parse_mooncake(mooncake_line(7) + mooncake_line(7), "m").value()),
            (std::vector<Nanos>{7'000'000, 7'000'000}))
      << "there is no step";
}

TEST(Mooncake, IsSpreadInTheFile) {
  const auto path = shared_data("mooncake/conversation_trace.jsonl.gz");
  if (!path) GTEST_SKIP() << "mooncake's trace is not at $LOCI_SHARED_DATA";
  const Trace trace = read_source({.file = *path, .format = "mooncake"}).value();
  ASSERT_EQ(trace.requests(), 5719u);
  std::map<Nanos, int> at_once;
  for (const Nanos at : first_times(trace)) ++at_once[at];
  EXPECT_GT(at_once.size(), 5700u) << "of 600 in the file";
  for (const auto& [at, count] : at_once) EXPECT_LE(count, 2);
}

TEST(Azure, ReadsTimesFromTheFirstRowOn) {
  const auto trace = parse_azure(
      "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
      "2023-12-31 23:59:59.6805900,374,44\r\n"
      "2024-01-01 00:00:00,396,109\n"
      "2024-01-01 00:01:00.5,1,1\n",
      "a.csv");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(first_times(*trace), (std::vector<Nanos>{0, 319'410'000, 60'819'410'000}));
  const Turn& second = trace->conversations[1].turns[0];
  EXPECT_EQ(tokens_of(second.pieces), 396u);
  EXPECT_EQ(second.reply_tokens, 109u);
  EXPECT_NE(second.pieces[0].content, trace->conversations[0].turns[0].pieces[0].content);
  EXPECT_FALSE(trace->conversations[0].client);
}

TEST(Azure, NamesWhatIsWrong) {
  const std::string head = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  const auto error = [&](const std::string& rows) { return reading_error(parse_azure, head + rows); };
  EXPECT_EQ(reading_error(parse_azure, "TIMESTAMP,Context,Generated\n"),
            "t:1: header: expected 'TIMESTAMP,ContextTokens,GeneratedTokens', found "
            "'TIMESTAMP,Context,Generated'");
  EXPECT_EQ(error(""), "t: expected at least one request, found none");
  EXPECT_EQ(error("2023-11-16 18:15:46,5\n"),
            "t:2: line: expected 3 cells, TIMESTAMP, ContextTokens, GeneratedTokens, found 2");
  for (const std::string time :
       {"2023-02-29 18:15:46", "2023-11-16T18:15:46", "2023-11-16 24:15:46", "2023-11-16 18:15:46.",
        "2023-11-16 18:15:46.1234567890", "2023-11-16 18:15", "", "2023-11-16 18:15:4x"}) {
    EXPECT_EQ(error(time + ",5,5\n"),
              "t:2: TIMESTAMP: expected a time as 2023-11-16 18:15:46.6805900, found '" + time + "'");
  }
  EXPECT_EQ(error("2023-11-16 18:15:46.5,5,5\n2023-11-16 18:15:46.4,5,5\n"),
            "t:3: TIMESTAMP: expected times that do not go back, found '2023-11-16 18:15:46.4'");
  EXPECT_EQ(error("1023-11-16 18:15:46,5,5\n9023-11-16 18:15:46,5,5\n"),
            "t:3: TIMESTAMP: expected a time less than 10^9 s after the first row's, found "
            "'9023-11-16 18:15:46'");
  EXPECT_EQ(error("2023-11-16 18:15:46,0,5\n"),
            "t:2: ContextTokens: expected a whole number from 1 to 16777216, found '0'");
  EXPECT_EQ(error("2023-11-16 18:15:46,5,-1\n"),
            "t:2: GeneratedTokens: expected a whole number from 1 to 16777216, found '-1'");
}

TEST(Azure, ReadsTheFiles) {
  const auto chat = shared_data("azure-llm-2023/conv.csv.gz");
  if (!chat) GTEST_SKIP() << "Azure's trace is not at $LOCI_SHARED_DATA";
  const Trace trace = read_source({.file = *chat, .format = "azure"}).value();
  ASSERT_EQ(trace.requests(), 11'997u);
  double prompts = 0;
  for (const Conversation& conversation : trace.conversations)
    prompts += static_cast<double>(tokens_of(conversation.turns[0].pieces));
  EXPECT_NEAR(prompts / 11'997, 1254.5, 0.05);
  EXPECT_NEAR(static_cast<double>(trace.conversations.back().turns[0].at) / 1e9, 2053, 0.5);
}

TEST(Arena, ReadsClients) {
  const auto trace = parse_arena(
      "req_time,client,prompt_len,output_len\n"
      "0.000000,13,13,199\n"
      "0.207938,2,36,137\n",
      "a.csv");
  ASSERT_TRUE(trace.ok()) << trace.status().message();
  EXPECT_EQ(first_times(*trace), (std::vector<Nanos>{0, 207'938'000}));
  EXPECT_EQ(trace->conversations[0].client, 13u);
  EXPECT_EQ(tokens_of(trace->conversations[1].turns[0].pieces), 36u);
  EXPECT_EQ(trace->conversations[1].turns[0].reply_tokens, 137u);
}

TEST(Arena, NamesWhatIsWrong) {
  const auto error = [&](const std::string& rows) {
    return reading_error(parse_arena, "req_time,client,prompt_len,output_len\n" + rows);
  };
  for (const std::string time : {"-1", "1e10", "nan", "1s", ""})
    EXPECT_EQ(error(time + ",1,2,3\n"),
              "t:2: req_time: expected seconds from 0 to 10^9, found '" + time + "'");
  EXPECT_EQ(error("2,1,2,3\n1,1,2,3\n"), "t:3: req_time: expected times that do not go back, found '1'");
  EXPECT_EQ(error("2,x,2,3\n"), "t:2: client: expected a whole number from 0 to 4294967295, found 'x'");
  EXPECT_EQ(error("2,1,16777217,3\n"),
            "t:2: prompt_len: expected a whole number from 1 to 16777216, found '16777217'");
  EXPECT_EQ(error("2,1,2,3,4\n"),
            "t:2: line: expected 4 cells, req_time, client, prompt_len, output_len, found 5");
}

}  // namespace
}  // namespace loci::sim
