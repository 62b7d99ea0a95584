// SPDX-License-Identifier: Apache-2.0
// Every field of Anthropic's requests: what it becomes, what is refused, both sides of each limit.
#include "loci/serve/anthropic/messages_request.h"
#include "loci/serve/request/json.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "loci/serve/request/generation_fields.h"

namespace loci {
namespace {

Json request(const Json& extra = Json::object()) {
  Json out = {{"model", "m"}, {"max_tokens", 100}, {"messages", {{{"role", "user"}, {"content", "hello"}}}}};
  out.update(extra);
  return out;
}

Json accepted(const Json& extra = Json::object()) {
  Result<MessagesRequest> result = parse_messages_request(request(extra), MessagesPurpose::kReply);
  EXPECT_TRUE(result.ok()) << extra.dump() << ": " << result.status().to_string();
  return result.ok() ? std::move(result->chat) : Json();
}

void refused(const Json& extra, const std::string& field, const std::string& part = "") {
  const Result<MessagesRequest> result = parse_messages_request(request(extra), MessagesPurpose::kReply);
  ASSERT_FALSE(result.ok()) << extra.dump();
  EXPECT_EQ(result.status().field(), field) << extra.dump();
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

Json user(const Json& content) { return {{"role", "user"}, {"content", content}}; }
Json assistant(const Json& content) { return {{"role", "assistant"}, {"content", content}}; }
Json text(const std::string& text) { return {{"type", "text"}, {"text", text}}; }
Json messages(std::initializer_list<Json> list) {
  Json out = Json::object();
  out["messages"] = std::vector<Json>(list);
  return out;
}

Json tool() {
  return {{"name", "weather"},
          {"description", "the weather"},
          {"input_schema", {{"type", "object"}}},
          {"cache_control", {{"type", "ephemeral"}}}};
}

TEST(MessagesRequest, TheLeastOfARequest) {
  const Json chat = accepted();
  EXPECT_EQ(chat["messages"], Json::parse(R"([{"role": "user", "content": "hello"}])"));
  EXPECT_EQ(chat["max_tokens"], 100);
  EXPECT_EQ(chat["model"], "m");
  EXPECT_EQ(chat["stream"], false);
  EXPECT_EQ(chat["chat_template_kwargs"]["enable_thinking"], false);
  EXPECT_FALSE(chat.contains("tools"));
  EXPECT_FALSE(chat.contains("temperature"));
}

TEST(MessagesRequest, AReplyNeedsMaxTokensACountDoesNot) {
  Json body = request();
  body.erase("max_tokens");
  EXPECT_EQ(parse_messages_request(body, MessagesPurpose::kReply).status().field(), "max_tokens");
  EXPECT_TRUE(parse_messages_request(body, MessagesPurpose::kCount).ok());
  body.erase("messages");
  EXPECT_EQ(parse_messages_request(body, MessagesPurpose::kCount).status().field(), "messages");
}

TEST(MessagesRequest, PassesSamplingOn) {
  const Json chat = accepted({{"temperature", 0.5},
                              {"top_p", 0.9},
                              {"top_k", 40},
                              {"stop_sequences", {"a", "b"}},
                              {"stream", true},
                              {"seed", 7},
                              {"metadata", {{"user_id", "u"}}},
                              {"service_tier", "auto"}});
  EXPECT_EQ(chat["temperature"], 0.5);
  EXPECT_EQ(chat["top_p"], 0.9);
  EXPECT_EQ(chat["top_k"], 40);
  EXPECT_EQ(chat["stop"], Json({"a", "b"}));
  EXPECT_EQ(chat["stream"], true);
  EXPECT_EQ(chat["seed"], 7);
  EXPECT_EQ(chat["user"], "u");
}

TEST(MessagesRequest, NamesFieldsAndLimits) {
  refused({{"max_tokens", 0}}, "max_tokens", "from 1 to");
  refused({{"max_tokens", "x"}}, "max_tokens", "got \"x\"");
  refused({{"temperature", 1.1}}, "temperature", "at most 1");
  refused({{"temperature", -0.1}}, "temperature", "at least 0");
  refused({{"top_p", 1.5}}, "top_p");
  refused({{"top_k", -1}}, "top_k");
  refused({{"model", 5}}, "model");
  refused({{"stream", "yes"}}, "stream");
  refused({{"stop_sequences", "a"}}, "stop_sequences", "array of at most 16");
  refused({{"stop_sequences", Json(std::vector<std::string>(kStopStringsMax + 1, "x"))}}, "stop_sequences");
  refused({{"metadata", 5}}, "metadata");
  refused({{"metadata", {{"user_id", 5}}}}, "metadata.user_id");
  refused({{"service_tier", "fast"}}, "service_tier");
  refused({{"mcp_servers", {{{"type", "url"}}}}}, "mcp_servers", "not supported");
  refused({{"container", "c"}}, "container", "not supported");
  refused({{"thread", {{"type", "create"}}}}, "thread", "whole conversation");
  refused({{"thread", {{"type", "continue"}}}, {"messages", 5}}, "thread");
  accepted({{"thread", nullptr}});
}

TEST(MessagesRequest, SystemIsTheFirstMessage) {
  EXPECT_EQ(accepted({{"system", "be brief"}})["messages"][0],
            Json::parse(R"({"role": "system", "content": "be brief"})"));
  const Json blocks = {text("one"),
                       {{"type", "text"}, {"text", "two"}, {"cache_control", {{"type", "ephemeral"}}}}};
  EXPECT_EQ(accepted({{"system", blocks}})["messages"][0]["content"], "one\ntwo");
  EXPECT_EQ(accepted({{"system", ""}})["messages"].size(), 1u);
  refused({{"system", 5}}, "system");
  refused({{"system", {{{"type", "image"}}}}}, "system[0].type", "image");
}

TEST(MessagesRequest, NeighboursOfOneRoleAreOneTurn) {
  const Json chat = accepted(messages({user("a"), user({text("b"), text("c")}), assistant("d"), user("e")}));
  EXPECT_EQ(chat["messages"], Json::parse(R"([{"role": "user", "content": "a\nb\nc"},
      {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}])"));
}

TEST(MessagesRequest, ToolsAndTheirResults) {
  const Json use = {{"type", "tool_use"}, {"id", "t1"}, {"name", "weather"}, {"input", {{"city", "Rome"}}}};
  const Json result = {
      {"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", {text("21"), text("dry")}}};
  const Json chat =
      accepted({{"tools", {tool()}},
                {"messages",
                 {user("how warm?"), assistant({text("Let me see."), use}), user({result, text("well?")})}}});
  EXPECT_EQ(chat["tools"], Json::parse(R"([{"type": "function", "function": {"name": "weather",
      "description": "the weather", "parameters": {"type": "object"}}}])"));
  ASSERT_EQ(chat["messages"].size(), 4u);
  EXPECT_EQ(chat["messages"][1], Json::parse(R"({"role": "assistant", "content": "Let me see.", "tool_calls":
      [{"id": "t1", "type": "function", "function": {"name": "weather", "arguments": "{\"city\":\"Rome\"}"}}]})"));
  EXPECT_EQ(chat["messages"][2], Json::parse(R"({"role": "tool", "tool_call_id": "t1", "name": "weather",
      "content": "21\ndry"})"));
  EXPECT_EQ(chat["messages"][3], Json::parse(R"({"role": "user", "content": "well?"})"));
}

TEST(MessagesRequest, RefusesWrongBlocksByName) {
  refused(messages({user({{{"type", "image"}, {"source", {{"type", "base64"}}}}})}),
          "messages[0].content[0].type", "image");
  refused(messages({user({{{"type", "document"}}})}), "messages[0].content[0].type", "document");
  refused(messages({user({{{"type", "tool_use"}}})}), "messages[0].content[0].type", "tool_use");
  refused(messages({user({{{"type", "text"}}})}), "messages[0].content[0].text", "is required");
  refused(messages({user({{{"type", "text"}, {"text", 5}}})}), "messages[0].content[0].text", "a string");
  refused(messages({user({{{"type", "tool_result"}, {"tool_use_id", "x"}}})}),
          "messages[0].content[0].tool_use_id", "\"x\"");
  refused(
      messages({user("a"), assistant({{{"type", "tool_use"}, {"id", "i"}, {"name", "n"}, {"input", "{}"}}}),
                user("b")}),
      "messages[1].content[0].input", "an object");
  refused(messages({user({{{"type", "text"}, {"text", "a"}, {"cache_control", 5}}})}),
          "messages[0].content[0].cache_control");
  refused(messages({user({5})}), "messages[0].content[0]", "a JSON object");
  refused(messages({user(5)}), "messages[0].content");
  refused(messages({{{"role", "user"}}}), "messages[0].content", "is required");
  refused(messages({{{"role", "system"}, {"content", "x"}}}), "messages[0].role", "system");
  refused(messages({user("a"), assistant("I")}), "messages[1].role", "last message");
  refused(messages({}), "messages");
  refused(messages({user(Json::array())}), "messages", "empty");
}

TEST(MessagesRequest, ToolChoices) {
  const auto choice = [](const Json& value) {
    return accepted({{"tools", {tool()}}, {"tool_choice", value}});
  };
  EXPECT_EQ(choice({{"type", "auto"}})["tool_choice"], "auto");
  EXPECT_EQ(choice({{"type", "any"}})["tool_choice"], "required");
  EXPECT_EQ(choice({{"type", "none"}})["tool_choice"], "none");
  const Json named = choice({{"type", "tool"}, {"name", "weather"}, {"disable_parallel_tool_use", true}});
  EXPECT_EQ(named["tool_choice"]["function"]["name"], "weather");
  EXPECT_EQ(named["parallel_tool_calls"], false);
  refused({{"tool_choice", "auto"}}, "tool_choice");
  refused({{"tool_choice", {{"type", "any"}}}}, "tool_choice.type", "needs tools");
  refused({{"tools", {tool()}}, {"tool_choice", {{"type", "tool"}}}}, "tool_choice.name");
  refused({{"tools", {tool()}}, {"tool_choice", {{"type", "must"}}}}, "tool_choice.type", "must");
}

TEST(MessagesRequest, RefusesToolsByField) {
  refused({{"tools", 5}}, "tools");
  refused({{"tools", {5}}}, "tools[0]");
  refused({{"tools", {{{"name", "x"}}}}}, "tools[0].input_schema", "is required");
  refused({{"tools", {{{"input_schema", Json::object()}}}}}, "tools[0].name");
  refused({{"tools", {{{"type", "web_search_20250305"}, {"name", "web_search"}}}}}, "tools[0].type",
          "web_search");
}

TEST(MessagesRequest, Thinking) {
  const Json on = accepted({{"thinking", {{"type", "enabled"}, {"budget_tokens", 50}}}});
  EXPECT_EQ(on["chat_template_kwargs"]["enable_thinking"], true);
  const Json off = accepted({{"thinking", {{"type", "disabled"}}}});
  EXPECT_EQ(off["chat_template_kwargs"]["enable_thinking"], false);
  refused({{"thinking", {{"type", "enabled"}}}}, "thinking.budget_tokens", "is required");
  refused({{"thinking", {{"type", "enabled"}, {"budget_tokens", 100}}}}, "thinking.budget_tokens",
          "less than max_tokens (100)");
  refused({{"thinking", {{"type", "some"}}}}, "thinking.type");
  const Json history = accepted(messages(
      {user("a"), assistant({{{"type", "thinking"}, {"thinking", "hm"}, {"signature", "s"}}, text("b")}),
       user("c")}));
  EXPECT_EQ(history["messages"][1]["reasoning_content"], "hm");
  EXPECT_EQ(history["messages"][1]["content"], "b");
}

TEST(MessagesRequest, OutputFormatIsASchema) {
  const Json format = {{"type", "json_schema"}, {"schema", {{"type", "object"}}}};
  for (const Json& extra : {Json{{"output_config", {{"format", format}}}}, Json{{"output_format", format}}}) {
    const Json chat = accepted(extra);
    EXPECT_EQ(chat["response_format"]["type"], "json_schema");
    EXPECT_EQ(chat["response_format"]["json_schema"]["schema"]["type"], "object");
  }
  refused({{"output_config", {{"format", {{"type", "text"}}}}}}, "output_config.format.type");
  refused({{"output_format", {{"type", "json_schema"}}}}, "output_format.schema");
}

TEST(MessagesRequest, FieldsFoundWrongLaterHaveTheClientsNames) {
  EXPECT_EQ(messages_field("tools[2].function.parameters.x"), "tools[2].input_schema.x");
  EXPECT_EQ(messages_field("tools[2].function.name"), "tools[2].name");
  EXPECT_EQ(messages_field("stop[1]"), "stop_sequences[1]");
  EXPECT_EQ(messages_field("response_format.json_schema.schema"), "output_config.format.schema");
  EXPECT_EQ(messages_field("max_tokens"), "max_tokens");
}

}  // namespace
}  // namespace loci
