// SPDX-License-Identifier: Apache-2.0
// From bodies to tokens, with a tiny random model's tokenizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <variant>

#include "loci/base/folder_testing.h"
#include "loci/model/gguf.h"
#include "loci/model/model.h"
#include "loci/model/random_model_testing.h"
#include "loci/serve/api/openai/prepare_completions.h"
#include "loci/serve/api/openai/tokens.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

class PrepareTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string path = folder_.file("tiny.gguf");
    ASSERT_TRUE(make_random_model({}).value().write_file(path).ok());
    model_.emplace(load_model(path).value());
  }
  const Tokenizer& tokenizer() const { return model_->tokenizer; }
  ServedModel served(std::uint32_t context) const { return {.model = &*model_, .context_tokens = context}; }

  // The reply may begin with the text.
  bool allows(const PreparedGeneration& one, const std::string& text) const {
    GrammarMatcher matcher = one.grammar->matcher().value();
    std::vector<std::uint32_t> mask(one.grammar->mask_words());
    const std::vector<TokenId> tokens = tokenizer().encode(text, ControlText::kAsText).value();
    return std::ranges::all_of(tokens, [&](TokenId token) {
      return matcher.mask(mask).ok() && mask_allows(mask, token) && matcher.accept(token).ok();
    });
  }

  TestFolder folder_;
  std::optional<Model> model_;
};

std::string refusal(const std::variant<PreparedGeneration, ApiError>& result) {
  const auto* error = std::get_if<ApiError>(&result);
  return error == nullptr ? "accepted" : std::to_string(error->http_status) + " " + error->param;
}

TEST_F(PrepareTest, PrepareRendersAndTokenises) {
  TokenHistory history;
  const auto result =
      prepare_chat_completion(R"({"messages":[{"role":"user","content":"Hi"}],"stop_token_ids":[7]})",
                              served(2048), history, "default");
  const auto& prepared = std::get<PreparedGeneration>(result);
  ASSERT_EQ(prepared.prompts.size(), 1u);
  EXPECT_EQ(tokenizer().decode(prepared.prompts[0], ControlText::kAsControl).value(),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(prepared.stop_tokens.size(), 1 + tokenizer().end_tokens().size());
  const auto endless = prepare_completion(R"({"prompt":"x","ignore_eos":true})", served(2048), {});
  EXPECT_TRUE(std::get<PreparedGeneration>(endless).stop_tokens.empty());
}

TEST_F(PrepareTest, APromptMayEndInsideTheLastMessage) {
  TokenHistory history;
  const std::string begun =
      R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Once upon "}])";
  const auto prompt = [&](const std::string& request) {
    const auto result = prepare_chat_completion(request, served(2048), history, "default");
    return tokenizer()
        .decode(std::get<PreparedGeneration>(result).prompts[0], ControlText::kAsControl)
        .value();
  };
  EXPECT_EQ(prompt(begun + R"(,"continue_final_message":true})"),
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nOnce upon ");
  EXPECT_TRUE(prompt(begun + "}").ends_with("Once upon <|im_end|>\n<|im_start|>assistant\n"));
  // /tokenize shows the same prompt.
  const auto shown = tokenize(begun + R"(,"continue_final_message":true})", served(2048));
  const Json tokens = Json::parse(std::get<std::string>(shown))["tokens"];
  const auto text = detokenize(Json({{"tokens", tokens}}).dump(), served(2048));
  EXPECT_TRUE(Json::parse(std::get<std::string>(text))["content"].get<std::string>().ends_with("Once upon "));
}

// It has no type, and admits no object.
TEST_F(PrepareTest, ASchemaThatNoArgumentsMatchIsGivenUpOrNamesItsTool) {
  ServedModel served = this->served(2048);
  served.chat = find_chat_syntax(*model_);
  TokenHistory history;
  const auto prepared = [&](bool strict, const std::string& extra) {
    Json request = Json::parse(R"({"messages":[{"role":"user","content":"Hi"}],"tools":[
        {"type":"function","function":{"name":"sound"}},
        {"type":"function","function":{"name":"wrong","parameters":{"enum":["a"]}}}],)" +
                               extra + "}");
    request["tools"][1]["function"]["strict"] = strict;
    return prepare_chat_completion(request.dump(), served, history, "default");
  };
  for (const std::string extra :
       {R"("tool_choice":"required")", R"("response_format":{"type":"json_object"})"}) {
    EXPECT_EQ(refusal(prepared(false, extra)), "accepted") << extra;
    const auto refused = prepared(true, extra);
    ASSERT_EQ(refusal(refused), "400 tools") << extra;
    const std::string message = std::get<ApiError>(refused).message;
    EXPECT_TRUE(message.starts_with("tools: 'wrong': its schema: ")) << message;
  }
}

// The calls' grammar and the content's are one; before, the content's alone made calls impossible.
TEST_F(PrepareTest, AReplyMayCallToolsBesideAConstraint) {
  ServedModel served = this->served(2048);
  served.chat = find_chat_syntax(*model_);
  TokenHistory history;
  const auto prepared = [&](const std::string& extra, const std::string& parameters = "{}") {
    const std::string tool = R"({"type":"function","function":{"name":"stop","strict":true,"parameters":)";
    const std::string request = R"({"messages":[{"role":"user","content":"Hi"}],"tools":[)" + tool +
                                parameters + "}}]," + extra + "}";
    return prepare_chat_completion(request, served, history, "default");
  };
  const std::string format = R"("response_format":{"type":"json_schema","json_schema":{"name":"a","schema":)"
                             R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]}}})";
  const std::string call = R"({"name": "stop", "arguments": {}})";
  const std::string content = R"({"a": 1})";

  const auto both = std::get<PreparedGeneration>(prepared(format));
  ASSERT_TRUE(both.parser.has_value());
  EXPECT_EQ(both.parser->calls, CallPlace::kInsteadOfText);
  EXPECT_TRUE(allows(both, call));
  EXPECT_TRUE(allows(both, content));
  EXPECT_FALSE(allows(both, "Hello"));

  const auto no_calls = std::get<PreparedGeneration>(prepared(format + R"(,"tool_choice":"none")"));
  EXPECT_FALSE(no_calls.parser.has_value());
  EXPECT_FALSE(allows(no_calls, call));
  EXPECT_TRUE(allows(no_calls, content));
  const auto calls = std::get<PreparedGeneration>(prepared(format + R"(,"tool_choice":"required")"));
  EXPECT_EQ(calls.parser->calls, CallPlace::kAnywhere);
  EXPECT_TRUE(allows(calls, call));
  EXPECT_FALSE(allows(calls, content));

  EXPECT_EQ(refusal(prepared(R"("guided_regex":"[a-z]+")")), "400 guided_regex");
  EXPECT_EQ(refusal(prepared(R"("guided_regex":"[a-z]+","tool_choice":"none")")), "accepted");
  EXPECT_EQ(refusal(prepared(R"("guided_json":{"not":{}})")), "400 guided_json");
  EXPECT_EQ(refusal(prepared(format, R"({"not":{}})")), "400 tools");
  EXPECT_EQ(refusal(prepared(R"("temperature":1)", R"({"not":{}})")), "accepted");
}

TEST_F(PrepareTest, AReplyCallsTheAllowedToolsAloneAndThePromptHasAll) {
  ServedModel served = this->served(2048);
  served.chat = find_chat_syntax(*model_);
  const OutputSyntax bare = served.chat.output;
  const OutputSyntax marked =
      find_output_syntax("{{ tools }}<tool_call>", [](std::string_view) { return false; });
  TokenHistory history;
  const auto prepared = [&](const OutputSyntax& syntax, const std::string& extra) {
    served.chat.output = syntax;
    // No grammar holds the other tool's schema, and none has to.
    const std::string body =
        R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"So"}],
        "tools":[{"type":"function","function":{"name":"go","strict":true,"parameters":{"not":{}}}},
                 {"type":"function","function":{"name":"stop"}}])";
    return std::get<PreparedGeneration>(
        prepare_chat_completion(body + extra + "}", served, history, "default"));
  };
  const auto allowed = [](const std::string& mode) {
    return R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")" + mode +
           R"(","tools":[{"type":"function","function":{"name":"stop"}}]}})";
  };
  const auto call = [](const std::string& name) {
    return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": {}}\n</tool_call>";
  };
  const PreparedGeneration all = prepared(marked, "");
  EXPECT_EQ(all.grammar, nullptr);
  EXPECT_EQ(all.parser->other_tools, OtherTools::kCalled);

  const PreparedGeneration free = prepared(marked, allowed("auto"));
  EXPECT_EQ(free.prompts, all.prompts);
  EXPECT_EQ(free.parser->tool_names, std::vector<std::string>{"stop"});
  EXPECT_EQ(free.parser->other_tools, OtherTools::kText);
  for (const std::string& text : {std::string("Hello"), call("stop"), "Well.\n" + call("stop") + "\nThere."})
    EXPECT_TRUE(allows(free, text)) << text;
  EXPECT_FALSE(allows(free, call("go")));
  EXPECT_FALSE(allows(free, "Well.\n" + call("go")));

  const PreparedGeneration forced = prepared(marked, allowed("required"));
  EXPECT_EQ(forced.prompts, all.prompts);
  EXPECT_TRUE(allows(forced, call("stop")));
  EXPECT_FALSE(allows(forced, call("go")));
  EXPECT_FALSE(allows(forced, "Hello"));

  const PreparedGeneration either =
      prepared(marked, allowed("auto") + R"(,"response_format":{"type":"json_object"})");
  EXPECT_TRUE(allows(either, call("stop")));
  EXPECT_TRUE(allows(either, "{\"a\": 1}"));
  EXPECT_FALSE(allows(either, call("go")));

  // What no grammar holds is left to the parser: a message that was begun, and calls without a mark.
  for (const PreparedGeneration& one :
       {prepared(marked, allowed("auto") + R"(,"continue_final_message":true)"),
        prepared(bare, allowed("auto"))}) {
    EXPECT_EQ(one.grammar, nullptr);
    EXPECT_EQ(one.parser->tool_names, std::vector<std::string>{"stop"});
    EXPECT_EQ(one.parser->other_tools, OtherTools::kText);
  }
}

TEST_F(PrepareTest, PrepareRefuses) {
  EXPECT_EQ(refusal(prepare_completion(R"({"prompt":[1,2,3]})", served(4), {})), "accepted");
  EXPECT_EQ(refusal(prepare_completion(R"({"prompt":[1,2,3,4]})", served(4), {})), "400 prompt");
  EXPECT_EQ(refusal(prepare_completion(R"({"prompt":[[1],[1,2,3,4]]})", served(4), {})), "400 prompt[1]");
  EXPECT_EQ(refusal(prepare_completion(R"({"prompt":[1,99999]})", served(4), {})), "400 prompt[1]");
  EXPECT_EQ(refusal(prepare_completion(R"({"prompt":[[]]})", served(4), {})), "400 prompt");
  EXPECT_EQ(refusal(prepare_completion(R"({"prompt":"x","model":"y"})", served(4), {})), "404 model");
  EXPECT_EQ(refusal(prepare_completion(R"({"prompt":"x","model":"tiny"})", served(9), {})), "accepted");
  EXPECT_EQ(refusal(prepare_completion(R"({"prompt":"x","stop_token_ids":[99999]})", served(9), {})),
            "400 stop_token_ids[0]");
  EXPECT_EQ(
      refusal(prepare_completion(R"({"prompt":"x","logit_bias":{"99999":1}})", served(9), {})).substr(0, 14),
      "400 logit_bias");
  EXPECT_EQ(refusal(prepare_completion("{", served(9), {})), "400 ");
}

// Of a text that is far too long only the beginning is tokenised.
TEST_F(PrepareTest, AnEndlessPromptIsRefusedByItsBeginning) {
  std::string text;
  while (text.size() < (std::size_t{1} << 20)) text += "again and ";
  const std::size_t all = tokenizer().encode(text, ControlText::kAsText)->size();
  const auto said_tokens = [](const Prepared& prepared) {
    const std::string& message = std::get<ApiError>(prepared).message;
    const std::string_view before = "prompt is too long: ";
    const std::size_t at = message.find(before);
    return at == std::string::npos ? 0 : std::stoul(message.substr(at + before.size()));
  };
  const auto completion = prepare_completion(Json({{"prompt", text}}).dump(), served(100), {});
  EXPECT_EQ(refusal(completion), "400 prompt");
  EXPECT_GT(said_tokens(completion), 200u);
  EXPECT_LT(said_tokens(completion), all / 8);
  const Json messages = Json::array({{{"role", "user"}, {"content", text}}});
  const std::string chat = Json({{"messages", messages}}).dump();
  TokenHistory history;
  const auto refused = prepare_chat_completion(chat, served(100), history, "default");
  EXPECT_EQ(refusal(refused), "400 messages");
  EXPECT_GT(said_tokens(refused), 200u);
  EXPECT_LT(said_tokens(refused), all / 8);
  // A server that cuts conversations, however long they are, tokenises all of this one.
  ServedModel cutting = served(1000);
  cutting.overflow = {.overflow = ContextOverflow::kTruncate, .truncation = {.context_tokens = 1000}};
  const auto cut = prepare_chat_completion(chat, cutting, history, "default");
  const auto* prepared = std::get_if<PreparedGeneration>(&cut);
  ASSERT_NE(prepared, nullptr) << std::get<ApiError>(cut).message;
  EXPECT_GT(prepared->prompts.front().size(), all);
}

TEST_F(PrepareTest, TokenizeAndBack) {
  const auto tokens = tokenize(R"({"content":"Hi <|im_end|>"})", served(9));
  const auto json = Json::parse(std::get<std::string>(tokens));
  const auto text = detokenize(Json({{"tokens", json["tokens"]}}).dump(), served(9));
  EXPECT_EQ(Json::parse(std::get<std::string>(text))["content"], "Hi <|im_end|>");
  EXPECT_EQ(std::get<ApiError>(detokenize(R"({"tokens":[99999]})", served(9))).param, "tokens[0]");
  EXPECT_EQ(std::get<ApiError>(tokenize("{}", served(9))).param, "content");
}

// A body of 2 MB may name a million tokens, and a vocabulary may have tokens of hundreds of bytes.
TEST_F(PrepareTest, TheTextOfTokensHasABound) {
  const auto ends = std::get<std::string>(tokenize(R"({"content":"<|im_end|>"})", served(9)));
  const std::string end = std::to_string(Json::parse(ends)["tokens"][0].get<std::uint32_t>());
  const auto text_of = [&](int count) {
    std::string body = R"({"tokens":[)" + end;
    for (int i = 1; i < count; ++i) body += "," + end;
    return detokenize(body + "]}", served(9));
  };
  EXPECT_EQ(Json::parse(std::get<std::string>(text_of(800'000)))["prompt"].get<std::string>().size(),
            8'000'000u);
  const auto refused = text_of(900'000);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).param, "tokens");
}

TEST_F(PrepareTest, TextsOfTokensInBothShapes) {
  const auto answer = [&](const Json& extra) {
    Json request = {{"content", "Hi <|im_end|>"}};
    request.update(extra);
    return Json::parse(std::get<std::string>(tokenize(request.dump(), served(9))));
  };
  const Json plain = answer(Json::object());
  EXPECT_FALSE(plain.contains("token_strs"));
  // vLLM's: the ids stay numbers.
  const Json texts = answer({{"return_token_strs", true}});
  EXPECT_EQ(texts["tokens"], plain["tokens"]);
  ASSERT_EQ(texts["token_strs"].size(), plain["count"]);
  EXPECT_EQ(texts["token_strs"].back(), "<|im_end|>");
  // llama.cpp's
  const Json pieces = answer({{"with_pieces", true}});
  EXPECT_FALSE(pieces.contains("token_strs"));
  EXPECT_EQ(pieces["tokens"][0]["id"], plain["tokens"][0]);
  EXPECT_EQ(pieces["tokens"][0]["piece"], texts["token_strs"][0]);
}

// A token may end inside a character: llama.cpp then gives its bytes.
TEST_F(PrepareTest, PiecesOfACharacterAreBytes) {
  const std::string emoji = "\xf0\x9f\xa6\x99";
  const Json request = {{"content", emoji}, {"with_pieces", true}};
  const Json answer = Json::parse(std::get<std::string>(tokenize(request.dump(), served(9))));
  std::string joined;
  std::size_t arrays = 0;
  for (const Json& token : answer["tokens"]) {
    const Json& piece = token["piece"];
    arrays += piece.is_array();
    if (piece.is_string()) joined += piece.get<std::string>();
    for (const Json& byte : piece.is_array() ? piece : Json::array())
      joined += static_cast<char>(byte.get<unsigned char>());
  }
  EXPECT_TRUE(joined.ends_with(emoji)) << answer;
  EXPECT_GT(arrays, 0u) << "the test's tokenizer has no token for it";
}

// A token takes some thirty bytes with its text, and a body may have millions.
TEST_F(PrepareTest, TextsOfABoundedNumberOfTokensAreShown) {
  const std::string text(kShownTokensMax + 1, '\x01');  // no two make a token
  for (const char* field : {"with_pieces", "return_token_strs"}) {
    Json request = {{"content", text}};
    request[field] = true;
    const auto refused = tokenize(request.dump(), served(9));
    ASSERT_TRUE(std::holds_alternative<ApiError>(refused)) << field;
    const ApiError& error = std::get<ApiError>(refused);
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.param, field);
    EXPECT_NE(error.message.find("at most 1,000,000 tokens"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("1,000,001"), std::string::npos) << error.message;
  }
}

}  // namespace
}  // namespace loci
