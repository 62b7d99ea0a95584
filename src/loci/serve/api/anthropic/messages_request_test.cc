// SPDX-License-Identifier: Apache-2.0
// Every field of Anthropic's requests: what it becomes, what is refused, both sides of each limit.
#include "loci/serve/api/anthropic/messages_request.h"
#include "loci/serve/wire/json.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "loci/serve/conversation/template_context.h"
#include "loci/serve/generation/generation_fields.h"

namespace loci {
namespace {

Json request(const Json& extra = Json::object()) {
  Json out = {{"model", "m"}, {"max_tokens", 100}, {"messages", {{{"role", "user"}, {"content", "hello"}}}}};
  out.update(extra);
  return out;
}

ChatRequest accepted(const Json& extra = Json::object()) {
  Result<ChatRequest> result = parse_messages_request(request(extra), MessagesPurpose::kReply);
  EXPECT_TRUE(result.ok()) << extra.dump() << ": " << result.status().to_string();
  return result.ok() ? std::move(*result) : ChatRequest();
}

// What a template sees of it.
Json shown(const Json& extra = Json::object()) {
  return Json::parse(make_template_context(accepted(extra).conversation, {}));
}

void refused(const Json& extra, const std::string& field, const std::string& part = "") {
  const Result<ChatRequest> result = parse_messages_request(request(extra), MessagesPurpose::kReply);
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

Json system_message(const Json& content) { return {{"role", "system"}, {"content", content}}; }

// Its checksum is another one in each request, so that no state behind it would be found.
TEST(MessagesRequest, TheLineOfClaudeCodesAccountsIsLeftOut) {
  const std::string line = "x-anthropic-billing-header: cc_version=2.1.101.e51; cc_entrypoint=cli; cch=";
  const auto system_of = [](const Json& system) { return shown({{"system", system}})["messages"][0]; };
  const Json wanted = {{"role", "system"}, {"content", "You are Claude Code."}};
  EXPECT_EQ(system_of(Json::array({text(line + "a5145;"), text("You are Claude Code.")})), wanted);
  EXPECT_EQ(system_of(Json::array({text(line + "1c8b4;"), text("You are Claude Code.")})), wanted);
  EXPECT_EQ(system_of(line + "a5145;You are Claude Code."), wanted);
  EXPECT_EQ(system_of(line + "a5145;\nYou are Claude Code."), wanted);
  EXPECT_EQ(system_of(Json::array({text(line + "a5145;")}))["role"], "user") << "nothing is left of it";
  // What is not of this form stays.
  for (const std::string other :
       {"x-anthropic-billing-header: cc_version=2;", "x-anthropic-billing-header: a\ncch=1;", " cch=1;b"})
    EXPECT_EQ(system_of(other)["content"], other);
  EXPECT_EQ(shown(messages({user(line + "a5145;b")}))["messages"][0]["content"], line + "a5145;b");
}

TEST(MessagesRequest, MessagesOfTheSystem) {
  const auto turns = [](std::initializer_list<Json> list, const Json& more = Json::object()) {
    Json extra = messages(list);
    extra.update(more);
    std::vector<std::string> out;
    const Json context = shown(extra);
    for (const Json& one : context["messages"])
      out.push_back(one["role"].get<std::string>() + ": " + one["content"].get<std::string>());
    return out;
  };
  using Turns = std::vector<std::string>;
  const Json brief = system_message(Json::array({text("be brief")}));
  const std::string reminder = "<system-reminder>\nbe brief\n</system-reminder>";
  // Before all turns they belong to the system prompt.
  EXPECT_EQ(turns({brief, user("hi")}), (Turns{"system: be brief", "user: hi"}));
  EXPECT_EQ(turns({brief, system_message("and kind"), user("hi")}, {{"system", "s"}}),
            (Turns{"system: s\nbe brief\nand kind", "user: hi"}));
  // Later to the user's turn beside them, whichever side that is on.
  EXPECT_EQ(turns({user("hi"), brief}), (Turns{"user: hi\n" + reminder}));
  EXPECT_EQ(turns({user("hi"), brief, user("there")}), (Turns{"user: hi\n" + reminder + "\nthere"}));
  EXPECT_EQ(turns({user("hi"), assistant("yes"), brief, user("go on")}),
            (Turns{"user: hi", "assistant: yes", "user: " + reminder + "\ngo on"}));
  EXPECT_EQ(turns({user("hi"), system_message(""), assistant("yes"), user("so")}),
            (Turns{"user: hi", "assistant: yes", "user: so"}));
  const Json call = {{"type", "tool_use"}, {"id", "c"}, {"name", "n"}, {"input", Json::object()}};
  const Json result = {{"type", "tool_result"}, {"tool_use_id", "c"}, {"content", "sunny"}};
  EXPECT_EQ(turns({user("hi"), assistant(Json::array({call})), user(Json::array({result})), brief}),
            (Turns{"user: hi", "assistant: ", "tool: sunny", "user: " + reminder}));
  refused(messages({user("hi"), system_message(Json::array({Json{{"type", "image"}}}))}),
          "messages[1].content[0].type");
  refused(messages({user("hi"), system_message(5)}), "messages[1].content");
  refused(messages({user("hi"), {{"role", "system"}}}), "messages[1].content", "required");
}

TEST(MessagesRequest, TheLeastOfARequest) {
  const Json context = shown();
  EXPECT_EQ(context["messages"], Json::parse(R"([{"role": "user", "content": "hello"}])"));
  EXPECT_EQ(context["enable_thinking"], false);
  EXPECT_FALSE(context.contains("tools"));
  const GenerationFields fields = accepted().fields;
  EXPECT_EQ(fields.max_tokens, 100u);
  EXPECT_EQ(fields.model, "m");
  EXPECT_FALSE(fields.stream);
  EXPECT_EQ(fields.sampling.temperature, SamplingParams{}.temperature);
  RequestDefaults defaults;
  defaults.sampling.temperature = 0.25f;
  EXPECT_EQ(parse_messages_request(request(), MessagesPurpose::kReply, defaults)->fields.sampling.temperature,
            0.25f);
}

TEST(MessagesRequest, AReplyNeedsMaxTokensACountDoesNot) {
  Json body = request();
  body.erase("max_tokens");
  EXPECT_EQ(parse_messages_request(body, MessagesPurpose::kReply).status().field(), "max_tokens");
  EXPECT_TRUE(parse_messages_request(body, MessagesPurpose::kCount).ok());
  body.erase("messages");
  EXPECT_EQ(parse_messages_request(body, MessagesPurpose::kCount).status().field(), "messages");
}

TEST(MessagesRequest, FieldsOfChatsAreRefused) {
  refused({{"continue_final_message", true}}, "continue_final_message", "is not supported");
  refused({{"reasoning_format", "none"}}, "reasoning_format", "is not supported");
}

TEST(MessagesRequest, Sampling) {
  const GenerationFields fields = accepted({{"temperature", 0.5},
                                            {"top_p", 0.9},
                                            {"top_k", 40},
                                            {"stop_sequences", {"a", "b"}},
                                            {"stream", true},
                                            {"seed", 7},
                                            {"min_tokens", 3},
                                            {"cache_salt", "s"},
                                            {"metadata", {{"user_id", "u"}}},
                                            {"service_tier", "auto"}})
                                      .fields;
  EXPECT_EQ(fields.sampling.temperature, 0.5f);
  EXPECT_EQ(fields.sampling.top_p, 0.9f);
  EXPECT_EQ(fields.sampling.top_k, 40u);
  EXPECT_EQ(fields.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(fields.stream);
  EXPECT_EQ(fields.sampling.seed, 7u);
  EXPECT_EQ(fields.sampling.min_tokens, 3u);
  EXPECT_EQ(fields.cache_salt, "s");
  const GenerationFields likeliest = accepted({{"top_p", 0}}).fields;
  EXPECT_EQ(likeliest.sampling.top_p, 1.0f) << "a nucleus of nothing still holds the likeliest token";
  EXPECT_EQ(likeliest.sampling.top_k, 1u);
}

// Fields of other APIs are not this one's, whatever they would do there.
TEST(MessagesRequest, OtherApisFieldsAreNotRead) {
  const GenerationFields fields =
      accepted({{"n", 4}, {"stop", "x"}, {"guided_regex", "a"}, {"n_predict", 1}}).fields;
  EXPECT_EQ(fields.choices, 1u);
  EXPECT_TRUE(fields.stop.empty());
  EXPECT_FALSE(fields.constraint);
  EXPECT_EQ(fields.max_tokens, 100u);
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
  EXPECT_EQ(accepted({{"stop_sequences", {"a", ""}}}).fields.stop, std::vector<std::string>{"a"});
  refused({{"min_tokens", 101}}, "min_tokens", "at most max_tokens (100)");
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
  EXPECT_EQ(shown({{"system", "be brief"}})["messages"][0],
            Json::parse(R"({"role": "system", "content": "be brief"})"));
  const Json blocks = {text("one"),
                       {{"type", "text"}, {"text", "two"}, {"cache_control", {{"type", "ephemeral"}}}}};
  EXPECT_EQ(shown({{"system", blocks}})["messages"][0]["content"], "one\ntwo");
  EXPECT_EQ(shown({{"system", ""}})["messages"].size(), 1u);
  refused({{"system", 5}}, "system");
  refused({{"system", {{{"type", "image"}}}}}, "system[0].type",
          "expected \"text\", the only kind served here; got \"image\"");
}

TEST(MessagesRequest, NeighboursOfOneRoleAreOneTurn) {
  const Json chat = shown(messages({user("a"), user({text("b"), text("c")}), assistant("d"), user("e")}));
  EXPECT_EQ(chat["messages"], Json::parse(R"([{"role": "user", "content": "a\nb\nc"},
      {"role": "assistant", "content": "d"}, {"role": "user", "content": "e"}])"));
}

TEST(MessagesRequest, ToolsAndTheirResults) {
  const Json use = {{"type", "tool_use"}, {"id", "t1"}, {"name", "weather"}, {"input", {{"city", "Rome"}}}};
  const Json result = {
      {"type", "tool_result"}, {"tool_use_id", "t1"}, {"content", {text("21"), text("dry")}}};
  const Json chat =
      shown({{"tools", {tool()}},
             {"messages",
              {user("how warm?"), assistant({text("Let me see."), use}), user({result, text("well?")})}}});
  EXPECT_EQ(chat["tools"], Json::parse(R"([{"type": "function", "function": {"name": "weather",
      "description": "the weather", "parameters": {"type": "object"}}}])"));
  ASSERT_EQ(chat["messages"].size(), 4u);
  EXPECT_EQ(chat["messages"][1], Json::parse(R"({"role": "assistant", "content": "Let me see.", "tool_calls":
      [{"id": "t1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Rome"}}}]})"));
  EXPECT_EQ(chat["messages"][2], Json::parse(R"({"role": "tool", "content": "21\ndry",
      "tool_call_id": "t1", "name": "weather"})"));
  EXPECT_EQ(chat["messages"][3], Json::parse(R"({"role": "user", "content": "well?"})"));
}

TEST(MessagesRequest, RefusesWrongBlocksByName) {
  refused(messages({user({{{"type", "image"}, {"source", {{"type", "base64"}}}}})}),
          "messages[0].content[0].type", "image");
  refused(
      messages({user({{{"type", "document"}}})}), "messages[0].content[0].type",
      "expected text or tool_result, the kinds of a user's blocks that are served here; got \"document\"");
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
  refused(messages({{{"role", "tool"}, {"content", "x"}}}), "messages[0].role", "tool");
  refused(messages({system_message("x")}), "messages", "role user");
  refused(messages({assistant("")}), "messages", "all are empty");
  refused(messages({}), "messages");
  refused(messages({user("a"), assistant({{{"type", "image"}}}), user("b")}), "messages[1].content[0].type",
          "text, tool_use, thinking or redacted_thinking, the kinds of an assistant's blocks");
  refused(messages({user(Json::array())}), "messages", "expected a message with content; all are empty");
}

TEST(MessagesRequest, ALastMessageOfTheAssistantsBeginsTheReply) {
  const auto conversation = [](const Json& last) {
    return accepted(messages({user("a"), assistant(last)})).conversation;
  };
  const Conversation begun = conversation("I");
  EXPECT_TRUE(begun.continue_final_message);
  EXPECT_FALSE(begun.add_generation_prompt);
  EXPECT_EQ(begun.messages.back().content, "I");
  for (const Json& nothing : {Json(""), Json::array(), Json::array({text("")})}) {
    const Conversation whole = conversation(nothing);
    EXPECT_EQ(whole.messages.size(), 1u);
    EXPECT_FALSE(whole.continue_final_message);
    EXPECT_TRUE(whole.add_generation_prompt);
  }
  EXPECT_FALSE(
      accepted(messages({user("a"), assistant("I"), user("b")})).conversation.continue_final_message);
}

TEST(MessagesRequest, NothingButTextBeginsAReply) {
  const Json use = {{"type", "tool_use"}, {"id", "i"}, {"name", "n"}, {"input", Json::object()}};
  refused(messages({user("a"), assistant(Json::array({use}))}), "messages[1].content", "text alone");
  refused(messages({user("a"), assistant({{{"type", "thinking"}, {"thinking", "hm"}}, text("b")})}),
          "messages[1].content", "text alone");
  Json begun = messages({user("a"), assistant("I")});
  begun["tools"] = Json::array({tool()});
  begun["tool_choice"] = {{"type", "any"}};
  refused(begun, "tool_choice.type", "text was begun");
  begun["tool_choice"] = {{"type", "auto"}};
  EXPECT_TRUE(accepted(begun).conversation.continue_final_message);
  begun["max_tokens"] = 100;
  begun["thinking"] = {{"type", "enabled"}, {"budget_tokens", 10}};
  refused(begun, "thinking.type", "expected disabled");
  begun["thinking"] = {{"type", "disabled"}};
  EXPECT_TRUE(accepted(begun).conversation.continue_final_message);
}

TEST(MessagesRequest, ToolChoices) {
  const auto choice = [](const Json& value) {
    return accepted({{"tools", {tool()}}, {"tool_choice", value}}).conversation.tools;
  };
  EXPECT_EQ(choice({{"type", "auto"}}).choice, ToolChoice::kAuto);
  EXPECT_EQ(choice({{"type", "any"}}).choice, ToolChoice::kRequired);
  EXPECT_EQ(choice({{"type", "none"}}).choice, ToolChoice::kNone);
  const ToolUse named = choice({{"type", "tool"}, {"name", "weather"}, {"disable_parallel_tool_use", true}});
  EXPECT_EQ(named.choice, ToolChoice::kNamed);
  EXPECT_EQ(named.named, "weather");
  EXPECT_FALSE(named.parallel);
  refused({{"tools", {tool()}}, {"tool_choice", {{"type", "tool"}, {"name", "other"}}}}, "tool_choice.name",
          "one of the tools");
  refused({{"tool_choice", "auto"}}, "tool_choice");
  refused({{"tool_choice", {{"type", "any"}}}}, "tool_choice.type", "needs tools");
  refused({{"tools", {tool()}}, {"tool_choice", {{"type", "tool"}}}}, "tool_choice.name",
          "is required where type is tool");
  refused({{"tools", {tool()}}, {"tool_choice", {{"type", "must"}}}}, "tool_choice.type",
          "expected auto, any, tool or none; got \"must\"");
}

TEST(MessagesRequest, RefusesToolsByField) {
  refused({{"tools", 5}}, "tools");
  refused({{"tools", {5}}}, "tools[0]");
  refused({{"tools", {{{"name", "x"}}}}}, "tools[0].input_schema", "is required");
  refused({{"tools", {{{"name", "x"}, {"input_schema", {{"type", "array"}}}}}}}, "tools[0].input_schema.type",
          "expected \"object\"; got \"array\"");
  refused({{"tools", {{{"input_schema", Json::object()}}}}}, "tools[0].name");
  Json unnamed = tool();
  unnamed["name"] = "a b";
  refused({{"tools", {unnamed}}}, "tools[0].name", "letters, digits");
  refused({{"tools", {tool(), tool()}}}, "tools[1].name", "no other tool has");
  refused({{"tools", Json(std::vector<Json>(kToolsMax + 1, tool()))}}, "tools", "at most 1024");
  const Json search = {{"type", "web_search_20250305"}, {"name", "web_search"}};
  refused({{"tools", {search, tool()}}, {"tool_choice", {{"type", "tool"}, {"name", "web_search"}}}},
          "tool_choice.name", "the name of one of the tools");
  const ToolUse use = accepted({{"tools", {search, tool()}}}).conversation.tools;
  EXPECT_EQ(use.tools.size(), 1u);
  EXPECT_EQ(use.left_out, std::vector<std::string>{"tools of type \"web_search_20250305\""});
  Json longest = tool();
  longest["name"] = std::string(128, 'x');
  EXPECT_EQ(accepted({{"tools", {longest}}}).conversation.tools.tools.size(), 1u);
  longest["name"] = std::string(129, 'x');
  refused({{"tools", {longest}}}, "tools[0].name", "1 to 128");
}

TEST(MessagesRequest, Thinking) {
  const Json on = shown({{"thinking", {{"type", "enabled"}, {"budget_tokens", 50}}}});
  EXPECT_EQ(on["enable_thinking"], true);
  const Json off = shown({{"thinking", {{"type", "disabled"}}}});
  EXPECT_EQ(off["enable_thinking"], false);
  refused({{"thinking", {{"type", "enabled"}}}}, "thinking.budget_tokens",
          "is required where type is enabled");
  refused({{"thinking", {{"type", "enabled"}, {"budget_tokens", 100}}}}, "thinking.budget_tokens",
          "less than max_tokens (100)");
  refused({{"thinking", {{"type", "some"}}}}, "thinking.type",
          "expected enabled, adaptive or disabled; got \"some\"");
  const Json history = shown(messages(
      {user("a"), assistant({{{"type", "thinking"}, {"thinking", "hm"}, {"signature", "s"}}, text("b")}),
       user("c")}));
  EXPECT_EQ(history["messages"][1]["reasoning_content"], "hm");
  EXPECT_EQ(history["messages"][1]["content"], "b");
}

TEST(MessagesRequest, EffortReachesTheTemplateAndThinkingSwitches) {
  EXPECT_FALSE(shown().contains("reasoning_effort"));
  for (const char* effort : {"low", "medium", "high", "xhigh", "max"}) {
    const Json still = shown({{"output_config", {{"effort", effort}}}});
    EXPECT_EQ(still["reasoning_effort"], effort);
    EXPECT_EQ(still["enable_thinking"], false) << effort;
    EXPECT_EQ(still["thinking"], false) << effort;
  }
  const Json thinks = shown({{"output_config", {{"effort", "low"}}}, {"thinking", {{"type", "adaptive"}}}});
  EXPECT_EQ(thinks["reasoning_effort"], "low");
  EXPECT_EQ(thinks["enable_thinking"], true);
  EXPECT_EQ(thinks["thinking"], true);
  const Json own = {{"output_config", {{"effort", "low"}}},
                    {"chat_template_kwargs", {{"reasoning_effort", "high"}, {"enable_thinking", true}}}};
  EXPECT_EQ(shown(own)["reasoning_effort"], "high");
  EXPECT_EQ(shown(own)["enable_thinking"], true);
  refused({{"output_config", {{"effort", "minimal"}}}}, "output_config.effort",
          "expected low, medium, high, xhigh or max; got \"minimal\"");
  refused({{"output_config", {{"effort", 3}}}}, "output_config.effort");
}

TEST(MessagesRequest, UnknownFieldsAreNamedWithTheirPlace) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(accepted({{"stop_sequence", "x"}, {"max_completion_tokens", 5}}).unknown_fields,
            (Names{"stop_sequence", "max_completion_tokens"}));
  const Json config = {{"output_config", {{"efort", "low"}, {"effort", "low"}}},
                       {"thinking", {{"type", "adaptive"}, {"display", "omitted"}}},
                       {"loci", {{"explian", true}}}};
  EXPECT_EQ(accepted(config).unknown_fields,
            (Names{"output_config.efort", "thinking.display", "loci.explian"}));
  const Json known = {{"metadata", {{"user_id", "u"}}},
                      {"cache_control", {{"type", "ephemeral"}}},
                      {"tools", Json::array({tool()})},
                      {"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}},
                      {"cache_salt", "s"}};
  EXPECT_TRUE(accepted(known).unknown_fields.empty());
}

TEST(MessagesRequest, OutputFormatIsASchema) {
  const Json format = {{"type", "json_schema"}, {"schema", {{"type", "object"}}}};
  const auto constraint = [](const Json& extra) {
    const std::optional<ConstraintSpec> spec = accepted(extra).fields.constraint;
    EXPECT_TRUE(spec) << extra;
    return spec.value_or(ConstraintSpec());
  };
  const ConstraintSpec now = constraint({{"output_config", {{"format", format}}}});
  EXPECT_EQ(now.source.kind, GrammarKind::kJsonSchema);
  EXPECT_EQ(now.source.text, R"({"type":"object"})");
  EXPECT_EQ(now.field, "output_config.format.schema") << "what an error of the schema names";
  EXPECT_EQ(constraint({{"output_format", format}}).field, "output_format.schema");
  refused({{"output_config", {{"format", {{"type", "text"}}}}}}, "output_config.format.type");
  refused({{"output_format", {{"type", "json_schema"}}}}, "output_format.schema");
}

}  // namespace
}  // namespace loci
