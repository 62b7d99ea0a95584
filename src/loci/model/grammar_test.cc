// SPDX-License-Identifier: Apache-2.0
// Grammars and matchers: the basics, on a small byte-level vocabulary with control tokens.
#include "loci/model/grammar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "loci/model/text_testing.h"

namespace loci {
namespace {

Tokenizer small_tokenizer() {
  return std::move(tokenizer_from(byte_level_writer({"<|tool|>", "[INST]"}, {}, 600))).value();
}

std::string repeated(std::string_view unit, int count, std::string_view between = ",") {
  std::string text;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : std::string(between)) + std::string(unit);
  return text;
}

// `format` with each number from 0, as "{}".
std::string numbered(std::string_view format, int count) {
  std::string text;
  for (int i = 0; i < count; ++i)
    text += (i == 0 ? "" : ",") + fmt::format(fmt::runtime(format), fmt::arg("i", i));
  return text;
}

class GrammarTest : public testing::Test {
 protected:
  std::shared_ptr<const Grammar> compile(GrammarKind kind, std::string text) {
    Result<std::shared_ptr<const Grammar>> grammar = compiler_.compile({kind, std::move(text)});
    EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
    return grammar.ok() ? *grammar : nullptr;
  }
  GrammarMatcher start(GrammarKind kind, std::string text) {
    return compile(kind, std::move(text))->matcher().value();
  }
  Status error_of(GrammarKind kind, std::string text) {
    return compiler_.compile({kind, std::move(text)}).status();
  }
  // Accepts `text` byte by byte; the last state, or none where a mask does not have a byte.
  std::optional<MatchState> follow(GrammarMatcher& matcher, std::string_view text) {
    std::optional<MatchState> state = MatchState::kOpen;
    for (const char byte : text) {
      const TokenId token = byte_token(byte);
      if (!allowed(matcher, token)) return std::nullopt;
      state = *matcher.accept(token);
    }
    return state;
  }
  std::optional<MatchState> follow(GrammarKind kind, std::string grammar, std::string_view text) {
    GrammarMatcher matcher = start(kind, std::move(grammar));
    return follow(matcher, text);
  }
  bool allowed(GrammarMatcher& matcher, TokenId token) {
    std::vector<std::uint32_t> mask((tokenizer_.vocabulary_size() + 31) / 32);
    const Result<MatchState> state = matcher.mask(mask);
    EXPECT_TRUE(state.ok()) << state.status().to_string();
    return mask_allows(mask, token);
  }
  // The token that stands for this byte alone.
  TokenId byte_token(char byte) {
    for (std::uint32_t id = 0; id < tokenizer_.vocabulary_size(); ++id) {
      if (!tokenizer_.is_control(TokenId(id)) && tokenizer_.token_bytes(TokenId(id)) == std::string(1, byte))
        return TokenId(id);
    }
    ADD_FAILURE() << "no token for " << static_cast<int>(byte);
    return TokenId(0);
  }

  Tokenizer tokenizer_ = small_tokenizer();
  GrammarCompiler compiler_{tokenizer_};
};

TEST_F(GrammarTest, SaysWhereATextMayEnd) {
  EXPECT_EQ(follow(GrammarKind::kChoice, R"(["yes","no","yes!"])", "no"), MatchState::kComplete);
  EXPECT_EQ(follow(GrammarKind::kChoice, R"(["yes","no","yes!"])", "yes"), MatchState::kMayEnd);
  EXPECT_EQ(follow(GrammarKind::kChoice, R"(["yes","no","yes!"])", "ye"), MatchState::kOpen);
  EXPECT_EQ(follow(GrammarKind::kChoice, R"(["yes","no","yes!"])", "nope"), std::nullopt);
  EXPECT_EQ(follow(GrammarKind::kRegex, "[0-9]{3}", "123"), MatchState::kComplete);
  EXPECT_EQ(follow(GrammarKind::kRegex, "[0-9]{2,3}", "12"), MatchState::kMayEnd);
  EXPECT_EQ(follow(GrammarKind::kRegex, "a/b\\d", "a/b7"), MatchState::kComplete);
  EXPECT_FALSE(follow(GrammarKind::kRegex, "a/b\\d", "a/b\u0667")) << "a digit of another script";
  EXPECT_EQ(follow(GrammarKind::kRegex, "[\\w-]+!", "a_-!"), MatchState::kComplete);
  EXPECT_FALSE(follow(GrammarKind::kRegex, "[\\w-]+!", "\u00e9!"));
  EXPECT_EQ(follow(GrammarKind::kJsonObject, "", "{\"a\": [1, null]}"), MatchState::kComplete);
  EXPECT_EQ(follow(GrammarKind::kJsonObject, "", "[1]"), std::nullopt);
  EXPECT_EQ(follow(GrammarKind::kLark, "start: \"f(\" /[a-z]+/ \")\"", "f(xyz)"), MatchState::kComplete);
  EXPECT_EQ(follow(GrammarKind::kJsonSchema, R"({"type":"integer"})", "-12"), MatchState::kMayEnd);
}

TEST_F(GrammarTest, NamesControlTokensOrNeverHasThem) {
  const TokenId tool = *tokenizer_.find("<|tool|>");
  const TokenId inst = *tokenizer_.find("[INST]");
  GrammarMatcher matcher =
      start(GrammarKind::kLark, "start: <|tool|> \"x\" <[" + std::to_string(inst.value) + "]>");
  EXPECT_TRUE(allowed(matcher, tool));
  EXPECT_FALSE(allowed(matcher, byte_token('<')));
  EXPECT_EQ(*matcher.accept(tool), MatchState::kOpen);
  EXPECT_FALSE(allowed(matcher, tool));
  EXPECT_EQ(*matcher.accept(byte_token('x')), MatchState::kOpen);
  EXPECT_TRUE(allowed(matcher, inst));
  EXPECT_FALSE(allowed(matcher, byte_token('[')));
  EXPECT_EQ(*matcher.accept(inst), MatchState::kComplete);

  // Text that spells one is text.
  GrammarMatcher text = start(GrammarKind::kChoice, R"(["<|tool|>"])");
  EXPECT_FALSE(allowed(text, tool));
  EXPECT_EQ(follow(text, "<|tool|>"), MatchState::kComplete);
  GrammarMatcher any = start(GrammarKind::kRegex, "(?s:.*)");
  for (std::uint32_t id = 0; id < tokenizer_.vocabulary_size(); ++id) {
    const std::string bytes = tokenizer_.token_bytes(TokenId(id));
    const bool ascii = std::all_of(bytes.begin(), bytes.end(), [](char c) { return c >= 0; });
    if (ascii || tokenizer_.is_control(TokenId(id))) {
      EXPECT_NE(allowed(any, TokenId(id)), tokenizer_.is_control(TokenId(id))) << id;
    }
  }
}

TEST_F(GrammarTest, MatchersAreIndependentAndCompiledGrammarsAreKept) {
  const auto grammar = compile(GrammarKind::kChoice, R"(["ab","cd"])");
  EXPECT_EQ(grammar, compile(GrammarKind::kChoice, R"(["ab","cd"])"));
  EXPECT_NE(grammar, compile(GrammarKind::kChoice, R"(["ab","ce"])"));
  GrammarMatcher first = grammar->matcher().value();
  EXPECT_EQ(*first.accept(byte_token('a')), MatchState::kOpen);
  GrammarMatcher second = grammar->matcher().value();
  EXPECT_EQ(follow(second, "cd"), MatchState::kComplete);
  EXPECT_EQ(follow(first, "b"), MatchState::kComplete);
}

// Else the time to the first token would tell who has sent the same before.
TEST_F(GrammarTest, WhatOneOwnerCompiledIsCompiledAgainForAnother) {
  const GrammarSource source{GrammarKind::kChoice, R"(["yes","no"])"};
  const auto anns = compiler_.compile(source, {"ann"}).value();
  EXPECT_EQ(compiler_.compile(source, {"ann"}).value(), anns);
  const auto bobs = compiler_.compile(source, {"bob"}).value();
  EXPECT_NE(bobs, anns);
  EXPECT_NE(compiler_.compile(source).value(), anns);
  // Nor does one drive out all that another one has.
  for (int i = 0; i < 200; ++i)
    ASSERT_TRUE(compiler_.compile({GrammarKind::kChoice, fmt::format("[\"{}\"]", i)}, {"bob"}).ok());
  EXPECT_EQ(compiler_.compile(source, {"ann"}).value(), anns);
  EXPECT_NE(compiler_.compile(source, {"bob"}).value(), bobs) << "its own, unused for longest, went";
}

TEST_F(GrammarTest, ManySaltsDriveOutNothingOfOtherTenants) {
  std::vector<GrammarSource> sources;
  for (const char* word : {"one", "two", "three"})
    sources.push_back({GrammarKind::kChoice, fmt::format("[\"{}\"]", word)});
  std::vector<std::shared_ptr<const Grammar>> anns;
  for (const GrammarSource& source : sources) anns.push_back(compiler_.compile(source, {"ann"}).value());
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(compiler_.compile(sources[0], {"bob", fmt::format("{}", i)}).ok());
  }
  EXPECT_NE(compiler_.compile(sources[0], {"bob", "0"}).value(), anns[0]);
  for (std::size_t i = 0; i < sources.size(); ++i)
    EXPECT_EQ(compiler_.compile(sources[i], {"ann"}).value(), anns[i]) << i;
}

TEST_F(GrammarTest, RefusesTokensThatTheMaskDoesNotHave) {
  GrammarMatcher matcher = start(GrammarKind::kChoice, R"(["ab"])");
  EXPECT_EQ(matcher.accept(byte_token('b')).status().code(), StatusCode::kInternal);
  EXPECT_FALSE(matcher.accept(byte_token('a')).ok()) << "it has failed before";
  GrammarMatcher whole = start(GrammarKind::kChoice, R"(["ab"])");
  EXPECT_EQ(follow(whole, "ab"), MatchState::kComplete);
  EXPECT_FALSE(whole.accept(byte_token('a')).ok());
}

TEST_F(GrammarTest, ErrorsSayWhatIsWrong) {
  for (const auto& [kind, text] : std::vector<std::pair<GrammarKind, std::string>>{
           {GrammarKind::kJsonSchema, "{"},
           {GrammarKind::kJsonSchema, "3"},
           {GrammarKind::kJsonSchema, "false"},
           {GrammarKind::kJsonSchema, R"({"type":"thing"})"},
           {GrammarKind::kJsonSchema, R"({"type":"string","pattern":"("})"},
           {GrammarKind::kJsonSchema, R"({"type":"integer","minimum":3,"maximum":2})"},
           {GrammarKind::kJsonSchema, R"({"$ref":"#/$defs/none"})"},
           // The error's text would quote it, cut inside of a character.
           {GrammarKind::kJsonSchema,
            R"({"type":"string","pattern":["a)" + repeated("\u00e9", 100, "") + R"("]})"},
           {GrammarKind::kLark, ""},
           {GrammarKind::kLark, "start: other"},
           {GrammarKind::kLark, "start: <|none|>"},
           {GrammarKind::kLark, "start: <[99999999]>"},
           {GrammarKind::kLark, "begin: \"x\""},
           {GrammarKind::kLark, "start: " + std::string(300, '(')},
           {GrammarKind::kRegex, "a(?=b)"},
           {GrammarKind::kRegex, "("},
           {GrammarKind::kRegex, std::string(70'000, 'x')},
           {GrammarKind::kChoice, "[]"},
           {GrammarKind::kChoice, "[1]"},
           {GrammarKind::kChoice, "\"x\""}}) {
    const Status status = error_of(kind, text);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text.substr(0, 80);
    EXPECT_GT(status.message().size(), 10u);
    EXPECT_EQ(status.message().find("panic"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find('\n'), std::string::npos) << status.message();
  }
  EXPECT_NE(error_of(GrammarKind::kRegex, "(").message().find("regex parse error: unclosed group"),
            std::string::npos)
      << error_of(GrammarKind::kRegex, "(").message();
}

std::string enum_of(int count) { return R"({"enum":[)" + repeated("1", count) + "]}"; }

// Some kilobytes each, which llguidance would build into more than a million values.
std::vector<std::string> copying_schemas() {
  const std::string object = R"({"type":"object"})";
  const std::string big = R"({"type":"object","properties":{"a":)" + enum_of(1000) + "}}";
  const std::string two = R"({"anyOf":[)" + object + "," + object + "]}";
  std::string doubling = R"({"$defs":{"d0":)" + two;
  for (int i = 1; i < 4; ++i)
    doubling += fmt::format(R"(,"d{}":{{"allOf":[{{"$ref":"#/$defs/d{}"}},{{"$ref":"#/$defs/d{}"}}]}})", i,
                            i - 1, i - 1);
  doubling +=
      R"(},"allOf":[{"$ref":"#/$defs/d3"},{"type":"object","properties":{"a":)" + enum_of(3000) + "}}]}";
  // Two trees of the same form: each node of one meets one of the other.
  std::string trees = R"({"$defs":{"l":)" + enum_of(1000);
  for (const char tree : {'a', 'b'}) {
    for (int i = 0; i < 10; ++i) {
      const std::string next =
          i == 9 ? (tree == 'a' ? "#/$defs/l" : "#/$defs/any") : fmt::format("#/$defs/{}{}", tree, i + 1);
      trees += fmt::format(
          R"(,"{0}{1}":{{"type":"object","properties":{{"x":{{"$ref":"{2}"}},"y":{{"$ref":"{2}"}}}}}})", tree,
          i, next);
    }
  }
  trees += R"(,"any":{}},"allOf":[{"$ref":"#/$defs/a0"},{"$ref":"#/$defs/b0"}]})";
  return {
      R"({"allOf":[{"anyOf":[)" + repeated(object, 1000) + "]}," + big + "]}",
      R"({"allOf":[)" + repeated(two, 10) + "," + big + "]}",
      doubling,
      trees,
      R"({"allOf":[{"type":"object","additionalProperties":)" + enum_of(1000) +
          R"(},{"type":"object","properties":{)" + numbered(R"("p{i}":true)", 1000) + "}}]}",
      R"({"allOf":[{"type":"array","items":)" + enum_of(1000) + R"(},{"type":"array","prefixItems":[)" +
          repeated("true", 1000) + "]}]}",
      R"({"type":[)" + repeated("\"object\"", 1000) + R"(],"properties":{"a":)" + enum_of(1000) + "}}",
  };
}

TEST_F(GrammarTest, SchemasThatCopyTooMuchAreRefused) {
  for (const std::string& schema : copying_schemas()) {
    const std::string text = schema.substr(0, 100);
    const Status status = error_of(GrammarKind::kJsonSchema, schema);
    EXPECT_NE(status.message().find("at most 500000 values"), std::string::npos) << text << status.message();
    const Status lark = error_of(GrammarKind::kLark, "start: \"x\" inner\ninner: %json " + schema + "\n");
    EXPECT_EQ(lark.message(), status.message()) << text;
    const Status list = error_of(GrammarKind::kLark, R"({"grammars":[{"json_schema":)" + schema + "}]}");
    EXPECT_EQ(list.message(), status.message()) << text;
    const Status framed =
        compiler_.compile({GrammarKind::kJsonSchema, schema, "start: \"x\" | content\n"}).status();
    EXPECT_EQ(framed.message(), status.message()) << text;
    const std::string around = "start: inner | content\ninner: %json " + schema + "\n";
    const Status frame = compiler_.compile({GrammarKind::kJsonObject, "", around}).status();
    EXPECT_EQ(frame.message(), status.message()) << text;
  }
}

// Else the tools of one request may copy a hundred times as much.
TEST_F(GrammarTest, SchemasInOneGrammarCopyTogether) {
  const std::string schema =
      R"({"type":[)" + repeated("\"object\"", 300) + R"(],"properties":{"a":)" + enum_of(1000) + "}}";
  const auto says_so = [&](const std::string& lark) {
    return error_of(GrammarKind::kLark, lark).message().find("at most 500000 values") != std::string::npos;
  };
  const std::string one = "one: %json " + schema + "\n";
  EXPECT_FALSE(says_so("start: one\n" + one));
  EXPECT_TRUE(says_so("start: one | two\n" + one + "two: %json " + schema + "\n"));
}

TEST_F(GrammarTest, AFrameHoldsTheContentOfEveryKind) {
  const std::string frame = "start: \"call \" /[a-z]+/ \";\" | <|tool|> content\n";
  const auto follow_framed = [&](GrammarKind kind, const std::string& text, std::string_view reply) {
    const auto grammar = compiler_.compile({kind, text, frame});
    EXPECT_TRUE(grammar.ok()) << grammar.status().to_string();
    GrammarMatcher calls = (*grammar)->matcher().value();
    EXPECT_EQ(follow(calls, "call me;"), MatchState::kComplete);
    GrammarMatcher content = (*grammar)->matcher().value();
    EXPECT_EQ(*content.accept(*tokenizer_.find("<|tool|>")), MatchState::kOpen);
    return follow(content, reply);
  };
  EXPECT_EQ(follow_framed(GrammarKind::kJsonSchema, R"({"type":"boolean"})", "true"), MatchState::kComplete);
  EXPECT_EQ(follow_framed(GrammarKind::kJsonObject, "", "{}"), MatchState::kComplete);
  EXPECT_EQ(follow_framed(GrammarKind::kRegex, "a/b\\d", "a/b7"), MatchState::kComplete);
  EXPECT_EQ(follow_framed(GrammarKind::kChoice, R"(["yes","no"])", "no"), MatchState::kComplete);
  EXPECT_EQ(follow_framed(GrammarKind::kLark, "start: inner\ninner: \"(\" inner? \")\"", "(())"),
            MatchState::kComplete);
  EXPECT_EQ(follow_framed(GrammarKind::kGbnf, "root ::= \"call\" [0-9]", "call7"), MatchState::kComplete);
  // The same text in another frame is another grammar.
  const GrammarSource framed{GrammarKind::kJsonObject, "", frame};
  EXPECT_EQ(*compiler_.compile(framed), *compiler_.compile(framed));
  EXPECT_NE(*compiler_.compile(framed), compile(GrammarKind::kJsonObject, ""));
  const std::string list =
      R"({"grammars":[{"lark_grammar":"start: \"a\""},{"lark_grammar":"start: \"b\""}]})";
  const Status several = compiler_.compile({GrammarKind::kLark, list, frame}).status();
  EXPECT_NE(several.message().find("expected one grammar"), std::string::npos) << several.message();
  EXPECT_FALSE(compiler_.compile({GrammarKind::kJsonObject, "", std::string(600 << 10, ' ')}).ok());
}

// What people write: large, but little of it is combined.
TEST_F(GrammarTest, LargeSchemasThatCopyLittleCompile) {
  const std::string part =
      R"({"type":"object","properties":{)" + numbered(R"("p{i}":{{"type":"string"}})", 20) + "}}";
  std::string references = R"({"$defs":{"d0":{"type":"null"})";
  for (int i = 1; i < 300; ++i)
    references += fmt::format(
        R"(,"d{}":{{"anyOf":[{{"type":"null"}},{{"type":"object","properties":{{"a":{{"$ref":"#/$defs/d{}"}},"b":{{"enum":["x","y"]}}}}}}]}})",
        i, i - 1);
  references += R"(},"$ref":"#/$defs/d299"})";
  for (const std::string& schema :
       {R"({"type":["string","null"],"enum":[)" + numbered(R"("name {i}")", 5000) + "]}", references,
        R"({"allOf":[)" + part + R"(,{"anyOf":[)" + repeated(part, 20) + "]}]}",
        R"({"oneOf":[)" +
            numbered(R"({{"type":"object","required":["k"],"properties":{{"k":{{"const":"v{i}"}}}}}})", 100) +
            "]}"})
    EXPECT_TRUE(error_of(GrammarKind::kJsonSchema, schema).ok())
        << error_of(GrammarKind::kJsonSchema, schema).message();
}

TEST_F(GrammarTest, PatternsOfPropertiesAreBounded) {
  const auto object = [](int count, int number) {
    return R"({"type":"object","patternProperties":{)" +
           numbered("\"^x" + std::to_string(number) + "{i}_[a-z]{{1,50}}$\":{{\"type\":\"null\"}}", count) +
           "}}";
  };
  EXPECT_TRUE(error_of(GrammarKind::kJsonSchema, object(32, 1)).ok());
  EXPECT_EQ(error_of(GrammarKind::kJsonSchema, object(33, 1)).message(),
            "patternProperties: expected at most 32 patterns, found 33");
  const Status merged =
      error_of(GrammarKind::kJsonSchema, R"({"allOf":[)" + object(20, 1) + "," + object(20, 2) + "]}");
  EXPECT_NE(merged.message().find("at most 32 patterns, found 40"), std::string::npos) << merged.message();
  const Status distributed =
      error_of(GrammarKind::kJsonSchema, R"({"allOf":[)" + object(10, 1) + R"(,{"anyOf":[)" +
                                             repeated(R"({"type":"object"})", 100) + "]}]}");
  EXPECT_NE(distributed.message().find("at most 1024 comparisons"), std::string::npos)
      << distributed.message();
}

TEST_F(GrammarTest, OptionsOfOneOfAreComparedBoundedlyOften) {
  const std::string many = R"({"oneOf":[)" + numbered(R"({{"const":"v{i}"}})", 4000) + "]}";
  const Status status = error_of(GrammarKind::kJsonSchema, many);
  EXPECT_NE(status.message().find("oneOf: expected at most 5000000 comparisons"), std::string::npos)
      << status.message();
}

TEST_F(GrammarTest, IntegersThatWouldBeRoundedAreRefused) {
  for (const char* schema :
       {R"({"const":9007199254740993})", R"({"const":-9007199254740993})",
        R"({"const":18446744073709551615})", R"({"const":123456789012345678901234567890})",
        R"({"const":{"a":[9223372036854775807]}})"}) {
    const Status status = error_of(GrammarKind::kJsonSchema, schema);
    EXPECT_TRUE(status.message().starts_with("const: expected integers between -9007199254740992 and"))
        << status.message();
  }
  const Status choice = error_of(GrammarKind::kLark, R"(start: %json {"enum": [1, 9007199254740993]})");
  EXPECT_NE(choice.message().find("enum: expected integers"), std::string::npos) << choice.message();
  EXPECT_EQ(follow(GrammarKind::kJsonSchema, R"({"const":9007199254740992})", "9007199254740992"),
            MatchState::kComplete);
  EXPECT_NE(follow(GrammarKind::kJsonSchema, R"({"enum":[1.5,-3]})", "-3"), std::nullopt);
  EXPECT_TRUE(error_of(GrammarKind::kJsonSchema, R"({"type":"integer","maximum":1e19})").ok());
}

}  // namespace
}  // namespace loci
