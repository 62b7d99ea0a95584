// SPDX-License-Identifier: Apache-2.0
// Every field of every request but the messages of chats: accepted forms, refused types, both sides of each
// limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "loci/serve/api/openai/chat_request.h"
#include "loci/serve/api/openai/completion_request.h"
#include "loci/serve/api/openai/token_request.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

Json completion(const Json& extra) {
  Json request = {{"prompt", "hello"}};
  request.update(extra);
  return request;
}

GenerationFields accepted(const Json& extra = Json::object()) {
  Result<CompletionRequest> result = parse_completion_request(completion(extra));
  EXPECT_TRUE(result.ok()) << extra.dump() << ": " << result.status().to_string();
  return result.ok() ? std::move(*result).fields : GenerationFields{};
}

// The error's field, then that the message shows the value.
void refused(const Json& extra, const std::string& field, const std::string& part = "") {
  const Result<CompletionRequest> result = parse_completion_request(completion(extra));
  ASSERT_FALSE(result.ok()) << extra.dump();
  EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status().field(), field) << extra.dump();
  EXPECT_NE(result.status().message().find(part), std::string::npos) << result.status().message();
}

TEST(GenerationFields, DefaultsAreOpenAis) {
  const GenerationFields fields = accepted();
  EXPECT_EQ(fields.sampling.temperature, 1.0f);
  EXPECT_EQ(fields.sampling.top_p, 1.0f);
  EXPECT_EQ(fields.sampling.top_k, 0u);
  EXPECT_EQ(fields.choices, 1u);
  EXPECT_FALSE(fields.stream);
  EXPECT_FALSE(fields.has_seed);
  EXPECT_EQ(fields.max_tokens, 16u);
  EXPECT_FALSE(fields.sampling.logprobs);
}

TEST(GenerationFields, ServersDefaultsHoldWhereARequestDoesNotSay) {
  RequestDefaults defaults;
  defaults.sampling.temperature = 0.6f;
  defaults.sampling.top_k = 20;
  const auto read = [&](const Json& extra) {
    return parse_completion_request(completion(extra), defaults).value().fields.sampling;
  };
  EXPECT_EQ(read(Json::object()).temperature, 0.6f);
  EXPECT_EQ(read({{"temperature", nullptr}}).temperature, 0.6f);
  EXPECT_EQ(read({{"temperature", 1}}).temperature, 1.0f);
  EXPECT_EQ(read({{"temperature", 1}}).top_k, 20u);
  EXPECT_EQ(read({{"top_k", -1}}).top_k, 0u);
}

TEST(GenerationFields, NothingThatIsNotServedIsIgnored) {
  for (const Json& one :
       {Json{{"dry_multiplier", 0.8}}, Json{{"typical_p", 0.9}}, Json{{"lora", {{{"id", 0}, {"scale", 1}}}}},
        Json{{"priority", 1}}, Json{{"xtc_probability", 0.5}}, Json{{"mirostat", 2}}, Json{{"n_probs", 3}},
        Json{{"samplers", {"top_k"}}}, Json{{"length_penalty", 1.2}}, Json{{"allowed_token_ids", {1}}},
        Json{{"repeat_last_n", 64}}, Json{{"prompt_logprobs", 0}}, Json{{"prompt_logprobs", 5}},
        Json{{"include_stop_str_in_output", true}}, Json{{"cache_prompt", false}}, Json{{"suffix", "x"}}}) {
    refused(one, one.begin().key(), "is not supported");
    RequestDefaults lenient{.sampling = {}, .unserved = UnservedRule::kIgnore};
    const auto passed = parse_completion_request(completion(one), lenient);
    ASSERT_TRUE(passed.ok()) << one.dump();
    EXPECT_EQ(passed->fields.ignored, std::vector<std::string>{one.begin().key()});
  }
  // What asks for nothing passes.
  const GenerationFields fields = accepted({{"dry_multiplier", 0},
                                            {"dry_base", 1.75},
                                            {"typical_p", 1.0},
                                            {"priority", 0},
                                            {"lora", Json::array()},
                                            {"mirostat", 0},
                                            {"mirostat_tau", 5},
                                            {"cache_prompt", true},
                                            {"prompt_logprobs", false},
                                            {"chat_template", ""},
                                            {"skip_special_tokens", true}});
  EXPECT_TRUE(fields.ignored.empty());
  for (const std::string_view name : unserved_field_names()) {
    const auto known = generation_field_names();
    EXPECT_NE(std::find(known.begin(), known.end(), name), known.end()) << name;
  }
}

TEST(GenerationFields, ReadsTheSaltAndLlamaCppsLimit) {
  EXPECT_EQ(accepted({{"cache_salt", "pepper"}}).cache_salt, "pepper");
  refused({{"cache_salt", ""}}, "cache_salt", "1 to 256 bytes");
  refused({{"cache_salt", 5}}, "cache_salt", "got 5");
  EXPECT_EQ(accepted({{"n_predict", 7}}).max_tokens, 7u);
  EXPECT_EQ(accepted(Json::object()).max_tokens, 16u);
  for (const char* name : {"n_predict", "max_tokens"})
    EXPECT_EQ(accepted({{name, -1}}).max_tokens, std::nullopt) << name;
  EXPECT_EQ(accepted({{"n_predict", 7}, {"max_tokens", 9}}).max_tokens, 9u);
}

TEST(GenerationFields, ReadsEverySamplingField) {
  const GenerationFields fields = accepted({{"temperature", 0.5},
                                            {"top_k", 40},
                                            {"top_p", 0.9},
                                            {"min_p", 0.05},
                                            {"repetition_penalty", 1.1},
                                            {"frequency_penalty", -0.5},
                                            {"presence_penalty", 2},
                                            {"seed", 42},
                                            {"min_tokens", 3},
                                            {"max_tokens", 7},
                                            {"ignore_eos", true},
                                            {"n", 2},
                                            {"logit_bias", {{"5", -100}, {"7", 1.5}}},
                                            {"stop_token_ids", {1, 2}},
                                            {"stop", {"a", "b"}},
                                            {"user", "me"},
                                            {"unknown", {1, 2}}});
  EXPECT_EQ(fields.sampling.temperature, 0.5f);
  EXPECT_EQ(fields.sampling.top_k, 40u);
  EXPECT_EQ(fields.sampling.top_p, 0.9f);
  EXPECT_EQ(fields.sampling.min_p, 0.05f);
  EXPECT_EQ(fields.sampling.repetition_penalty, 1.1f);
  EXPECT_EQ(fields.sampling.frequency_penalty, -0.5f);
  EXPECT_EQ(fields.sampling.presence_penalty, 2.0f);
  EXPECT_EQ(fields.sampling.seed, 42u);
  EXPECT_TRUE(fields.has_seed);
  EXPECT_EQ(fields.sampling.min_tokens, 3u);
  EXPECT_EQ(fields.max_tokens, 7u);
  EXPECT_TRUE(fields.ignore_eos);
  EXPECT_EQ(fields.choices, 2u);
  EXPECT_EQ(fields.sampling.logit_bias.size(), 2u);
  EXPECT_EQ(fields.stop_token_ids, (std::vector<TokenId>{TokenId(1), TokenId(2)}));
  EXPECT_EQ(fields.stop, (std::vector<std::string>{"a", "b"}));
}

TEST(GenerationFields, NullIsAbsent) {
  Json all;
  for (const char* name : {"temperature",
                           "top_k",
                           "top_p",
                           "min_p",
                           "seed",
                           "stop",
                           "stop_token_ids",
                           "logit_bias",
                           "n",
                           "max_tokens",
                           "max_completion_tokens",
                           "stream",
                           "stream_options",
                           "logprobs",
                           "tools",
                           "response_format",
                           "echo",
                           "suffix",
                           "best_of",
                           "model",
                           "ignore_eos",
                           "min_tokens"}) {
    all[name] = nullptr;
  }
  accepted(all);
}

TEST(GenerationFields, NumbersHaveTypesAndLimits) {
  refused({{"temperature", "hot"}}, "temperature", "got \"hot\"");
  refused({{"temperature", -0.1}}, "temperature", "at least 0");
  refused({{"temperature", true}}, "temperature");
  refused({{"top_p", 0}}, "top_p", "greater than 0 and at most 1; got 0");
  refused({{"top_p", 1.01}}, "top_p", "1.01");
  refused({{"min_p", -1}}, "min_p");
  refused({{"min_p", 2}}, "min_p");
  refused({{"repetition_penalty", 0}}, "repetition_penalty");
  refused({{"repeat_penalty", -1}}, "repeat_penalty");
  refused({{"frequency_penalty", 2.1}}, "frequency_penalty", "at least -2 and at most 2");
  refused({{"presence_penalty", -2.1}}, "presence_penalty");
  refused({{"top_k", -2}}, "top_k", "-1");
  refused({{"top_k", 1.5}}, "top_k", "1.5");
  refused({{"n", 0}}, "n", "from 1 to 16; got 0");
  refused({{"n", 17}}, "n");
  refused({{"max_tokens", 0}}, "max_tokens");
  refused({{"max_tokens", "5"}}, "max_tokens");
  refused({{"max_tokens", 1e30}}, "max_tokens");
  refused({{"min_tokens", 5}, {"max_tokens", 4}}, "min_tokens", "max_tokens (4); got 5");
  refused({{"seed", "x"}}, "seed", "expected an integer of 64 bits; got \"x\"");
  refused({{"seed", 0.5}}, "seed");
  refused({{"logprobs", 21}}, "logprobs", "20");
  refused({{"stream", 1}}, "stream", "true or false");
  refused({{"model", 5}}, "model");
}

TEST(GenerationFields, NumbersInOtherFormsAreTaken) {
  EXPECT_EQ(accepted({{"max_tokens", 16.0}}).max_tokens, 16u);
  EXPECT_EQ(accepted({{"max_tokens", 3}, {"max_completion_tokens", 5}}).max_tokens, 5u);
  EXPECT_EQ(accepted({{"top_k", -1}}).sampling.top_k, 0u);
  EXPECT_EQ(accepted({{"seed", -2}}).sampling.seed, ~std::uint64_t{1});
  EXPECT_EQ(accepted({{"seed", ~std::uint64_t{0}}}).sampling.seed, ~std::uint64_t{0});
  EXPECT_EQ(accepted({{"repeat_penalty", 1.2}}).sampling.repetition_penalty, 1.2f);
  // Too small for a float, but greater than 0 all the same.
  EXPECT_GT(accepted({{"top_p", 1e-300}}).sampling.top_p, 0.0f);
}

TEST(GenerationFields, SeedMinusOneIsRandom) {
  EXPECT_FALSE(accepted({{"seed", -1}}).has_seed);
  EXPECT_FALSE(accepted({{"seed", -1.0}}).has_seed);
  EXPECT_TRUE(accepted({{"seed", 0}}).has_seed);
}

TEST(GenerationFields, StopStringsHaveLimits) {
  EXPECT_EQ(accepted({{"stop", "x"}}).stop, std::vector<std::string>{"x"});
  EXPECT_TRUE(accepted({{"stop", ""}}).stop.empty());
  EXPECT_EQ(accepted({{"stop", std::vector<std::string>(16, "x")}}).stop.size(), 16u);
  refused({{"stop", std::vector<std::string>(17, "x")}}, "stop", "at most 16");
  refused({{"stop", 5}}, "stop");
  refused({{"stop", Json::array({"a", 5})}}, "stop[1]", "got 5");
  EXPECT_EQ(accepted({{"stop", {"", "a", ""}}}).stop, std::vector<std::string>{"a"});
  refused({{"stop", std::string(1025, 'x')}}, "stop", "1024");
  refused({{"stop_token_ids", "x"}}, "stop_token_ids");
  refused({{"stop_token_ids", Json::array({1, -1})}}, "stop_token_ids[1]", "-1");
  refused({{"stop_token_ids", std::vector<int>(257, 1)}}, "stop_token_ids", "256");
}

TEST(GenerationFields, LogitBiasHasLimits) {
  refused({{"logit_bias", Json::array({1})}}, "logit_bias", "expected an object of token id to number; got ");
  refused({{"logit_bias", {{"x", 1}}}}, "logit_bias", "expected token ids as keys; got \"x\"");
  refused({{"logit_bias", {{"-1", 1}}}}, "logit_bias");
  refused({{"logit_bias", {{"3", 101}}}}, "logit_bias.3", "101");
  refused({{"logit_bias", {{"3", "1"}}}}, "logit_bias.3");
  Json many = Json::object();
  for (int i = 0; i < 1025; ++i) many[std::to_string(i)] = 0;
  refused({{"logit_bias", many}}, "logit_bias", "1024");
  // Names of one token, whose biases would add up to more than each may be.
  refused({{"logit_bias", {{"5", 100}, {"05", 100}}}}, "logit_bias", "got token 5 twice");
  refused({{"logit_bias", {{"0", -100}, {"7", 1}, {"000", 1}}}}, "logit_bias", "got token 0 twice");
  EXPECT_EQ(accepted({{"logit_bias", {{"05", 100}, {"50", 100}}}}).sampling.logit_bias.size(), 2u);
}

TEST(GenerationFields, StreamOptionsNeedAStream) {
  EXPECT_TRUE(accepted({{"stream", true}, {"stream_options", {{"include_usage", true}}}}).include_usage);
  const Json continuous = {{"stream", true}, {"stream_options", {{"continuous_usage_stats", true}}}};
  EXPECT_TRUE(accepted(continuous).continuous_usage);
  EXPECT_FALSE(accepted(continuous).include_usage);
  refused({{"stream", true}, {"stream_options", {{"continuous_usage_stats", 1}}}},
          "stream_options.continuous_usage_stats");
  refused({{"stream_options", {{"include_usage", true}}}}, "stream_options", "stream is true");
  refused({{"stream", true}, {"stream_options", 1}}, "stream_options");
  refused({{"stream", true}, {"stream_options", {{"include_usage", 1}}}}, "stream_options.include_usage");
}

TEST(GenerationFields, WhatIsNotServedIsRefusedByName) {
  refused({{"suffix", "x"}}, "suffix", "not supported");
  refused({{"modalities", {"text", "audio"}}}, "modalities");
  accepted({{"response_format", {{"type", "text"}}},
            {"echo", false},
            {"suffix", ""},
            {"best_of", 1},
            {"modalities", Json::array({"text"})}});
  accepted({{"n", 3}, {"best_of", 3}});
}

TEST(CompletionRequest, BestOfIsAtLeastNAndNotStreamed) {
  const auto parsed = [](const Json& extra) { return parse_completion_request(completion(extra)).value(); };
  EXPECT_EQ(parsed({{"n", 2}}).kept, 2u);
  EXPECT_EQ(parsed({{"n", 2}}).fields.choices, 2u);
  EXPECT_EQ(parsed({{"n", 2}, {"best_of", 5}}).kept, 2u);
  EXPECT_EQ(parsed({{"n", 2}, {"best_of", 5}}).fields.choices, 5u);
  EXPECT_TRUE(parse_completion_request(completion({{"best_of", 1}, {"stream", true}})).ok());
  refused({{"best_of", 2}, {"stream", true}}, "best_of", "where stream is true");
  refused({{"n", 3}, {"best_of", 2}}, "best_of", "at least n (3); got 2");
  refused({{"best_of", kChoicesMax + 1}}, "best_of", "from 1 to 16");
  refused({{"prompt", std::vector<std::string>(200, "x")}, {"best_of", 2}}, "best_of", "got 400");
}

TEST(CompletionRequest, RepliesAreShortUnlessAsked) {
  EXPECT_EQ(accepted(Json::object()).max_tokens, 16u);
  EXPECT_EQ(accepted({{"max_tokens", nullptr}}).max_tokens, 16u);
  EXPECT_EQ(accepted({{"min_tokens", 40}}).max_tokens, 40u);
  const Json chat = {{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}};
  EXPECT_FALSE(parse_chat_request(chat)->fields.max_tokens.has_value());
}

TEST(CompletionRequest, EchoWithLogprobsScoresThePrompt) {
  EXPECT_TRUE(parse_completion_request(completion({{"echo", true}})).value().echo);
  EXPECT_FALSE(parse_completion_request(completion(Json::object())).value().echo);
  const auto scoring =
      parse_completion_request(completion({{"echo", true}, {"logprobs", 1}, {"max_tokens", 0}}));
  EXPECT_TRUE(scoring.value().scores_prompt());
  EXPECT_EQ(scoring->fields.max_tokens, 0u);
  EXPECT_FALSE(parse_completion_request(completion({{"echo", true}})).value().scores_prompt());
  refused({{"echo", false}, {"max_tokens", 0}}, "max_tokens");
  refused({{"echo", true}, {"logprobs", 1}, {"stream", true}}, "stream",
          "expected false where echo and logprobs ask for the prompt's log-probabilities; got true");
  refused({{"echo", true}, {"logprobs", 1}, {"n", 2}}, "n",
          "expected 1 where echo and logprobs ask for the prompt's log-probabilities; got 2");
  refused({{"echo", true}, {"logprobs", 1}, {"best_of", 2}}, "best_of",
          "expected 1 where echo and logprobs ask for the prompt's log-probabilities; got 2");
  refused({{"echo", "yes"}}, "echo");
}

TEST(CompletionRequest, PromptTakesFourForms) {
  const auto prompts = [](const Json& prompt) { return parse_completion_request({{"prompt", prompt}}); };
  EXPECT_EQ(prompts("a")->prompts.size(), 1u);
  EXPECT_EQ(prompts({"a", "b"})->prompts.size(), 2u);
  EXPECT_EQ(std::get<std::vector<TokenId>>(prompts({1, 2, 3})->prompts[0]).size(), 3u);
  EXPECT_EQ(std::get<std::vector<TokenId>>(prompts(Json::parse("[[1],[2,3]]"))->prompts[1]).size(), 2u);
  const auto field = [&](const Json& prompt) { return prompts(prompt).status().field(); };
  EXPECT_EQ(field(5), "prompt");
  EXPECT_EQ(field(Json::array()), "prompt");
  EXPECT_EQ(field(Json::object()), "prompt");
  EXPECT_EQ(field(Json::parse("[1,\"a\"]")), "prompt[1]");
  EXPECT_EQ(field(Json::parse("[\"a\",1]")), "prompt[1]");
  EXPECT_EQ(field(Json::parse("[[1],[-2]]")), "prompt[1][0]");
  EXPECT_EQ(field(Json::parse("[1,1.5]")), "prompt[1]");
  EXPECT_EQ(field(Json::parse("[1,4294967296]")), "prompt[1]");
  EXPECT_EQ(field(std::vector<std::string>(257, "a")), "prompt");
  EXPECT_EQ(parse_completion_request(Json::object()).status().field(), "prompt");
  EXPECT_EQ(parse_completion_request(Json::array()).ok(), false);
  EXPECT_EQ(
      parse_completion_request({{"prompt", std::vector<std::string>(200, "a")}, {"n", 2}}).status().field(),
      "n");
}

TEST(CompletionRequest, LogprobsIsANumber) {
  EXPECT_TRUE(accepted({{"logprobs", 0}}).sampling.logprobs);
  EXPECT_EQ(accepted({{"logprobs", 5}}).sampling.top_logprobs, 5u);
  EXPECT_FALSE(accepted({{"logprobs", false}}).sampling.logprobs);
  refused({{"logprobs", true}}, "logprobs");
}

TEST(GenerationFields, FieldsOfChatsAreRefusedElsewhere) {
  refused({{"continue_final_message", true}}, "continue_final_message", "is not supported");
  refused({{"reasoning_format", "none"}}, "reasoning_format", "is not supported");
  accepted({{"continue_final_message", false}, {"reasoning_format", "auto"}});
}

TEST(TokenRequests, TakeBothShapes) {
  EXPECT_FALSE(parse_tokenize_request({{"content", "x"}})->add_special);
  EXPECT_TRUE(parse_tokenize_request({{"prompt", "x"}})->add_special);
  EXPECT_FALSE(parse_tokenize_request({{"prompt", "x"}, {"add_special_tokens", false}})->add_special);
  EXPECT_TRUE(parse_tokenize_request({{"content", "x"}, {"with_pieces", true}})->with_pieces);
  EXPECT_TRUE(parse_tokenize_request({{"messages", Json::array({{{"role", "user"}, {"content", "x"}}})}})
                  ->conversation);
  EXPECT_EQ(parse_tokenize_request(Json::object()).status().message(),
            "expected exactly one of content, prompt and messages");
  EXPECT_FALSE(parse_tokenize_request({{"prompt", "x"}, {"content", "x"}}).ok());
  EXPECT_EQ(parse_tokenize_request({{"prompt", 5}}).status().field(), "prompt");
  EXPECT_EQ(parse_detokenize_request({{"tokens", {1, 2}}})->tokens.size(), 2u);
  EXPECT_EQ(parse_detokenize_request(Json::object()).status().field(), "tokens");
  EXPECT_EQ(parse_detokenize_request({{"tokens", "x"}}).status().field(), "tokens");
  const Status word = parse_detokenize_request({{"tokens", Json::array({1, "x"})}}).status();
  EXPECT_EQ(word.field(), "tokens[1]");
  EXPECT_EQ(word.message(), "expected a token id; got \"x\"");
}

TEST(CheckTokens, NamesTheFirstOneOutside) {
  EXPECT_TRUE(check_tokens({TokenId(0), TokenId(9)}, 10, "prompt").ok());
  const Status status = check_tokens({TokenId(0), TokenId(10)}, 10, "prompt");
  EXPECT_EQ(status.field(), "prompt[1]");
  EXPECT_EQ(status.message(), "expected a token id below 10 (the vocabulary's size); got 10");
}

}  // namespace
}  // namespace loci
