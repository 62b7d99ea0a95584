// SPDX-License-Identifier: Apache-2.0
// Every field of a response's request: accepted forms, refused types, both sides of each limit.
#include "loci/serve/api/responses/response_request.h"
#include "loci/serve/conversation/tool_use.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/wire/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

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
  EXPECT_FALSE(request.background || request.fields.stream || request.logprobs);
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
  EXPECT_TRUE(request.tools.tools.empty() && request.template_arguments.empty());
  EXPECT_FALSE(request.fields.max_tokens || request.fields.constraint);
}

TEST(ResponseRequest, StoreFollowsTheServer) {
  EXPECT_FALSE(accepted(Json::object(), false).store);
  EXPECT_FALSE(accepted({{"store", false}}, false).store);
  EXPECT_FALSE(accepted({{"store", false}}).store);
  refused({{"store", true}}, "store", "without a store", false);
  refused({{"store", "yes"}}, "store", "true or false");
  refused({{"background", true}}, "background", "this server keeps no responses", false);
  refused({{"background", true}, {"store", false}}, "background",
          "is only allowed where store is true: its outcome is read from there");
  refused({{"conversation", "conv_1"}, {"store", false}}, "conversation",
          "is only allowed where store is true: the turn becomes part of it");
  // What a server without a store says: load_history's callers.
  EXPECT_EQ(accepted({{"conversation", "conv_1"}}, false).conversation, "conv_1");
  EXPECT_TRUE(accepted({{"background", true}}).background);
}

TEST(ResponseRequest, ContinuesOneThing) {
  EXPECT_EQ(accepted({{"previous_response_id", "resp_1"}}).previous_response_id, "resp_1");
  EXPECT_EQ(accepted({{"conversation", "conv_1"}}).conversation, "conv_1");
  EXPECT_EQ(accepted({{"conversation", {{"id", "conv_1"}}}}).conversation, "conv_1");
  refused({{"conversation", "c"}, {"previous_response_id", "r"}}, "previous_response_id",
          "without conversation");
  refused({{"conversation", Json::object()}}, "conversation.id", "required");
  refused({{"conversation", 5}}, "conversation", "expected an id or an object with one; got 5");
  refused({{"previous_response_id", 5}}, "previous_response_id", "a string");
}

TEST(ResponseRequest, ReferencesAreNotTakenWithAConversation) {
  const Json input = {{{"role", "user"}, {"content", "x"}}, {{"type", "item_reference"}, {"id", "msg_1"}}};
  refused({{"input", input}, {"conversation", "conv_1"}}, "input[1].type",
          "a reference is not taken where conversation is set");
  EXPECT_EQ(accepted({{"input", input}, {"previous_response_id", "resp_1"}}).input.size(), 2u);
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
  EXPECT_EQ(request.fields.max_tokens, 20u);
  EXPECT_EQ(request.echo["max_output_tokens"], 20);
  EXPECT_EQ(request.echo["max_tool_calls"], 3);
  refused({{"max_output_tokens", 0}}, "max_output_tokens", "from 1 to");
  refused({{"max_output_tokens", "9"}}, "max_output_tokens", "an integer");
  refused({{"max_tool_calls", 0}}, "max_tool_calls");
  refused({{"max_output_tokens", 4}, {"min_tokens", 5}}, "min_tokens", "at most max_output_tokens (4)");
  accepted({{"truncation", "disabled"}});
  accepted({{"truncation", "auto"}});
  refused({{"truncation", "some"}}, "truncation", "disabled");
}

TEST(ResponseRequest, Sampling) {
  const ResponseRequest request = accepted({{"temperature", 0.5},
                                            {"top_p", 0.9},
                                            {"seed", 4},
                                            {"stop", "x"},
                                            {"top_k", 3},
                                            {"model", "m"},
                                            {"stream", true}});
  const GenerationFields& fields = request.fields;
  EXPECT_EQ(fields.sampling.temperature, 0.5f);
  EXPECT_EQ(fields.sampling.seed, 4u);
  EXPECT_EQ(fields.sampling.top_k, 3u);
  EXPECT_EQ(fields.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(fields.model, "m");
  EXPECT_TRUE(fields.stream);
  EXPECT_EQ(request.echo["temperature"], 0.5);
  refused({{"temperature", -1}}, "temperature", "at least 0");
  refused({{"stop", {"a", 5}}}, "stop[1]", "a string");
}

// What the server chose where the request says nothing is shown as it was written there.
TEST(ResponseRequest, DefaultsAreTheServers) {
  RequestDefaults defaults;
  defaults.sampling.temperature = 0.8f;
  const Result<ResponseRequest> request =
      parse_response_request({{"input", "x"}, {"top_p", 0.5}}, true, defaults);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->fields.sampling.temperature, 0.8f);
  EXPECT_EQ(request->echo["temperature"].dump(), "0.8");
  EXPECT_EQ(request->echo["top_p"], 0.5);
}

TEST(ResponseRequest, LogprobsAreIncluded) {
  EXPECT_FALSE(accepted({{"top_logprobs", 3}}).logprobs);
  const ResponseRequest request =
      accepted({{"top_logprobs", 3}, {"include", {"message.output_text.logprobs"}}});
  EXPECT_TRUE(request.logprobs);
  EXPECT_TRUE(request.fields.sampling.logprobs);
  EXPECT_EQ(request.fields.sampling.top_logprobs, 3u);
  accepted({{"include", {"reasoning.encrypted_content"}}});
  refused({{"top_logprobs", 21}}, "top_logprobs", "from 0 to 20");
  refused({{"include", {"everything"}}}, "include[0]", "message.output_text.logprobs");
  refused({{"include", "message.output_text.logprobs"}}, "include", "an array");
}

TEST(ResponseRequest, ReasoningReachesTheTemplate) {
  const ResponseRequest low = accepted({{"reasoning", {{"effort", "low"}, {"summary", "auto"}}}});
  EXPECT_EQ(low.reasoning_effort, "low");
  EXPECT_EQ(low.echo["reasoning"]["effort"], "low");
  EXPECT_EQ(accepted({{"reasoning", {{"effort", "none"}}}}).reasoning_effort, "none");
  // What the client tells the template itself counts.
  const ResponseRequest both = accepted(
      {{"reasoning", {{"effort", "low"}}}, {"chat_template_kwargs", {{"reasoning_effort", "high"}}}});
  EXPECT_EQ(both.template_arguments["reasoning_effort"], "high");
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
  ASSERT_TRUE(request.fields.constraint);
  EXPECT_EQ(request.fields.constraint->source.text, schema.dump());
  EXPECT_EQ(request.fields.constraint->field, "text.format.schema") << "what an error of the schema names";
  EXPECT_EQ(request.echo["text"]["format"]["name"], "n");
  const auto object = accepted({{"text", {{"format", {{"type", "json_object"}}}}}}).fields.constraint;
  ASSERT_TRUE(object);
  EXPECT_EQ(object->source.kind, GrammarKind::kJsonObject);
  EXPECT_EQ(object->field, "text.format");
  EXPECT_FALSE(accepted({{"text", {{"format", {{"type", "text"}}}}}}).fields.constraint);
  refused({{"text", {{"format", {{"type", "json_object"}}}}}, {"guided_regex", "a"}}, "guided_regex",
          "can't be combined with text.format");
  EXPECT_EQ(accepted({{"text", {{"verbosity", "low"}}}}).echo["text"]["verbosity"], "low");
  refused({{"text", {{"format", {{"type", "xml"}}}}}}, "text.format.type",
          "expected text, json_object or json_schema; got \"xml\"");
  refused({{"text", {{"format", {{"type", "json_schema"}, {"schema", schema}}}}}}, "text.format.name",
          "required");
  refused({{"text", {{"format", {{"type", "json_schema"}, {"name", "n"}}}}}}, "text.format.schema",
          "required");
  refused({{"text", {{"format", {{"type", "json_schema"}, {"name", "n"}, {"schema", 3}}}}}},
          "text.format.schema", "an object");
  refused({{"text", {{"format", "json"}}}}, "text.format", "object");
  refused({{"text", {{"verbosity", "loud"}}}}, "text.verbosity", "medium");
}

TEST(ResponseRequest, Tools) {
  const Json tool = {
      {"type", "function"}, {"name", "f"}, {"parameters", {{"type", "object"}}}, {"description", "d"}};
  const ResponseRequest request = accepted({{"tools", {tool}}, {"parallel_tool_calls", false}});
  ASSERT_TRUE(request.tools.has("f"));
  EXPECT_EQ(request.tools.tools[0].parameters()["type"], "object");
  EXPECT_FALSE(request.tools.parallel);
  EXPECT_EQ(request.echo["tools"][0]["name"], "f");
  EXPECT_TRUE(request.echo["tools"][0]["strict"].is_null());
  const auto choice_of = [&](const Json& choice) {
    return accepted({{"tools", {tool}}, {"tool_choice", choice}}).tools.choice;
  };
  EXPECT_EQ(choice_of("none"), ToolChoice::kNone);
  EXPECT_EQ(choice_of("auto"), ToolChoice::kAuto);
  EXPECT_EQ(choice_of("required"), ToolChoice::kRequired);
  const Json named = {{"type", "function"}, {"name", "f"}};
  const ResponseRequest choice = accepted({{"tools", {tool}}, {"tool_choice", named}});
  EXPECT_EQ(choice.tools.choice, ToolChoice::kNamed);
  EXPECT_EQ(choice.tools.named, "f");
  EXPECT_EQ(choice.echo["tool_choice"], named);
  Json other = tool;
  other["name"] = "g";
  const Json allowed = {{"type", "allowed_tools"}, {"mode", "required"}, {"tools", {named, named}}};
  const ResponseRequest some = accepted({{"tools", {other, tool}}, {"tool_choice", allowed}});
  EXPECT_EQ(some.tools.tools.size(), 2u) << "the model is told of both, so that its prompt stays what it was";
  EXPECT_TRUE(some.tools.may_call("f") && !some.tools.may_call("g"));
  EXPECT_EQ(some.tools.choice, ToolChoice::kRequired);
  EXPECT_EQ(some.echo["tools"].size(), 2u);
  EXPECT_EQ(some.echo["tool_choice"], allowed);
}

// Codex sends them unasked.
TEST(ResponseRequest, ToolsThatAServiceRunsAreLeftOut) {
  const Json tool = {{"type", "function"}, {"name", "f"}};
  const Json search = {{"type", "web_search"}, {"external_web_access", false}};
  const Json custom = {{"type", "custom"}, {"name", "x"}};
  const ResponseRequest request = accepted({{"tools", {search, tool, custom, search}}});
  ASSERT_EQ(request.tools.tools.size(), 1u);
  EXPECT_EQ(request.tools.left_out,
            (std::vector<std::string>{"tools of type \"web_search\"", "tools of type \"custom\""}));
  EXPECT_EQ(request.echo["tools"].size(), 1u);
}

TEST(ResponseRequest, RefusedTools) {
  const Json tool = {{"type", "function"}, {"name", "f"}};
  refused({{"tools", 5}}, "tools", "an array");
  refused({{"tools", {{{"name", "f"}}}}}, "tools[0].type", "required");
  refused({{"tools", {{{"type", "web_search"}}}}, {"tool_choice", {{"type", "web_search"}}}},
          "tool_choice.type",
          "expected \"function\", the only kind of tool that this server has; got \"web_search\"");
  refused({{"tools", {{{"type", "function"}}}}}, "tools[0].name", "required");
  refused({{"tools", {{{"type", "function"}, {"name", "f"}, {"parameters", {{"type", "string"}}}}}}},
          "tools[0].parameters.type", "expected \"object\"; got \"string\"");
  refused({{"tools", {{{"type", "function"}, {"name", "f"}, {"parameters", "x"}}}}}, "tools[0].parameters",
          "an object");
  refused({{"tools", {{{"type", "function"}, {"name", "f"}, {"strict", 1}}}}}, "tools[0].strict",
          "true or false");
  refused({{"tools", Json(kToolsMax + 1, tool)}}, "tools", "at most 1024");
  Json most = Json::array();
  for (std::uint32_t i = 0; i < kToolsMax; ++i)
    most.push_back({{"type", "function"}, {"name", fmt::format("f{}", i)}});
  EXPECT_EQ(accepted({{"tools", most}}).tools.tools.size(), kToolsMax);
  refused({{"tools", {tool, tool}}}, "tools[1].name", "no other tool has");
  refused({{"tools", {{{"type", "function"}, {"name", "a b"}}}}}, "tools[0].name", "letters, digits");
  refused({{"tools", {tool}},
           {"tool_choice", {{"type", "allowed_tools"}, {"mode", "required"}, {"tools", Json::array()}}}},
          "tool_choice.tools", "an array of 1 to 1024 tools");
  refused({{"tool_choice", "any"}}, "tool_choice",
          "expected none, auto, required or an object that names a tool; got \"any\"");
  refused({{"tool_choice", "required"}}, "tool_choice", "only allowed with tools");
  refused({{"tools", {tool}}, {"tool_choice", {{"type", "function"}, {"name", "g"}}}}, "tool_choice.name",
          "\"g\"");
  refused({{"tools", {tool}}, {"tool_choice", {{"type", "mcp"}}}}, "tool_choice.type", "mcp");
  refused({{"tools", {tool}}, {"tool_choice", {{"type", "allowed_tools"}, {"mode", "x"}}}},
          "tool_choice.mode", "auto");
  refused({{"tools", {tool}}, {"tool_choice", {{"type", "allowed_tools"}, {"mode", "auto"}}}},
          "tool_choice.tools", "required");
  const auto allowed = [&](const Json& list) -> Json {
    return {{"tools", {tool}},
            {"tool_choice", {{"type", "allowed_tools"}, {"mode", "auto"}, {"tools", list}}}};
  };
  refused(allowed(Json::array()), "tool_choice.tools", "an array of 1 to 1024 tools; got []");
  refused(allowed(Json::array({tool, {{"type", "web_search"}}})), "tool_choice.tools[1].type",
          "expected \"function\", the only kind of tool that this server has; got \"web_search\"");
  refused(allowed(Json::array({{{"type", "function"}, {"name", "g"}}})), "tool_choice.tools[0].name",
          "expected the name of one of the tools; got \"g\"");
  refused({{"parallel_tool_calls", 1}}, "parallel_tool_calls", "true or false");
}

TEST(ResponseRequest, WhatIsCountedNeedsNoInput) {
  const Json request = {{"previous_response_id", "resp_1"}};
  const auto counted = parse_response_request(request, true, {}, ResponsePurpose::kCount);
  ASSERT_TRUE(counted.ok()) << counted.status().to_string();
  EXPECT_TRUE(counted->input.empty());
  EXPECT_EQ(parse_response_request(request, true).status().field(), "input");
  EXPECT_EQ(parse_response_request({{"input", 5}}, true, {}, ResponsePurpose::kCount).status().field(),
            "input");
  EXPECT_EQ(
      parse_response_request({{"input", Json::array()}}, true, {}, ResponsePurpose::kCount).status().field(),
      "input");
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
  refused({{"metadata", "k"}}, "metadata", "expected an object of strings; got \"k\"");
}

TEST(ResponseRequest, RefusesWhatIsNotServed) {
  refused({{"prompt", {{"id", "pmpt_1"}}}}, "prompt", "not supported");
  refused({{"context_management", Json::array({{{"type", "compaction"}}})}}, "context_management",
          "not supported");
  accepted({{"context_management", Json::array()}});
  accepted({{"prompt_cache_options", {{"ttl", "30m"}, {"prewarm", false}}}});
  refused({{"prompt_cache_options", {{"prewarm", true}}}}, "prompt_cache_options.prewarm", "not supported");
  refused({{"messages", Json::array()}}, "messages", "not supported");
  refused({{"n", 2}}, "n", "not supported");
  refused({{"continue_final_message", true}}, "continue_final_message", "not supported");
  accepted({{"n", 1}, {"something_new", 3}, {"service_tier", "flex"}});
  refused({{"stream_options", {{"include_obfuscation", false}}}}, "stream_options", "stream is true");
  accepted({{"stream", true}, {"stream_options", {{"include_obfuscation", false}}}});
  refused({{"user", 4}}, "user", "a string");
  refused({{"instructions", 4}}, "instructions", "a string");
}

}  // namespace
}  // namespace loci
