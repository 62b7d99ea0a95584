// SPDX-License-Identifier: Apache-2.0
// From a request's tools and messages to a template's context.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "loci/serve/api/anthropic/messages_request.h"
#include "loci/serve/api/openai/chat_request.h"
#include "loci/serve/api/openai/chat_tools.h"
#include "loci/serve/api/responses/items.h"
#include "loci/serve/api/responses/response_request.h"
#include "loci/serve/conversation/template_context.h"
#include "loci/serve/conversation/tool_use.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

Json weather() {
  return Json::parse(
      R"({"type": "function", "function": {"name": "get_weather", "description": "Weather of a city.",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}})");
}

Json user() { return {{"role", "user"}, {"content", "Paris?"}}; }

// Two calls, their results, and the next question.
Json conversation() {
  return Json::parse(R"([
    {"role": "user", "content": "Paris and Rome?"},
    {"role": "assistant", "content": null, "refusal": null, "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}},
      {"id": "call_2", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\": \"Rome\"}"}}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
    {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "sun"}]},
    {"role": "user", "content": "Thanks."}])");
}

std::string field(const Json& request) {
  const Result<ToolUse> use = read_chat_tools(request);
  return use.ok() ? "accepted" : use.status().field();
}

TEST(ToolUse, ReadsAndRefusesByPlace) {
  const Json tools = Json::array({weather()});
  const auto with = [&](const Json& extra) {
    Json request = {{"tools", tools}};
    request.update(extra);
    return request;
  };
  EXPECT_EQ(read_chat_tools(with(Json::object()))->choice, ToolChoice::kAuto);
  EXPECT_EQ(read_chat_tools(with({{"tool_choice", "none"}}))->any(), false);
  EXPECT_EQ(read_chat_tools(with({{"tool_choice", "required"}}))->choice, ToolChoice::kRequired);
  const Json named = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  EXPECT_EQ(read_chat_tools(with({{"tool_choice", named}}))->named, "get_weather");
  EXPECT_EQ(read_chat_tools(with({{"parallel_tool_calls", false}}))->parallel, false);
  EXPECT_EQ(field(with({{"tool_choice", "sometimes"}})), "tool_choice");
  EXPECT_EQ(field(with({{"tool_choice", {{"type", "function"}, {"function", {{"name", "other"}}}}}})),
            "tool_choice.function.name");
  EXPECT_EQ(field({{"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(field({{"tool_choice", "none"}}), "accepted");
  EXPECT_EQ(field({{"tools", 5}}), "tools");
  EXPECT_EQ(field({{"tools", Json::array({5})}}), "tools[0]");
  const Json search = {{"type", "web_search"}};
  EXPECT_EQ(read_chat_tools({{"tools", Json::array({search, weather(), search})}})->tools.size(), 1u);
  EXPECT_EQ(field({{"tools", Json::array({search})}, {"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(field({{"tools", Json::array({Json{{"name", "f"}}})}}), "tools[0].type");
  EXPECT_EQ(field({{"tools", Json::array({{{"type", "function"}}})}}), "tools[0].function");
  Json bad = weather();
  bad["function"]["name"] = "a b";
  EXPECT_EQ(field({{"tools", Json::array({bad})}}), "tools[0].function.name");
  bad = weather();
  bad["function"]["parameters"] = 5;
  EXPECT_EQ(field({{"tools", Json::array({bad})}}), "tools[0].function.parameters");
  EXPECT_EQ(field({{"tools", Json::array({weather(), weather()})}}), "tools[1].function.name");
  EXPECT_EQ(field({{"tools", Json(std::vector<Json>(kToolsMax + 1, weather()))}}), "tools");
  EXPECT_EQ(field(with({{"parallel_tool_calls", "no"}})), "parallel_tool_calls");
  EXPECT_FALSE(read_chat_tools(with({{"tool_choice", "required"}}))->one_call());
  EXPECT_TRUE(read_chat_tools(with({{"tool_choice", named}}))->one_call());
}

Json allowing(const Json& mode, const Json& tools) {
  return {{"type", "allowed_tools"}, {"allowed_tools", {{"mode", mode}, {"tools", tools}}}};
}

TEST(ToolUse, AllowsSomeOfTheTools) {
  Json add = weather();
  add["function"]["name"] = "add";
  const Json tools = Json::array({weather(), add});
  const Json named = {{"type", "function"}, {"function", {{"name", "add"}}}};
  const auto with = [&](const Json& choice) -> Json { return {{"tools", tools}, {"tool_choice", choice}}; };
  const ToolUse free = *read_chat_tools(with(allowing("auto", Json::array({named, named}))));
  EXPECT_EQ(free.tools.size(), 2u) << "the model is told of both, so that its prompt stays what it was";
  EXPECT_EQ(free.choice, ToolChoice::kAuto);
  EXPECT_TRUE(free.may_call("add") && !free.may_call("get_weather"));
  const ToolUse forced = *read_chat_tools(with(allowing("required", Json::array({named}))));
  EXPECT_EQ(forced.choice, ToolChoice::kRequired);
  EXPECT_TRUE(forced.may_call("add") && !forced.may_call("get_weather"));
  EXPECT_FALSE(forced.one_call());
  Json other = named;
  other["function"]["name"] = "get_weather";
  EXPECT_TRUE(read_chat_tools(with(allowing("auto", Json::array({other, named}))))->allowed.empty())
      << "all are no restriction";
}

TEST(ToolUse, RefusesByPlaceWhatItCannotAllow) {
  const Json named = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  const auto with = [](const Json& choice) {
    return field({{"tools", Json::array({weather()})}, {"tool_choice", choice}});
  };
  const Json list = Json::array({named});
  EXPECT_EQ(with(allowing("auto", list)), "accepted");
  EXPECT_EQ(with(allowing("none", list)), "tool_choice.allowed_tools.mode");
  EXPECT_EQ(with(allowing(5, list)), "tool_choice.allowed_tools.mode");
  EXPECT_EQ(with(allowing(nullptr, list)), "tool_choice.allowed_tools.mode");
  EXPECT_EQ(with(allowing("auto", Json::array())), "tool_choice.allowed_tools.tools");
  EXPECT_EQ(with(allowing("auto", "get_weather")), "tool_choice.allowed_tools.tools");
  EXPECT_EQ(with(allowing("auto", nullptr)), "tool_choice.allowed_tools.tools");
  EXPECT_EQ(with(allowing("auto", Json(std::vector<Json>(kToolsMax + 1, named)))),
            "tool_choice.allowed_tools.tools");
  EXPECT_EQ(with(allowing("auto", Json::array({named, 5}))), "tool_choice.allowed_tools.tools[1]");
  const Json search = {{"type", "web_search"}};
  EXPECT_EQ(with(allowing("auto", Json::array({search}))), "tool_choice.allowed_tools.tools[0].type");
  const Json flat = {{"type", "function"}, {"name", "get_weather"}};
  EXPECT_EQ(with(allowing("auto", Json::array({flat}))), "tool_choice.allowed_tools.tools[0].function");
  Json unknown = named;
  unknown["function"]["name"] = "leave";
  EXPECT_EQ(with(allowing("required", Json::array({named, unknown}))),
            "tool_choice.allowed_tools.tools[1].function.name");
  EXPECT_EQ(with({{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", list}}), "tool_choice");
  EXPECT_EQ(with({{"type", "allowed_tools"}, {"allowed_tools", "get_weather"}}), "tool_choice.allowed_tools");
  EXPECT_EQ(field({{"tool_choice", allowing("auto", list)}}),
            "tool_choice.allowed_tools.tools[0].function.name")
      << "there are no tools";
}

// What a chat template shows the model of the tool's parameters.
constexpr const char* kParameters =
    R"({"type":"object","properties":{"zone":{"type":"string"},"area":{"enum":["b","a"],"default":"b"}},"required":["zone"]})";

std::string parameters_shown(const Conversation& conversation) {
  return Json::parse(make_template_context(conversation, {}))["tools"][0]["function"]["parameters"].dump();
}

// Small models take the first property for the most important one, and a prefix is shared only where the same
// tools give the same text.
TEST(ToolUse, TheTemplateSeesASchemaInTheClientsOrderInAllThreeApis) {
  const std::string chat = fmt::format(
      R"({{"messages": [{{"role": "user", "content": "Hi"}}],
          "tools": [{{"type": "function", "function": {{"name": "look", "parameters": {}}}}}]}})",
      kParameters);
  EXPECT_EQ(parameters_shown(parse_chat_request(*parse_json(chat))->conversation), kParameters);

  const std::string responses =
      fmt::format(R"({{"input": "Hi", "tools": [{{"type": "function", "name": "look", "parameters": {}}}]}})",
                  kParameters);
  const Result<ResponseRequest> response = parse_response_request(*parse_json(responses), true);
  ASSERT_TRUE(response.ok()) << response.status().to_string();
  EXPECT_EQ(parameters_shown({.messages = to_messages(response->input), .tools = response->tools}),
            kParameters);
  EXPECT_EQ(response->echo["tools"][0]["parameters"].dump(), kParameters)
      << "as the response object shows it";

  const std::string messages = fmt::format(
      R"({{"max_tokens": 8, "messages": [{{"role": "user", "content": "Hi"}}],
          "tools": [{{"name": "look", "input_schema": {}}}]}})",
      kParameters);
  const Result<ChatRequest> of_messages =
      parse_messages_request(*parse_json(messages), MessagesPurpose::kReply);
  ASSERT_TRUE(of_messages.ok()) << of_messages.status().to_string();
  EXPECT_EQ(parameters_shown(of_messages->conversation), kParameters);
}

// The same conversation by all three APIs is the same to a template: its state is shared.
TEST(Conversation, IsTheSameInAllThreeApis) {
  const Json chat = Json::parse(R"({"messages": [
      {"role": "system", "content": "be brief"}, {"role": "user", "content": "Paris?"},
      {"role": "assistant", "content": "I look.", "tool_calls": [{"id": "c1", "type": "function",
        "function": {"name": "look", "arguments": "{\"b\": 1, \"a\": [2]}"}}]},
      {"role": "tool", "tool_call_id": "c1", "name": "look", "content": "rain"},
      {"role": "user", "content": "Thanks."}]})");
  const Json responses = Json::parse(R"({"instructions": "be brief", "input": [
      {"role": "user", "content": "Paris?"}, {"role": "assistant", "content": "I look."},
      {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{\"b\": 1, \"a\": [2]}"},
      {"type": "function_call_output", "call_id": "c1", "output": "rain"},
      {"role": "user", "content": "Thanks."}]})");
  const Json messages = Json::parse(R"({"system": "be brief", "max_tokens": 8, "messages": [
      {"role": "user", "content": "Paris?"},
      {"role": "assistant", "content": [{"type": "text", "text": "I look."},
        {"type": "tool_use", "id": "c1", "name": "look", "input": {"b": 1, "a": [2]}}]},
      {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "rain"},
        {"type": "text", "text": "Thanks."}]}]})");
  const auto shown = [](Conversation conversation) {
    conversation.template_arguments = Json::object();  // Anthropic's models do not think unasked
    return make_template_context(std::move(conversation), {});
  };
  const std::string expected = shown(parse_chat_request(chat)->conversation);
  EXPECT_EQ(shown(parse_messages_request(messages, MessagesPurpose::kReply)->conversation), expected);
  ResponseRequest response = parse_response_request(responses, true).value();
  Conversation conversation{.messages = to_messages(response.input)};
  conversation.messages.insert(conversation.messages.begin(),
                               Message{.role = Role::kSystem, .content = response.instructions});
  EXPECT_EQ(shown(std::move(conversation)), expected);
}

Json context_of(const Json& messages, const ChatSyntax& syntax, const Json& extra = Json::object()) {
  Json request = {{"messages", messages}, {"tools", Json::array({weather()})}};
  request.update(extra);
  const Result<ChatRequest> chat = parse_chat_request(request);
  EXPECT_TRUE(chat.ok()) << chat.status().to_string();
  return chat.ok() ? Json::parse(make_template_context(chat->conversation, syntax)) : Json();
}

TEST(TemplateContext, GivesTemplatesWhatTheyTake) {
  const Json context = context_of(conversation(), {});
  EXPECT_EQ(context["tools"][0]["function"]["name"], "get_weather");
  EXPECT_EQ(context["tools"][0]["type"], "function");
  const Json& calling = context["messages"][1];
  EXPECT_EQ(calling["tool_calls"][1]["function"]["arguments"]["city"], "Rome");
  EXPECT_EQ(calling["content"], "");
  EXPECT_FALSE(calling.contains("refusal"));
  EXPECT_EQ(context["messages"][3]["content"], "sun");
  EXPECT_EQ(context["messages"][3]["name"], "get_weather");
  EXPECT_EQ(context_of(conversation(), {}, {{"tool_choice", "none"}}), context)
      << "the prompt, and with it the state, is the same";
  Json tools = Json::array({weather(), weather()});
  tools[1]["function"]["name"] = "add";
  const Json named = {{"type", "function"}, {"function", {{"name", "add"}}}};
  EXPECT_EQ(context_of(conversation(), {},
                       {{"tools", tools}, {"tool_choice", allowing("auto", Json::array({named}))}}),
            context_of(conversation(), {}, {{"tools", tools}}));
}

TEST(TemplateContext, OneCallAMessageWhereTheTemplateTakesOne) {
  ChatSyntax syntax;
  syntax.support.several_calls = false;
  const Json messages = context_of(conversation(), syntax)["messages"];
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[1]["tool_calls"][0]["id"], "call_1");
  EXPECT_EQ(messages[2]["content"], "rain");
  EXPECT_EQ(messages[3]["tool_calls"][0]["id"], "call_2");
  EXPECT_EQ(messages[4]["content"], "sun");
}

TEST(TemplateContext, WritesWhatTheTemplateDoesNot) {
  ChatSyntax syntax;
  syntax.support = {.tools = false, .calls = false, .results = false};
  const Json context = context_of(conversation(), syntax);
  EXPECT_FALSE(context.contains("tools"));
  const Json& messages = context["messages"];
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0]["role"], "system");
  EXPECT_NE(messages[0]["content"].get<std::string>().find("Weather of a city."), std::string::npos);
  EXPECT_EQ(messages[2]["content"],
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n"
            "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}");
  EXPECT_EQ(messages[3]["role"], "user");
  EXPECT_EQ(messages[3]["content"], "Result of get_weather:\nrain\n\nResult of get_weather:\nsun\n\nThanks.");
  syntax.support.system = false;
  const Json first = context_of(Json::array({user()}), syntax)["messages"][0];
  EXPECT_EQ(first["role"], "user");
  EXPECT_TRUE(first["content"].get<std::string>().starts_with("Paris?"));
}

// Gemma 2's refuses messages of the system.
TEST(TemplateContext, WhatTheSystemSaysIsTheUsersWhereTheTemplateHasNoPlaceForIt) {
  ChatSyntax syntax;
  syntax.support.system = false;
  const auto system = [](const char* text) { return Json{{"role", "system"}, {"content", text}}; };
  const auto said = [](const char* role, const char* text) {
    return Json{{"role", role}, {"content", text}};
  };
  const auto written = [&](std::initializer_list<Json> list) {
    const Json context = context_of(std::vector<Json>(list), syntax);
    std::vector<std::string> out;
    for (const Json& one : context["messages"])
      out.push_back(one["role"].get<std::string>() + ": " + one["content"].get<std::string>());
    return out;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(written({system("Be brief."), said("user", "Hi")}), (Lines{"user: Be brief.\n\nHi"}));
  EXPECT_EQ(written({system("a"), system("b"), said("user", "c"), said("assistant", "d"), system("e"),
                     said("user", "f")}),
            (Lines{"user: a\n\nb\n\nc", "assistant: d", "user: e\n\nf"}));
  EXPECT_EQ(written({system("a"), said("assistant", "b"), said("user", "c")}),
            (Lines{"user: a", "assistant: b", "user: c"}));
  EXPECT_EQ(written({said("user", "a"), said("assistant", "b"), system("c")}),
            (Lines{"user: a", "assistant: b", "user: c"}));
}

TEST(TemplateContext, ShortIdsStandForLongOnes) {
  ChatSyntax syntax;
  syntax.support.short_ids = true;
  const Json messages = context_of(conversation(), syntax)["messages"];
  const auto id = messages[1]["tool_calls"][0]["id"].get<std::string>();
  EXPECT_EQ(id.size(), 9u);
  EXPECT_EQ(messages[2]["tool_call_id"], id);
  EXPECT_NE(messages[3]["tool_call_id"], id);
}

TEST(TemplateContext, EffortAndArguments) {
  const Json none = context_of(Json::array({user()}), {}, {{"reasoning_effort", "none"}});
  EXPECT_EQ(none["enable_thinking"], false);
  const Json high =
      context_of(Json::array({user()}), {},
                 {{"reasoning_effort", "high"}, {"chat_template_kwargs", {{"thinking", false}}}});
  EXPECT_EQ(high["reasoning_effort"], "high");
  EXPECT_EQ(high["thinking"], false);
  EXPECT_EQ(parse_chat_request({{"messages", Json::array({user()})}, {"reasoning_effort", "most"}})
                .status()
                .field(),
            "reasoning_effort");
}

TEST(TemplateContext, RefusesByPlace) {
  const auto place = [](const char* message) {
    return parse_chat_request({{"messages", Json::array({user(), Json::parse(message)})}}).status().field();
  };
  EXPECT_EQ(place(R"({"role": "user", "content": null})"), "messages[1].content");
  EXPECT_EQ(place(R"({"role": "assistant", "content": null})"), "") << "a reply cut off while it reasoned";
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
