// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/reply_stream.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

std::string event(const std::string& data) { return "data: " + data + "\n\n"; }

TEST(ReplyStream, TimesWhatCarriesTextAndNothingElse) {
  ReplyStream reply(BenchApi::kChat);
  reply.push(
      event(R"({"choices":[{"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null})"),
      10);
  reply.push(event(R"({"choices":[{"delta":{"reasoning_content":"hm"}}]})"), 20);
  const std::string split = event(R"({"choices":[{"delta":{"content":"a"}}]})");
  reply.push(split.substr(0, 9), 25);
  reply.push(split.substr(9) + event(R"({"choices":[{"delta":{"content":"b"}}]})"), 30);
  reply.push(event(R"({"choices":[{"delta":{},"finish_reason":"length"}]})"), 40);
  reply.push(
      event(
          R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":5}}})"),
      41);
  EXPECT_FALSE(reply.done());
  reply.push(event("[DONE]"), 42);
  EXPECT_TRUE(reply.done());
  EXPECT_EQ(reply.pieces(), (std::vector<Nanos>{20, 30, 30}));
  EXPECT_EQ(reply.text(), "ab");
  EXPECT_EQ(reply.prompt_tokens(), 7u);
  EXPECT_EQ(reply.output_tokens(), 3u);
  EXPECT_EQ(reply.cached_tokens(), 5u);
  EXPECT_EQ(reply.error(), "");
}

TEST(ReplyStream, ReadsCompletionsAndLlamaCppsTimings) {
  ReplyStream reply(BenchApi::kCompletions);
  reply.push(event(R"({"choices":[{"text":"x","index":0}]})"), 1);
  reply.push(
      event(
          R"({"choices":[{"text":"","finish_reason":"length"}],"usage":{"prompt_tokens":9,"completion_tokens":1},"timings":{"cache_n":6}})"),
      2);
  EXPECT_EQ(reply.pieces(), (std::vector<Nanos>{1}));
  EXPECT_EQ(reply.text(), "x");
  EXPECT_EQ(reply.cached_tokens(), 6u);
}

TEST(ReplyStream, ReadsResponses) {
  ReplyStream reply(BenchApi::kResponses);
  reply.push("event: response.created\n" + event(R"({"type":"response.created","response":{"id":"resp_1"}})"),
             1);
  reply.push(event(R"({"type":"response.reasoning_text.delta","delta":"hm"})"), 2);
  reply.push(event(R"({"type":"response.output_text.delta","delta":"good"})"), 3);
  reply.push(event(R"({"type":"response.output_text.delta","delta":" day"})"), 4);
  reply.push(event(R"({"type":"response.output_text.done","text":"good day"})"), 5);
  EXPECT_FALSE(reply.done());
  reply.push(event(R"({"type":"response.incomplete","response":{"id":"resp_1","usage":{"input_tokens":9,)"
                   R"("output_tokens":3,"input_tokens_details":{"cached_tokens":5}}}})"),
             6);
  EXPECT_TRUE(reply.done());
  EXPECT_EQ(reply.error(), "");
  EXPECT_EQ(reply.id(), "resp_1");
  EXPECT_EQ(reply.text(), "good day");
  EXPECT_EQ(reply.pieces(), (std::vector<Nanos>{2, 3, 4}));
  EXPECT_EQ(reply.prompt_tokens(), 9u);
  EXPECT_EQ(reply.output_tokens(), 3u);
  EXPECT_EQ(reply.cached_tokens(), 5u);
  for (const auto& [text, error] :
       {std::pair{R"({"type":"response.failed","response":{"error":{"message":"out of memory"}}})",
                  "out of memory"},
        std::pair{R"({"type":"response.failed","response":{"error":null}})", "the response failed"},
        std::pair{R"({"type":"response.completed"})",
                  "the server ended a response without saying what it was"},
        std::pair{R"({"type":"error","message":"no"})", "no"}}) {
    ReplyStream wrong(BenchApi::kResponses);
    wrong.push(event(text), 1);
    EXPECT_EQ(wrong.error(), error);
  }
}

TEST(ReplyStream, KnowsNoCountsThatAreNotSaid) {
  ReplyStream reply(BenchApi::kChat);
  reply.push(event(R"({"choices":[{"delta":{"content":"a"}}]})") + event("[DONE]"), 1);
  EXPECT_FALSE(reply.prompt_tokens());
  EXPECT_FALSE(reply.output_tokens());
  EXPECT_FALSE(reply.cached_tokens());
}

TEST(ReplyStream, TellsErrorsAndOtherShapes) {
  const auto error = [](const std::string& data) {
    ReplyStream reply(BenchApi::kChat);
    reply.push(event(data), 1);
    return reply.error();
  };
  EXPECT_EQ(error(R"({"error":{"message":"out of time"}})"), "out of time");
  EXPECT_NE(error("nothing"), "");
  EXPECT_NE(error("[]"), "");
  EXPECT_NE(error("{}"), "");
  EXPECT_EQ(error(R"({"choices":[5]})"), "");
  EXPECT_EQ(error(R"({"choices":[{"delta":5}],"usage":{"prompt_tokens":"x"},"timings":[]})"), "");
}

}  // namespace
}  // namespace loci
