// SPDX-License-Identifier: Apache-2.0
// From a request's tools and messages to a template's context.
#include <gtest/gtest.h>

#include "loci/serve/request/chat_request.h"
#include "loci/serve/request/json_text.h"
#include "loci/serve/request/ordered_json.h"
#include "loci/serve/tools/call_text.h"
#include "loci/serve/tools/template_context.h"
#include "loci/serve/tools/tool_use.h"

namespace loci {
namespace {

using OrderedJson = nlohmann::ordered_json;
using json = nlohmann::json;

json weather() {
  return json::parse(
      R"({"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}})");
}

json user() { return {{"role", "user"}, {"content", "Paris?"}}; }

// Two calls, their results, and the next question.
json conversation() {
  return json::parse(R"([
    {"role": "user", "content": "Paris and Rome?"},
    {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}},
      {"id": "call_2", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "sun"}]},
    {"role": "user", "content": "Thanks."}])");
}

std::string field(const json& request) {
  const Result<ToolUse> use = read_tool_use(request);
  return use.ok() ? "accepted" : use.status().field();
}

TEST(ToolUse, ReadsAndRefusesByPlace) {
  const json tools = json::array({weather()});
  const auto with = [&](const json& extra) {
    json request = {{"tools", tools}};
    request.update(extra);
    return request;
  };
  EXPECT_EQ(read_tool_use(with(json::object()))->choice, ToolChoice::kAuto);
  EXPECT_EQ(read_tool_use(with({{"tool_choice", "none"}}))->any(), false);
  EXPECT_EQ(read_tool_use(with({{"tool_choice", "required"}}))->choice, ToolChoice::kRequired);
  const json named = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  EXPECT_EQ(read_tool_use(with({{"tool_choice", named}}))->named, "get_weather");
  EXPECT_EQ(read_tool_use(with({{"parallel_tool_calls", false}}))->parallel, false);
  EXPECT_EQ(field(with({{"tool_choice", "sometimes"}})), "tool_choice");
  EXPECT_EQ(field(with({{"tool_choice", {{"type", "function"}, {"function", {{"name", "other"}}}}}})),
            "tool_choice.function.name");
  EXPECT_EQ(field({{"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(field({{"tool_choice", "none"}}), "accepted");
  EXPECT_EQ(field({{"tools", 5}}), "tools");
  EXPECT_EQ(field({{"tools", json::array({5})}}), "tools[0]");
  EXPECT_EQ(field({{"tools", json::array({{{"type", "web_search"}}})}}), "tools[0].type");
  EXPECT_EQ(field({{"tools", json::array({{{"type", "function"}}})}}), "tools[0].function");
  json bad = weather();
  bad["function"]["name"] = "a b";
  EXPECT_EQ(field({{"tools", json::array({bad})}}), "tools[0].function.name");
  bad = weather();
  bad["function"]["parameters"] = 5;
  EXPECT_EQ(field({{"tools", json::array({bad})}}), "tools[0].function.parameters");
  EXPECT_EQ(field({{"tools", json::array({weather(), weather()})}}), "tools[1].function.name");
  EXPECT_EQ(field({{"tools", json(std::vector<json>(129, weather()))}}), "tools");
  EXPECT_EQ(field(with({{"parallel_tool_calls", "no"}})), "parallel_tool_calls");
  EXPECT_FALSE(read_tool_use(with({{"tool_choice", "required"}}))->one_call());
  EXPECT_TRUE(read_tool_use(with({{"tool_choice", named}}))->one_call());
}

TEST(OrderedJson, KeepsWhatTheClientWrote) {
  const std::string body =
      R"({"a": "}", "tools": 1, "b\"": [{"tools": 2}], "tools" : [{"z": 1, "a": {"y": "]", "b": 2}}], "c": 3})";
  EXPECT_EQ(parse_ordered_json(*json_member_text(body, "tools"))->dump(), R"([{"z":1,"a":{"y":"]","b":2}}])");
  json wide = json::object();
  for (int i = 0; i < 1025; ++i) wide[std::to_string(i)] = i;
  EXPECT_FALSE(parse_ordered_json(wide.dump()).ok());
}

OrderedJson context_of(const json& messages, const ChatSyntax& syntax, const json& extra = json::object()) {
  json request = {{"messages", messages}, {"tools", json::array({weather()})}};
  request.update(extra);
  const Result<ChatRequest> chat = parse_chat_request(request, syntax);
  EXPECT_TRUE(chat.ok()) << chat.status().to_string();
  return chat.ok() ? OrderedJson::parse(chat->template_context) : OrderedJson();
}

TEST(TemplateContext, GivesTemplatesWhatTheyTake) {
  const OrderedJson context = context_of(conversation(), {});
  EXPECT_EQ(context["tools"][0]["function"]["name"], "get_weather");
  EXPECT_EQ(context["tools"][0]["type"], "function");
  const OrderedJson& calling = context["messages"][1];
  EXPECT_EQ(calling["tool_calls"][1]["function"]["arguments"]["city"], "Rome");
  EXPECT_EQ(calling["content"], "");
  EXPECT_FALSE(calling.contains("refusal"));
  EXPECT_EQ(context["messages"][3]["content"], "sun");
  EXPECT_EQ(context["messages"][3]["name"], "get_weather");
  EXPECT_EQ(context_of(conversation(), {}, {{"tool_choice", "none"}}), context)
      << "the prompt, and with it the state, is the same";
}

TEST(TemplateContext, OneCallAMessageWhereTheTemplateTakesOne) {
  ChatSyntax syntax;
  syntax.support.several_calls = false;
  const OrderedJson messages = context_of(conversation(), syntax)["messages"];
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[1]["tool_calls"][0]["id"], "call_1");
  EXPECT_EQ(messages[2]["content"], "rain");
  EXPECT_EQ(messages[3]["tool_calls"][0]["id"], "call_2");
  EXPECT_EQ(messages[4]["content"], "sun");
}

TEST(TemplateContext, WritesWhatTheTemplateDoesNot) {
  ChatSyntax syntax;
  syntax.support = {.tools = false, .calls = false, .results = false};
  const OrderedJson context = context_of(conversation(), syntax);
  EXPECT_FALSE(context.contains("tools"));
  const OrderedJson& messages = context["messages"];
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_NE(messages[0]["content"].get<std::string>().find("Weather of a city."), std::string::npos);
  EXPECT_EQ(messages[2]["content"],
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}");
  EXPECT_EQ(messages[3]["role"], "user");
  EXPECT_EQ(messages[3]["content"], "Result of get_weather:\nrain\n\nResult of get_weather:\nsun\n\nThanks.");
  syntax.support.system = false;
  const OrderedJson first = context_of(json::array({user()}), syntax)["messages"][0];
  EXPECT_EQ(first["role"], "user");
  EXPECT_TRUE(first["content"].get<std::string>().starts_with("Paris?"));
}

TEST(TemplateContext, ShortIdsStandForLongOnes) {
  ChatSyntax syntax;
  syntax.support.short_ids = true;
  const OrderedJson messages = context_of(conversation(), syntax)["messages"];
  const auto id = messages[1]["tool_calls"][0]["id"].get<std::string>();
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(messages[2]["tool_call_id"], id);
  EXPECT_NE(messages[3]["tool_call_id"], id);
}

TEST(TemplateContext, EffortAndArguments) {
  const OrderedJson none = context_of(json::array({user()}), {}, {{"reasoning_effort", "none"}});
  EXPECT_EQ(none["enable_thinking"], false);
  const OrderedJson high =
      context_of(json::array({user()}), {},
                 {{"reasoning_effort", "high"}, {"chat_template_kwargs", {{"thinking", false}}}});
  EXPECT_EQ(high["reasoning_effort"], "high");
  EXPECT_EQ(high["thinking"], false);
  EXPECT_EQ(parse_chat_request({{"messages", json::array({user()})}, {"reasoning_effort", "most"}})
                .status()
                .field(),
            "reasoning_effort");
}

TEST(TemplateContext, RefusesByPlace) {
  const auto place = [](const char* message) {
    return parse_chat_request({{"messages", json::array({user(), json::parse(message)})}}).status().field();
  };
  EXPECT_EQ(place(R"({"role": "assistant"})"), "messages[1].content");
  EXPECT_EQ(place(R"({"role": "assistant", "tool_calls": 5})"), "messages[1].tool_calls");
  EXPECT_EQ(place(R"({"role": "assistant", "tool_calls": [5]})"), "messages[1].tool_calls[0]");
  EXPECT_EQ(place(R"({"role": "assistant", "tool_calls": [{}]})"), "messages[1].tool_calls[0].function");
  EXPECT_EQ(place(R"({"role": "assistant", "tool_calls": [{"function": {}}]})"),
            "messages[1].tool_calls[0].function.name");
  EXPECT_EQ(place(R"({"role": "assistant", "tool_calls": [{"function": {"name": "x", "arguments": 5}}]})"),
            "messages[1].tool_calls[0].function.arguments");
  EXPECT_EQ(place(R"({"role": "tool"})"), "messages[1].content");
  EXPECT_EQ(place(R"({"role": "tool", "content": "5"})"), "messages[1].tool_call_id");
  EXPECT_EQ(place(R"({"role": "tool", "content": "5", "tool_call_id": ""})"), "messages[1].tool_call_id");
  EXPECT_EQ(place(R"({"role": "tool", "content": "5", "tool_call_id": 5})"), "messages[1].tool_call_id");
}

}  // namespace
}  // namespace loci
