// Error objects and the replies' JSON.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "loci/serve/api_error.h"
#include "loci/serve/response_json.h"

namespace loci {
namespace {

using nlohmann::json;

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
  const json body = json::parse(to_json(api_error(invalid_argument("expected 1; got \"\xff\"", "top_p"))));
  EXPECT_EQ(body["error"]["type"], "invalid_request_error");
  EXPECT_EQ(body["error"]["param"], "top_p");
  EXPECT_EQ(body["error"]["code"], "invalid_value");
  EXPECT_TRUE(body["error"]["message"].get<std::string>().starts_with("top_p: expected 1; got"));
  EXPECT_TRUE(json::parse(to_json(http_error(404, "x")))["error"]["param"].is_null());
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
  EXPECT_NE(error.message.find("9000"), std::string::npos);
  EXPECT_NE(error.message.find("8192"), std::string::npos);
}

ReplyHead head(ApiShape shape) {
  return {
      .shape = shape, .id = "id-1", .created = 5, .model = "m", .fingerprint = "f", .include_usage = true};
}

TEST(ReplyJson, WholeChatReply) {
  const ReplyChoice choice{.index = 0, .content = {.text = "hi", .logprobs = {}}, .finish_reason = "stop"};
  const json body =
      json::parse(reply_json(head(ApiShape::kChat), {choice}, false,
                             {.prompt_tokens = 10, .cached_tokens = 8, .completion_tokens = 2}));
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["choices"][0]["message"]["content"], "hi");
  EXPECT_EQ(body["choices"][0]["message"]["role"], "assistant");
  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());
  EXPECT_EQ(body["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(body["usage"]["total_tokens"], 12);
  EXPECT_EQ(body["usage"]["prompt_tokens_details"]["cached_tokens"], 8);
}

TEST(ReplyJson, LogprobsInBothShapes) {
  LogprobEntry entry{
      .bytes = "\xe2\x82", .logprob = -0.5f, .top = {{"a", -0.5f}, {"b", -1.0f}}, .text_offset = 3};
  const Delta delta{.text = "x", .logprobs = {entry}};
  const json chat = json::parse(delta_chunk_json(head(ApiShape::kChat), 1, delta, true));
  const json& token = chat["choices"][0]["logprobs"]["content"][0];
  EXPECT_EQ(token["bytes"], json::array({0xe2, 0x82}));
  EXPECT_EQ(token["logprob"], -0.5);
  EXPECT_EQ(token["top_logprobs"][1]["token"], "b");
  EXPECT_EQ(chat["choices"][0]["index"], 1);
  const json text = json::parse(delta_chunk_json(head(ApiShape::kCompletion), 0, delta, true));
  EXPECT_EQ(text["choices"][0]["text"], "x");
  EXPECT_EQ(text["choices"][0]["logprobs"]["text_offset"][0], 3);
  EXPECT_EQ(text["choices"][0]["logprobs"]["top_logprobs"][0]["b"], -1.0);
  EXPECT_EQ(text["choices"][0]["logprobs"]["token_logprobs"][0], -0.5);
}

TEST(ReplyJson, ChunksOfAStream) {
  const json role = json::parse(role_chunk_json(head(ApiShape::kChat), 0));
  EXPECT_EQ(role["object"], "chat.completion.chunk");
  EXPECT_EQ(role["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(role["choices"][0]["finish_reason"].is_null());
  EXPECT_TRUE(role.contains("usage") && role["usage"].is_null());
  const json finish = json::parse(finish_chunk_json(head(ApiShape::kChat), 2, "length"));
  EXPECT_EQ(finish["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(finish["choices"][0]["delta"], json::object());
  const json usage =
      json::parse(usage_chunk_json(head(ApiShape::kChat), {.prompt_tokens = 1, .completion_tokens = 2}));
  EXPECT_EQ(usage["choices"], json::array());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 2);
  ReplyHead quiet = head(ApiShape::kCompletion);
  quiet.include_usage = false;
  EXPECT_FALSE(json::parse(finish_chunk_json(quiet, 0, "stop")).contains("usage"));
}

}  // namespace
}  // namespace loci
