// SPDX-License-Identifier: Apache-2.0
// Every field of a response's request: accepted forms, refused types, both sides of each limit.
#include "loci/serve/responses/response_request.h"
#include "loci/serve/request/generation_fields.h"
#include "loci/serve/request/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "loci/serve/request/chat_request.h"

namespace loci {
namespace {

Result<ResponseRequest> parse(const Json& extra, bool can_store = true) {
  Json request = {{"input", "hello"}};
  request.update(extra);
  return parse_response_request(request, can_store);
}

ResponseRequest accepted(const Json& extra = Json::object(), bool can_store = true) {
  Result<ResponseRequest> result = parse(extra, can_store);
  EXPECT_TRUE(result.ok()) << extra.dump() << ": " << result.status().to_string();
  return result.ok() ? std::move(*result) : ResponseRequest{};
}

// The error's field, then a part of its message.
void refused(const Json& extra, const std::string& field, const std::string& part = "",
             bool can_store = true) {
  const Result<ResponseRequest> result = parse(extra, can_store);
  ASSERT_FALSE(result.ok()) << extra.dump();
  EXPECT_EQ(result.status().field(), field) << extra.dump() << result.status().message();
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

TEST(ResponseRequest, DefaultsAreOpenAis) {
  const ResponseRequest request = accepted();
  EXPECT_TRUE(request.store);
  EXPECT_FALSE(request.background || request.stream || request.logprobs);
  ASSERT_EQ(request.input.size(), 1u);
  EXPECT_EQ(request.input[0]["role"], "user");
  EXPECT_EQ(request.input[0]["content"][0]["text"], "hello");
  EXPECT_EQ(request.input[0]["content"][0]["type"], "input_text");
  const auto& echo = request.echo;
  EXPECT_EQ(echo["temperature"], 1.0);
  EXPECT_EQ(echo["top_p"], 1.0);
  EXPECT_EQ(echo["truncation"], "disabled");
  EXPECT_EQ(echo["tool_choice"], "auto");
  EXPECT_EQ(echo["tools"], Json::array());
  EXPECT_EQ(echo["parallel_tool_calls"], true);
  EXPECT_EQ(echo["metadata"], Json::object());
  EXPECT_EQ(echo["text"]["format"]["type"], "text");
  for (const char* name : {"instructions", "max_output_tokens", "previous_response_id", "user",
                           "safety_identifier", "prompt_cache_key"})
    EXPECT_TRUE(echo.at(name).is_null()) << name;
  EXPECT_TRUE(request.chat.empty()) << request.chat;
}

TEST(ResponseRequest, StoreFollowsTheServer) {
  EXPECT_FALSE(accepted(Json::object(), false).store);
  EXPECT_FALSE(accepted({{"store", false}}, false).store);
  EXPECT_FALSE(accepted({{"store", false}}).store);
  refused({{"store", true}}, "store", "without a store", false);
  refused({{"store", "yes"}}, "store", "true or false");
  refused({{"background", true}}, "background", "store", false);
  refused({{"background", true}, {"store", false}}, "background", "store");
  refused({{"conversation", "conv_1"}, {"store", false}}, "conversation", "store");
  EXPECT_TRUE(accepted({{"background", true}}).background);
}

TEST(ResponseRequest, ContinuesOneThing) {
  EXPECT_EQ(accepted({{"previous_response_id", "resp_1"}}).previous_response_id, "resp_1");
  EXPECT_EQ(accepted({{"conversation", "conv_1"}}).conversation, "conv_1");
  EXPECT_EQ(accepted({{"conversation", {{"id", "conv_1"}}}}).conversation, "conv_1");
  refused({{"conversation", "c"}, {"previous_response_id", "r"}}, "previous_response_id",
          "without conversation");
  refused({{"conversation", Json::object()}}, "conversation.id", "required");
  refused({{"conversation", 5}}, "conversation", "5");
  refused({{"previous_response_id", 5}}, "previous_response_id", "a string");
}

TEST(ResponseRequest, InputIsRequired) {
  for (const Json& body : {Json::object(), Json({{"input", nullptr}})}) {
    const auto result = parse_response_request(body, true);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.status().field(), "input");
  }
  EXPECT_FALSE(parse_response_request(Json::array(), true).ok());
  refused({{"input", Json::array()}}, "input", "at least one");
  refused({{"input", 7}}, "input", "a string or an array of items; got 7");
  refused({{"input", Json::array({3})}}, "input[0]", "3");
}

TEST(ResponseRequest, LimitsOfTheReply) {
  const ResponseRequest request = accepted({{"max_output_tokens", 20}, {"max_tool_calls", 3}});
  EXPECT_EQ(request.chat["max_completion_tokens"], 20);
  EXPECT_EQ(request.echo["max_output_tokens"], 20);
  EXPECT_EQ(request.echo["max_tool_calls"], 3);
  refused({{"max_output_tokens", 0}}, "max_output_tokens", "from 1 to");
  refused({{"max_output_tokens", "9"}}, "max_output_tokens", "an integer");
  refused({{"max_tool_calls", 0}}, "max_tool_calls");
  accepted({{"truncation", "disabled"}});
  accepted({{"truncation", "auto"}});
  refused({{"truncation", "some"}}, "truncation", "disabled");
}

TEST(ResponseRequest, SamplingGoesToTheChatParser) {
  const ResponseRequest request = accepted({{"temperature", 0.5},
                                            {"top_p", 0.9},
                                            {"seed", 4},
                                            {"stop", "x"},
                                            {"top_k", 3},
                                            {"model", "m"},
                                            {"stream", true}});
  Json chat = request.chat;
  chat["messages"] = to_messages(request.input);
  const Result<ChatRequest> parsed = parse_chat_request(chat);
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed.value().fields.sampling.temperature, 0.5f);
  EXPECT_EQ(parsed.value().fields.sampling.seed, 4u);
  EXPECT_EQ(parsed.value().fields.sampling.top_k, 3u);
  EXPECT_EQ(parsed.value().fields.stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(parsed.value().fields.stream);
  EXPECT_EQ(request.echo["temperature"], 0.5);
  EXPECT_EQ(response_field("max_completion_tokens"), "max_output_tokens");
  EXPECT_EQ(response_field("response_format.json_schema.schema"), "text.format.schema");
  EXPECT_EQ(response_field("messages[3].content"), "input");
  EXPECT_EQ(response_field("temperature"), "temperature");
}

TEST(ResponseRequest, LogprobsAreIncluded) {
  EXPECT_FALSE(accepted({{"top_logprobs", 3}}).logprobs);
  const ResponseRequest request =
      accepted({{"top_logprobs", 3}, {"include", {"message.output_text.logprobs"}}});
  EXPECT_TRUE(request.logprobs);
  EXPECT_EQ(request.chat["logprobs"], true);
  EXPECT_EQ(request.chat["top_logprobs"], 3);
  accepted({{"include", {"reasoning.encrypted_content"}}});
  refused({{"top_logprobs", 21}}, "top_logprobs", "from 0 to 20");
  refused({{"include", {"everything"}}}, "include[0]", "message.output_text.logprobs");
  refused({{"include", "message.output_text.logprobs"}}, "include", "an array");
}

TEST(ResponseRequest, ReasoningReachesTheTemplate) {
  const ResponseRequest low = accepted({{"reasoning", {{"effort", "low"}, {"summary", "auto"}}}});
  EXPECT_EQ(low.chat["chat_template_kwargs"]["reasoning_effort"], "low");
  EXPECT_EQ(low.chat["chat_template_kwargs"]["enable_thinking"], true);
  EXPECT_EQ(low.echo["reasoning"]["effort"], "low");
  EXPECT_EQ(accepted({{"reasoning", {{"effort", "none"}}}}).chat["chat_template_kwargs"]["enable_thinking"],
            false);
  // What the client tells the template itself counts.
  const ResponseRequest both = accepted(
      {{"reasoning", {{"effort", "low"}}}, {"chat_template_kwargs", {{"reasoning_effort", "high"}}}});
  EXPECT_EQ(both.chat["chat_template_kwargs"]["reasoning_effort"], "high");
  refused({{"reasoning", {{"effort", "huge"}}}}, "reasoning.effort", "minimal");
  refused({{"reasoning", {{"summary", "long"}}}}, "reasoning.summary", "concise");
  refused({{"reasoning", "low"}}, "reasoning", "object");
  refused({{"chat_template_kwargs", 1}}, "chat_template_kwargs", "an object");
}

TEST(ResponseRequest, FormatsOfText) {
  const Json schema = {{"type", "object"}};
  const ResponseRequest request = accepted(
      {{"text",
        {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", schema}, {"strict", true}}}}}});
  EXPECT_EQ(request.chat["response_format"]["json_schema"]["schema"], schema);
  EXPECT_EQ(request.chat["response_format"]["json_schema"]["strict"], true);
  EXPECT_EQ(request.echo["text"]["format"]["name"], "n");
  EXPECT_EQ(accepted({{"text", {{"format", {{"type", "json_object"}}}}}}).chat["response_format"]["type"],
            "json_object");
  EXPECT_FALSE(accepted({{"text", {{"format", {{"type", "text"}}}}}}).chat.contains("response_format"));
  EXPECT_EQ(accepted({{"text", {{"verbosity", "low"}}}}).echo["text"]["verbosity"], "low");
  refused({{"text", {{"format", {{"type", "xml"}}}}}}, "text.format.type", "json_schema");
  refused({{"text", {{"format", {{"type", "json_schema"}, {"schema", schema}}}}}}, "text.format.name",
          "required");
  refused({{"text", {{"format", {{"type", "json_schema"}, {"name", "n"}}}}}}, "text.format.schema",
          "required");
  refused({{"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", 3}}}}}},
          "text.format.schema", "an object");
  refused({{"text", {{"format", "json"}}}}, "text.format", "object");
  refused({{"text", {{"verbosity", "loud"}}}}, "text.verbosity", "medium");
}

TEST(ResponseRequest, ToolsHaveTheChatsShape) {
  const Json tool = {
      {"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}, {"description", "d"}};
  const ResponseRequest request = accepted({{"tools", {tool}}, {"parallel_tool_calls", false}});
  EXPECT_EQ(request.chat["tools"][0]["function"]["name"], "f");
  EXPECT_EQ(request.chat["tools"][0]["function"]["parameters"]["type"], "object");
  EXPECT_EQ(request.chat["parallel_tool_calls"], false);
  EXPECT_EQ(request.echo["tools"][0]["name"], "f");
  EXPECT_TRUE(request.echo["tools"][0]["strict"].is_null());
  EXPECT_FALSE(accepted({{"parallel_tool_calls", false}}).chat.contains("parallel_tool_calls"));
  for (const char* mode : {"none", "auto", "required"})
    EXPECT_EQ(accepted({{"tools", {tool}}, {"tool_choice", mode}}).chat["tool_choice"], mode);
  const Json named = {{"type", "function"}, {"name", "f"}};
  const ResponseRequest choice = accepted({{"tools", {tool}}, {"tool_choice", named}});
  EXPECT_EQ(choice.chat["tool_choice"]["function"]["name"], "f");
  EXPECT_EQ(choice.echo["tool_choice"], named);
  Json other = tool;
  other["name"] = "g";
  const Json allowed = {{"type", "allowed_tools"}, {"mode", "required"}, {"tools", {named}}};
  const ResponseRequest some = accepted({{"tools", {other, tool}}, {"tool_choice", allowed}});
  EXPECT_EQ(some.chat["tools"].size(), 1u);
  EXPECT_EQ(some.chat["tool_choice"], "required");
  EXPECT_EQ(some.echo["tools"].size(), 2u);
}

TEST(ResponseRequest, RefusedTools) {
  const Json tool = {{"type", "function"}, {"name", "f"}};
  refused({{"tools", 5}}, "tools", "an array");
  refused({{"tools", {{{"type", "web_search"}}}}}, "tools[0].type", "web_search");
  refused({{"tools", {{{"type", "function"}}}}}, "tools[0].name", "required");
  refused({{"tools", {{{"type", "function"}, {"name", "f"}, {"parameters", "x"}}}}}, "tools[0].parameters",
          "an object");
  refused({{"tools", {{{"type", "function"}, {"name", "f"}, {"strict", 1}}}}}, "tools[0].strict",
          "true or false");
  refused({{"tools", Json(kToolsMax + 1, tool)}}, "tools", "at most 128");
  EXPECT_EQ(accepted({{"tools", Json(kToolsMax, tool)}}).chat["tools"].size(), kToolsMax);
  refused({{"tool_choice", "any"}}, "tool_choice", "required");
  refused({{"tool_choice", "required"}}, "tool_choice", "only allowed with tools");
  refused({{"tools", {tool}}, {"tool_choice", {{"type", "function"}, {"name", "g"}}}}, "tool_choice.name",
          "\"g\"");
  refused({{"tools", {tool}}, {"tool_choice", {{"type", "mcp"}}}}, "tool_choice.type", "mcp");
  refused({{"tools", {tool}}, {"tool_choice", {{"type", "allowed_tools"}, {"mode", "x"}}}},
          "tool_choice.mode", "auto");
  refused({{"tools", {tool}}, {"tool_choice", {{"type", "allowed_tools"}, {"mode", "auto"}}}},
          "tool_choice.tools");
  refused({{"parallel_tool_calls", 1}}, "parallel_tool_calls", "true or false");
}

TEST(ResponseRequest, MetadataHasLimits) {
  Json full = Json::object();
  for (std::size_t i = 0; i < kMetadataPairsMax; ++i) full[fmt::format("k{}", i)] = "v";
  EXPECT_EQ(accepted({{"metadata", full}}).echo["metadata"].size(), kMetadataPairsMax);
  full["more"] = "v";
  refused({{"metadata", full}}, "metadata", "at most 16 pairs; got 17");
  // Characters, not bytes.
  std::string key, value;
  for (std::size_t i = 0; i < kMetadataKeyCharactersMax; ++i) key += "é";
  for (std::size_t i = 0; i < kMetadataValueCharactersMax; ++i) value += "é";
  accepted({{"metadata", {{key, value}}}});
  refused({{"metadata", {{key + "e", "v"}}}}, "metadata", "at most 64 characters; got one of 65");
  refused({{"metadata", {{"k", value + "e"}}}}, "metadata.k", "at most 512 characters; got 513");
  refused({{"metadata", {{"k", 1}}}}, "metadata.k", "a string");
  refused({{"metadata", "k"}}, "metadata", "an object");
}

TEST(ResponseRequest, RefusesWhatIsNotServed) {
  refused({{"prompt", {{"id", "pmpt_1"}}}}, "prompt", "not supported");
  refused({{"context_management", Json::array()}}, "context_management", "not supported");
  refused({{"messages", Json::array()}}, "messages", "not supported");
  refused({{"n", 2}}, "n", "not supported");
  accepted({{"n", 1}, {"something_new", 3}, {"service_tier", "flex"}});
  refused({{"stream_options", {{"include_obfuscation", false}}}}, "stream_options", "stream is true");
  accepted({{"stream", true}, {"stream_options", {{"include_obfuscation", false}}}});
  refused({{"user", 4}}, "user", "a string");
  refused({{"instructions", 4}}, "instructions", "a string");
}

}  // namespace
}  // namespace loci
