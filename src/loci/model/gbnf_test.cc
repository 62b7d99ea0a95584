// SPDX-License-Identifier: Apache-2.0
#include "loci/model/gbnf.h"

#include <gtest/gtest.h>

#include "loci/model/grammar.h"
#include "loci/model/text_testing.h"

namespace loci {
namespace {

class GbnfTest : public testing::Test {
 protected:
  // The state after `text` byte by byte, or none where it is not allowed.
  std::optional<MatchState> follow(const std::string& gbnf, std::string_view text) {
    const auto grammar = compiler_.compile({GrammarKind::kGbnf, gbnf});
    EXPECT_TRUE(grammar.ok()) << grammar.status().to_string() << "\n" << *gbnf_to_lark(gbnf);
    if (!grammar.ok()) return std::nullopt;
    GrammarMatcher matcher = (*grammar)->matcher().value();
    std::vector<std::uint32_t> mask((*grammar)->mask_words());
    MatchState state = MatchState::kOpen;
    for (const char byte : text) {
      const TokenId token(3u + static_cast<unsigned char>(byte));
      EXPECT_TRUE(matcher.mask(mask).ok());
      if (!mask_allows(mask, token)) return std::nullopt;
      state = matcher.accept(token).value();
    }
    const Result<MatchState> at_end = matcher.mask(mask);
    EXPECT_TRUE(at_end.ok()) << at_end.status().to_string();
    return at_end.ok() ? *at_end : state;
  }
  bool whole(const std::string& gbnf, std::string_view text) {
    const auto state = follow(gbnf, text);
    return state == MatchState::kMayEnd || state == MatchState::kComplete;
  }

  Tokenizer tokenizer_ = std::move(tokenizer_from(byte_level_writer({}, {}))).value();
  GrammarCompiler compiler_{tokenizer_};
};

// From llama.cpp's documentation of the format.
const std::string kChess = R"(
root ::= (
    # it must start with the characters "1. " followed by a sequence
    "1. " move " " move "\n"
    ([1-9] [0-9]? ". " move " " move "\n")+
)
move ::= (pawn | nonpawn | castle) [+#]?
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
castle ::= "O-O" "-O"?
)";
const std::string kJson = R"(root   ::= object
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::=
  "{" ws (
            string ":" ws value
    ("," ws string ":" ws value)*
  )? "}" ws
array  ::=
  "[" ws (
            value
    ("," ws value)*
  )? "]" ws
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) # escapes
  )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
# Optional space: by convention, applied in this grammar after literal chars when allowed
ws ::= | " " | "\n" [ \t]{0,20}
)";

TEST_F(GbnfTest, RegularGrammarsAreKeptToExactly) {
  EXPECT_TRUE(whole(kChess, "1. e4 e5\n2. Nf3 Nc6\n"));
  EXPECT_TRUE(whole(kChess, "1. e4 e5\n2. O-O-O axb8=Q+\n3. Qxh7# O-O\n"));
  EXPECT_FALSE(whole(kChess, "1. e4 e5\n"));
  EXPECT_FALSE(follow(kChess, "1. i4").has_value());
  // The first alternative is not the last word.
  EXPECT_TRUE(whole("root ::= (\"a\" | \"ab\") \"bc\"", "abc"));
  EXPECT_TRUE(whole("root ::= (\"a\" | \"ab\") \"bc\"", "abbc"));
  EXPECT_TRUE(whole("root ::= first second\nfirst ::= \"x\"*\nsecond ::= \"x\" \"y\"?", "xxx"));
}

TEST_F(GbnfTest, RecursiveGrammarsParse) {
  EXPECT_TRUE(whole(kJson, R"({"a": [1, {"b" :null}, "x\n\u00e9"],"c":-1.5e3})"));
  EXPECT_TRUE(whole(kJson, "{}"));
  EXPECT_FALSE(follow(kJson, "[").has_value());
  EXPECT_FALSE(follow(kJson, "{\"a\":tru ").has_value());
  EXPECT_TRUE(whole("root ::= \"(\" root* \")\"", "(()(()))"));
  EXPECT_FALSE(whole("root ::= \"(\" root* \")\"", "(()"));
}

TEST_F(GbnfTest, RepetitionsEscapesAndClasses) {
  EXPECT_TRUE(whole("root ::= [a-c]{2,3} [^x\\]-]+ \"\\x41\\u00e9\\t\" .", "abz A\xc3\xa9\tq"));
  EXPECT_FALSE(follow("root ::= [a-c]{2}", "abc").has_value());
  EXPECT_TRUE(whole("root ::= \"a\"{2,}", "aaaa"));
  EXPECT_FALSE(whole("root ::= \"a\"{2,}", "a"));
  EXPECT_TRUE(whole("my-rule ::= \"b\" | \"\"\nroot ::= \"a\" my-rule", "a"));
  EXPECT_TRUE(whole("root ::= \"a\" |\n  \"b\" # comment\n", "b"));
}

TEST(Gbnf, ErrorsNameTheLine) {
  for (const auto& [gbnf, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "expected a rule named root, where a text begins"},
           {"x ::= \"a\"", "named root"},
           {"root = \"a\"", "line 1: expected '::='"},
           {"root ::= \"a\n", "line 2: expected the end of a string"},
           {"root ::= (\"a\"", "expected ')'"},
           {"root ::= [a-", "expected"},
           {"root ::= [b-a]", "line 1: expected a range whose end is not before its beginning"},
           {"root ::= \"\\ud800\"", "line 1: expected a character of Unicode"},
           {"root ::= \"\\x4\"", "line 1: expected 2 hexadecimal digits"},
           {"root ::= \"\\q\"", "an escape"},
           {"root ::= other", "line 1: the rule other is not defined"},
           {"root ::= \"a\"\nroot ::= \"b\"", "line 2: expected the rule root a first time"},
           {"root ::= \"a\"{3,1}", "an upper bound"},
           {"root ::= \"a\"{99999}", "a number up to"},
           {"root ::= \"a\" )", "expected the name of a rule"},
           {"root ::= " + std::string(100, '(') + "\"a\"" + std::string(100, ')'), "nested"}}) {
    const auto lark = gbnf_to_lark(gbnf);
    ASSERT_FALSE(lark.ok()) << gbnf;
    EXPECT_NE(lark.status().message().find(message), std::string::npos) << lark.status().message();
  }
}

}  // namespace
}  // namespace loci
