// SPDX-License-Identifier: Apache-2.0
// Messages and other fields that chats alone have.
#include "loci/serve/api/openai/chat_request.h"

#include <gtest/gtest.h>

#include <string>

#include "loci/serve/conversation/template_context.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

Json chat(const Json& messages, const Json& extra = Json::object()) {
  Json request = {{"messages", messages}};
  request.update(extra);
  return request;
}

std::string chat_field(const Json& messages, const Json& extra = Json::object()) {
  const Result<ChatRequest> result = parse_chat_request(chat(messages, extra));
  return result.ok() ? "accepted" : result.status().field();
}

TEST(ChatRequest, RefusesFieldsOfTextCompletions) {
  const Json user = {{{"role", "user"}, {"content", "x"}}};
  for (const Json& extra : {Json{{"echo", true}}, Json{{"best_of", 3}}}) {
    Json request = {{"messages", Json::array({user[0]})}};
    request.update(extra);
    const Status status = parse_chat_request(request).status();
    EXPECT_EQ(status.field(), extra.begin().key());
    EXPECT_NE(status.message().find("belongs to /v1/completions; leave it out (got "), std::string::npos)
        << status.message();
  }
}

TEST(ChatRequest, NormalisesMessages) {
  const Result<ChatRequest> result = parse_chat_request(chat(
      {{{"role", "developer"}, {"content", "be brief"}},
       {{"role", "user"},
        {"content", Json::parse(R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])")}},
       {{"role", "assistant"},
        {"content", nullptr},
        {"tool_calls",
         Json::parse(R"([{"id": "x", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": 2}"}}])")}},
       {{"role", "tool"}, {"content", "5"}, {"tool_call_id", "x"}}}));
  ASSERT_TRUE(result.ok()) << result.status().to_string();
  const Json context = Json::parse(make_template_context(result->conversation, {}));
  EXPECT_EQ(context["add_generation_prompt"], true);
  EXPECT_EQ(context["messages"][0]["role"], "system");
  EXPECT_EQ(context["messages"][1]["content"], "a\nb");
  EXPECT_EQ(context["messages"][2]["content"], "");
  EXPECT_NE(make_template_context(result->conversation, {}).find(R"("arguments":{"b":1,"a":2})"),
            std::string::npos)
      << "an object";
  EXPECT_EQ(context["messages"][3]["tool_call_id"], "x");
  EXPECT_EQ(context["messages"][3]["name"], "f");
}

TEST(ChatRequest, ReasoningHasTwoNames) {
  const auto message = [](const Json& extra) {
    Json one = {{"role", "assistant"}, {"content", "4"}};
    one.update(extra);
    const auto read = parse_chat_request(chat(Json::array({one})));
    return Json::parse(make_template_context(read.value().conversation, {}))["messages"][0];
  };
  const Json renamed = message({{"reasoning", "2 and 2"}});
  EXPECT_EQ(renamed["reasoning_content"], "2 and 2");
  EXPECT_EQ(renamed["reasoning"], "2 and 2");
  EXPECT_EQ(message({{"reasoning", "b"}, {"reasoning_content", "a"}})["reasoning_content"], "a");
  EXPECT_FALSE(message({{"reasoning", nullptr}}).contains("reasoning_content"));
}

TEST(ChatRequest, ReasoningFormatSaysWhereItGoes) {
  const auto place = [](const Json& format) {
    const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
    const auto read = parse_chat_request(chat(messages, {{"reasoning_format", format}}));
    EXPECT_TRUE(read.ok()) << read.status().to_string();
    return read.ok() ? read->reasoning : ReasoningPlace::kApart;
  };
  EXPECT_EQ(place(nullptr), ReasoningPlace::kApart);
  EXPECT_EQ(place("auto"), ReasoningPlace::kApart);
  EXPECT_EQ(place("deepseek"), ReasoningPlace::kApart);
  EXPECT_EQ(place("none"), ReasoningPlace::kInText);
}

TEST(ChatRequest, UnknownFieldsAreNamedWithTheirPlace) {
  const auto unknown = [](const Json& extra) {
    const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
    return parse_chat_request(chat(messages, extra)).value().unknown_fields;
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(unknown({{"temprature", 1}}), Names{"temprature"});
  EXPECT_EQ(unknown({{"stream", true}, {"stream_options", {{"include_usage", true}, {"include_usages", 1}}}}),
            Names{"stream_options.include_usages"});
  EXPECT_EQ(unknown(Json::parse(R"({"response_format": {"type": "json_schema", "strict": true,
              "json_schema": {"name": "x", "strict": true, "schema": {"a": 1}, "schemas": 1}}})")),
            (Names{"response_format.strict", "response_format.json_schema.schemas"}));
  EXPECT_EQ(unknown({{"loci", {{"explian", true}}}}), Names{"loci.explian"});
  EXPECT_TRUE(unknown({{"response_format", nullptr}, {"loci", Json::object()}}).empty());
}

TEST(ChatRequest, ContinuesTheAssistantsMessageWhereAsked) {
  const Json user = {{"role", "user"}, {"content", "x"}};
  const Json begun = Json::array({user, {{"role", "assistant"}, {"content", "Once"}}});
  const auto read = [&](const Json& extra) {
    return parse_chat_request(chat(begun, extra)).value().conversation;
  };
  EXPECT_FALSE(read(Json::object()).continue_final_message);
  EXPECT_TRUE(read(Json::object()).add_generation_prompt);
  const Json asked = {{"continue_final_message", true}};
  for (const Json& extra :
       {asked, Json{{"continue_final_message", true}, {"add_generation_prompt", false}}}) {
    EXPECT_TRUE(read(extra).continue_final_message);
    EXPECT_FALSE(read(extra).add_generation_prompt);
  }
  const std::string field = "continue_final_message";
  EXPECT_EQ(chat_field(begun, {{"continue_final_message", true}, {"add_generation_prompt", true}}), field);
  EXPECT_EQ(chat_field(begun, {{"continue_final_message", "yes"}}), field);
  EXPECT_EQ(chat_field(Json::array({user}), asked), field);
  const Json calling = Json::parse(
      R"([{"role": "assistant", "content": "x", "tool_calls": [{"id": "1", "function": {"name": "f"}}]}])");
  EXPECT_EQ(chat_field(calling, asked), field);
  Json forced = {{"continue_final_message", true}, {"tool_choice", "required"}};
  forced["tools"] = Json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
  EXPECT_EQ(chat_field(begun, forced), field) << "text was begun, and a call is no text";
}

// OpenAI's clients send a past refusal as a part of the assistant's message.
TEST(ChatRequest, ThePartsOfTheAssistantsMessageMayBeRefusals) {
  const auto message = [](const char* role, const char* part) -> Json {
    return Json::array({{{"role", role}, {"content", Json::array({Json::parse(part)})}}});
  };
  const char* const refusal = R"({"type": "refusal", "refusal": "No."})";
  const auto read = parse_chat_request(chat(message("assistant", refusal)));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_EQ(read->conversation.messages[0].content, "No.");
  EXPECT_EQ(chat_field(message("user", refusal)), "messages[0].content[0].type");
  EXPECT_EQ(chat_field(message("assistant", R"({"type": "refusal"})")), "messages[0].content[0].refusal");
}

// What only hints at how a reply may come sooner changes none.
TEST(ChatRequest, HintsAreKnownAndChangeNothing) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  const Json hints = Json::parse(R"({"prediction": {"type": "content", "content": "x"}, "stream": true,
      "prompt_cache_options": {"mode": "implicit", "ttl": "30m"}, "stream_options": {"include_obfuscation": false}})");
  const auto read = parse_chat_request(chat(messages, hints));
  ASSERT_TRUE(read.ok()) << read.status().to_string();
  EXPECT_TRUE(read->unknown_fields.empty());
  EXPECT_EQ(chat_field(messages, {{"stream", true}, {"stream_options", {{"include_obfuscation", 1}}}}),
            "stream_options.include_obfuscation");
  EXPECT_EQ(chat_field(messages, {{"moderation", {{"model", "m"}}}}), "moderation")
      << "what asks for a reply to be looked at does not get one that was not";
}

TEST(ChatRequest, RefusesByPlace) {
  const Json good = {{"role", "user"}, {"content", "x"}};
  EXPECT_EQ(chat_field(Json::array({good})), "accepted");
  EXPECT_EQ(parse_chat_request(Json::object()).status().field(), "messages");
  EXPECT_EQ(chat_field(Json::array()), "messages");
  EXPECT_EQ(chat_field("hello"), "messages");
  EXPECT_EQ(chat_field(Json::array({good, 5})), "messages[1]");
  EXPECT_EQ(chat_field(Json::array({{{"content", "x"}}})), "messages[0].role");
  EXPECT_EQ(chat_field(Json::array({{{"role", "robot"}, {"content", "x"}}})), "messages[0].role");
  EXPECT_EQ(chat_field(Json::array({{{"role", 5}, {"content", "x"}}})), "messages[0].role");
  EXPECT_EQ(chat_field(Json::array({good, {{"role", "user"}}})), "messages[1].content");
  EXPECT_EQ(chat_field(Json::array({{{"role", "user"}, {"content", 5}}})), "messages[0].content");
  EXPECT_EQ(chat_field(Json::parse(R"([{"role":"user","content":[{"type":"image_url"}]}])")),
            "messages[0].content[0].type");
  EXPECT_EQ(chat_field(Json::parse(R"([{"role":"user","content":[{"type":"text"}]}])")),
            "messages[0].content[0].text");
  EXPECT_EQ(chat_field(Json::parse(R"([{"role":"user","content":["x"]}])")), "messages[0].content[0]");
  EXPECT_EQ(chat_field(Json::array({good}), {{"chat_template_kwargs", 5}}), "chat_template_kwargs");
  EXPECT_EQ(chat_field(Json::array({good}), {{"top_logprobs", 3}}), "top_logprobs");
  EXPECT_EQ(chat_field(Json::array({good}), {{"logprobs", 3}}), "logprobs");
  EXPECT_EQ(chat_field(Json::array({good}), {{"logprobs", true}, {"top_logprobs", 21}}), "top_logprobs");
  EXPECT_EQ(chat_field(Json::array({good}), {{"logprobs", true}, {"top_logprobs", 20}}), "accepted");
}

// What a client is told where the field alone does not say what is allowed.
TEST(ChatRequest, RefusalsSayWhatIsAllowed) {
  const Json messages = Json::array({{{"role", "user"}, {"content", "x"}}});
  const Json image = Json::parse(R"([{"role":"user","content":[{"type":"image_url"}]}])");
  struct Case {
    Json messages, extra;
    std::string field, message;
  };
  const auto tools = [](const char* list) { return Json{{"tools", Json::parse(list)}}; };
  const std::vector<Case> cases = {
      {image, Json::object(), "messages[0].content[0].type",
       "expected \"text\", the only kind of part that is supported; got \"image_url\""},
      {messages,
       {{"reasoning_effort", "huge"}},
       "reasoning_effort",
       "expected none, minimal, low, medium, high, xhigh or max; got \"huge\""},
      {messages,
       {{"reasoning_format", "deepseek-legacy"}},
       "reasoning_format",
       "expected auto or deepseek (reasoning in reasoning_content) or none (in content); got "
       "\"deepseek-legacy\""},
      {messages, {{"top_logprobs", 3}}, "top_logprobs", "is only allowed where logprobs is true"},
      {messages, {{"tool_choice", "required"}}, "tool_choice", "is only allowed where tools are given"},
      {messages,
       {{"tool_choice", "any"}},
       "tool_choice",
       "expected none, auto, required, {\"type\": \"function\", \"function\": {\"name\": ...}} or {\"type\": "
       "\"allowed_tools\", \"allowed_tools\": {\"mode\": ..., \"tools\": [...]}}; got \"any\""},
      {messages, tools(R"([{"function":{"name":"f"}}])"), "tools[0].type", "is required"},
      {messages,
       {{"tools", {{{"type", "web_search"}}}}, {"tool_choice", "required"}},
       "tool_choice",
       "is only allowed where tools are given"},
      {messages, tools(R"([{"type":"function","function":{"name":"f","parameters":{"type":"string"}}}])"),
       "tools[0].function.parameters.type", "expected \"object\"; got \"string\""},
      {messages, tools(R"([{"type":"function","function":{"name":"f","parameters":"x"}}])"),
       "tools[0].function.parameters", "expected a JSON schema (an object); got \"x\""},
      {messages,
       {{"response_format", {{"type", "xml"}}}},
       "response_format.type",
       "expected text, json_object or json_schema; got \"xml\""},
  };
  for (const Case& one : cases) {
    const Status status = parse_chat_request(chat(one.messages, one.extra)).status();
    EXPECT_EQ(status.field(), one.field) << one.extra.dump();
    EXPECT_EQ(status.message(), one.message) << one.extra.dump();
  }
}

TEST(ChatRequest, TemplateArgumentsCannotReplaceMessages) {
  const Result<ChatRequest> result =
      parse_chat_request(chat(Json::array({{{"role", "user"}, {"content", "x"}}}),
                              {{"chat_template_kwargs", {{"enable_thinking", false}, {"messages", "gone"}}},
                               {"add_generation_prompt", false}}));
  ASSERT_TRUE(result.ok());
  const Json context = Json::parse(make_template_context(result->conversation, {}));
  EXPECT_EQ(context["enable_thinking"], false);
  EXPECT_EQ(context["messages"].size(), 1u);
  EXPECT_EQ(context["add_generation_prompt"], false);
}

}  // namespace
}  // namespace loci
