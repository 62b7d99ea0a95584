// SPDX-License-Identifier: Apache-2.0
// Error objects and the replies' JSON.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loci/serve/api/openai/chat_format.h"
#include "loci/serve/api/openai/completion_format.h"
#include "loci/serve/wire/api_error.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace {

TEST(ApiError, MapsEveryStatusCode) {
  EXPECT_EQ(api_error(invalid_argument("x", "f")).http_status, 400);
  EXPECT_EQ(api_error(unimplemented("x")).http_status, 400);
  EXPECT_EQ(api_error(not_found("x")).http_status, 404);
  EXPECT_EQ(api_error(Status(StatusCode::kDeadlineExceeded, "x")).http_status, 408);
  EXPECT_EQ(api_error(resource_exhausted("x")).http_status, 429);
  EXPECT_EQ(api_error(Status(StatusCode::kUnavailable, "x")).http_status, 503);
  EXPECT_EQ(api_error(Status(StatusCode::kCancelled, "x")).http_status, 503);
  EXPECT_EQ(api_error(data_loss("x")).http_status, 500);
  EXPECT_EQ(api_error(internal_error("x")).http_status, 500);
}

TEST(ApiError, IsOpenAisObject) {
  const Json body = Json::parse(to_json(api_error(invalid_argument("expected 1; got \"\xff\"", "top_p"))));
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(body["error"]["param"], "top_p");
  EXPECT_EQ(body["error"]["code"], "invalid_value");
  EXPECT_TRUE(body["error"]["message"].get<std::string>().starts_with("top_p: expected 1; got"));
  EXPECT_TRUE(Json::parse(to_json(http_error(404, "x")))["error"]["param"].is_null());
}

TEST(ApiError, RetryAfterIsWholeSecondsAtLeastOne) {
  EXPECT_EQ(api_error(resource_exhausted("x"), 0).retry_after_seconds, 1u);
  EXPECT_EQ(api_error(resource_exhausted("x"), 1'500'000'000).retry_after_seconds, 2u);
  EXPECT_EQ(api_error(resource_exhausted("x"), -5).retry_after_seconds, 1u);
  EXPECT_FALSE(api_error(invalid_argument("x"), 5).retry_after_seconds.has_value());
}

TEST(ApiError, ContextLengthNamesBothNumbers) {
  const ApiError error = context_length_error(9000, 8192, "messages");
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_EQ(error.param, "messages");
  // What LiteLLM and Claude Code look for.
  EXPECT_NE(error.message.find("This model's maximum context length is 8192 tokens"), std::string::npos);
  EXPECT_TRUE(error.message.ends_with("prompt is too long: 9000 tokens > 8191 maximum")) << error.message;
  const ApiError begun = context_length_error(9000, 8192, "messages", /*counted_all=*/false);
  EXPECT_NE(begun.message.find("prompt is too long: 9000 tokens > 8191 maximum"), std::string::npos);
  EXPECT_TRUE(begun.message.ends_with(" (not all of it was counted)"));
}

ReplyHead head(bool logprobs) {
  return {.id = "id-1",
          .created = 5,
          .model = "m",
          .fingerprint = "f",
          .logprobs = logprobs,
          .include_usage = true};
}

// The objects of a stream's events.
std::vector<Json> objects(const std::string& events) {
  SseParser parser;
  std::vector<Json> out;
  for (const std::string& data : parser.push(events)) {
    if (data != kSseDone) out.push_back(Json::parse(data));
  }
  return out;
}

TEST(ChatFormat, WholeReply) {
  FinishedChoice choice;
  choice.output.parts.emplace_back(TextPiece{"hi"});
  const Json body =
      Json::parse(make_chat_format(head(false))
                      ->whole({choice}, {.prompt_tokens = 10, .cached_tokens = 8, .completion_tokens = 2}));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "hi");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_FALSE(body["choices"][0]["message"].contains("tool_calls"));
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["total_tokens"], 12);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 8);
}

TEST(ChatFormat, StreamAndWholeTellTheSameCalls) {
  OutputDelta delta;
  delta.pieces = {ReasoningPiece{"so"},    TextPiece{"I "},      TextPiece{"call"}, ToolCallStart{"c1", "f"},
                  ToolCallPiece{"{\"a\""}, ToolCallPiece{":1}"}, ToolCallEnd{},     ToolCallStart{"c2", "g"},
                  ToolCallPiece{"{}"},     ToolCallEnd{}};
  const std::unique_ptr<ReplyFormat> format = make_chat_format(head(false));
  Json calls = Json::array();
  std::string text;
  for (const Json& chunk : objects(format->delta(0, delta))) {
    const Json& got = chunk["choices"][0]["delta"];
    if (got.contains("content")) text += got["content"].get<std::string>();
    if (!got.contains("tool_calls")) continue;
    const Json& call = got["tool_calls"][0];
    const std::size_t index = call["index"];
    if (call.contains("id"))
      calls.push_back({{"id", call["id"]}, {"name", call["function"]["name"]}, {"arguments", ""}});
    calls[index]["arguments"] =
        calls[index]["arguments"].get<std::string>() + call["function"]["arguments"].get<std::string>();
  }
  FinishedChoice choice{.output = {}, .finish = ReplyFinish::kToolCalls, .stop_string = {}, .tokens = {}};
  choice.output.append(delta);
  const Json whole = Json::parse(format->whole({choice}, {}))["choices"][0];
  EXPECT_EQ(whole["finish_reason"], "tool_calls");
  EXPECT_EQ(whole["message"]["content"], text);
  EXPECT_EQ(whole["message"]["reasoning_content"], "so");
  ASSERT_EQ(whole["message"]["tool_calls"].size(), calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(whole["message"]["tool_calls"][i]["id"], calls[i]["id"]);
    EXPECT_EQ(whole["message"]["tool_calls"][i]["function"]["name"], calls[i]["name"]);
    EXPECT_EQ(whole["message"]["tool_calls"][i]["function"]["arguments"], calls[i]["arguments"]);
  }
}

TEST(Formats, LogprobsInBothShapes) {
  LogprobEntry entry{
      .bytes = "\xe2\x82", .logprob = -0.5f, .top = {{"a", -0.5f}, {"b", -1.0f}}, .text_offset = 3};
  OutputDelta delta;
  delta.pieces.emplace_back(TextPiece{"x"});
  delta.logprobs.push_back(entry);
  const Json chat = objects(make_chat_format(head(true))->delta(1, delta)).at(0);
  const Json& token = chat["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(token["bytes"], Json::array({0xe2, 0x82}));
  EXPECT_EQ(token["logprob"], -0.5);
  EXPECT_EQ(token["top_logprobs"][1]["token"], "b");
  EXPECT_EQ(chat["choices"][0]["index"], 1);
  const Json text = objects(make_completion_format(head(true))->delta(0, delta)).at(0);
  EXPECT_EQ(text["choices"][0]["text"], "x");
  EXPECT_EQ(text["choices"][0]["logprobs"]["text_offset"][0], 3);
  EXPECT_EQ(text["choices"][0]["logprobs"]["top_logprobs"][0]["b"], -1.0);
  EXPECT_EQ(text["choices"][0]["logprobs"]["token_logprobs"][0], -0.5);
}

// Each is half a character: as text they would all be U+FFFD.
TEST(Formats, TokensThatAreNoTextAreSpelled) {
  OutputDelta delta;
  delta.logprobs.push_back(
      {.bytes = "\xe4\xb8",
       .logprob = -0.5f,
       .top = {{"\xe4\xb8", -0.5f}, {" \\\xf0\x9f", -1.0f}, {"\xe4\xb9", -1.5f}, {"\xe4\xb9", -2.0f}}});
  const std::string events = make_completion_format(head(true))->delta(0, delta);
  const Json lists = objects(events).at(0)["choices"][0]["logprobs"];
  EXPECT_EQ(lists["tokens"][0], "bytes:\\xe4\\xb8");
  const Json expected = {
      {"bytes:\\xe4\\xb8", -0.5}, {"bytes: \\x5c\\xf0\\x9f", -1.0}, {"bytes:\\xe4\\xb9", -1.5}};
  EXPECT_EQ(lists["top_logprobs"][0], expected);
}

FinishedChoice spoken(std::uint32_t index, const std::string& text, std::vector<float> logprobs) {
  FinishedChoice choice{.index = index, .stop_string = {}};
  choice.output.parts.emplace_back(TextPiece{text});
  for (const float logprob : logprobs) choice.output.logprobs.push_back({.bytes = "x", .logprob = logprob});
  return choice;
}

TEST(Formats, TheLikeliestOfEachPromptAreKept) {
  const std::unique_ptr<ReplyFormat> format =
      make_completion_format(head(false), {.echoed = {}, .generated = 3, .kept = 2});
  const Json body = Json::parse(
      format->whole({spoken(0, "low", {-3, -3}), spoken(1, "none", {}), spoken(2, "long", {-1, -1, -1, -1}),
                     spoken(3, "b", {-1}), spoken(4, "a", {-0.5}), spoken(5, "c", {-1})},
                    {}));
  std::vector<std::string> texts;
  for (const Json& choice : body["choices"]) {
    EXPECT_EQ(choice["index"], texts.size());
    EXPECT_TRUE(choice["logprobs"].is_null());
    texts.push_back(choice["text"]);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"long", "low", "a", "b"}));
}

TEST(Formats, EchoBeginsEveryChoice) {
  const std::unique_ptr<ReplyFormat> format =
      make_completion_format(head(false), {.echoed = {"One", "Two"}, .generated = 2, .kept = 2});
  const Json body = Json::parse(format->whole(
      {spoken(0, " a", {}), spoken(1, " b", {}), spoken(2, " c", {}), spoken(3, " d", {})}, {}));
  EXPECT_EQ(body["choices"][1]["text"], "One b");
  EXPECT_EQ(body["choices"][2]["text"], "Two c");
  EXPECT_EQ(objects(format->begin_choice(3)).at(0)["choices"][0]["text"], "Two");
  EXPECT_EQ(objects(format->begin_choice(3)).at(0)["choices"][0]["index"], 3);
}

TEST(Formats, ChunksOfAStream) {
  const std::unique_ptr<ReplyFormat> chat = make_chat_format(head(false));
  const Json role = objects(chat->begin_choice(0)).at(0);
  EXPECT_EQ(role["object"], "chat.completion.chunk");
  EXPECT_EQ(role["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(role["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(role.contains("usage") && role["usage"].is_null());
  FinishedChoice choice;
  choice.index = 2;
  choice.finish = ReplyFinish::kLength;
  const Json finish = objects(chat->finish_choice(choice)).at(0);
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(finish["choices"][0]["delta"], Json::object());
  const Json usage = objects(chat->end({choice}, {.prompt_tokens = 1, .completion_tokens = 2})).at(0);
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 2);
  ReplyHead quiet = head(false);
  quiet.include_usage = false;
  EXPECT_FALSE(objects(make_completion_format(quiet)->finish_choice(choice)).at(0).contains("usage"));
  EXPECT_TRUE(objects(make_completion_format(quiet)->end({choice}, {})).empty());
}

TEST(Formats, ChunksCarryTheUsageSoFar) {
  ReplyHead asked = head(false);
  asked.continuous_usage = true;
  for (const auto& format : {make_chat_format(asked), make_completion_format(asked)}) {
    const auto counted = [](const std::string& events) {
      const Json usage = objects(events).at(0)["usage"];
      EXPECT_EQ(usage["total_tokens"],
                usage["prompt_tokens"].get<int>() + usage["completion_tokens"].get<int>());
      EXPECT_EQ(usage["prompt_tokens"], 7);
      return usage["completion_tokens"].get<int>();
    };
    const auto delta = [](std::uint32_t tokens) {
      OutputDelta one;
      one.pieces.emplace_back(TextPiece{"x"});
      one.tokens = tokens;
      return one;
    };
    format->begin({.prompt_tokens = 7});
    EXPECT_EQ(counted(format->delta(0, delta(1))), 1);
    EXPECT_EQ(counted(format->delta(1, delta(2))), 3);
    EXPECT_EQ(counted(format->delta(0, delta(4))), 6);
    FinishedChoice choice;
    choice.tokens.assign(5, TokenId(1));
    EXPECT_EQ(counted(format->finish_choice(choice)), 7);
  }
  // It stands by itself, and without it nothing changes.
  asked.include_usage = false;
  EXPECT_TRUE(objects(make_chat_format(asked)->begin_choice(0)).at(0).contains("usage"));
  EXPECT_TRUE(objects(make_chat_format(asked)->end({}, {})).empty());
}

}  // namespace
}  // namespace loci
