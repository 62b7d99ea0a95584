// SPDX-License-Identifier: Apache-2.0
#include "loci/model/gbnf.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "loci/model/grammar.h"
#include "loci/model/text_testing.h"

namespace {

// By this thread. What looks at sets of rules again and again allocates as often.
thread_local std::size_t gbnf_test_allocations = 0;

}  // namespace

// All that operator delete below may get: sanitizers have their own of those that are left out.
void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  ++gbnf_test_allocations;
  return std::malloc(size == 0 ? 1 : size);
}
void* operator new(std::size_t size) {
  if (void* const memory = operator new(size, std::nothrow)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

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

// As llama.cpp reads them: over line ends too, where a group is open.
TEST_F(GbnfTest, BlanksMayStandAroundOperators) {
  EXPECT_TRUE(whole("root ::= [a-z] *", "abc"));
  EXPECT_TRUE(whole("root ::= (\"a\" | \"b\") + # comment\n", "abba"));
  EXPECT_TRUE(whole("root ::= \"a\" ? \"b\"", "b"));
  EXPECT_TRUE(whole("root ::= x * \"b\"\nx ::= \"a\"", "aab"));
  EXPECT_TRUE(whole("root ::= [a-z]\t{ 1 , 3 }", "abc"));
  EXPECT_FALSE(follow("root ::= [a-z] {1, 3}", "abcd").has_value());
  EXPECT_TRUE(whole("root ::= [a-z]{2, }", "abcd"));
  EXPECT_TRUE(whole("root ::= \"a\" { 2 }", "aa"));
  EXPECT_TRUE(whole("root ::= (\"a\"\n  *\n  \"b\"{1,\n2})", "aabb"));
  // Outside of groups a line end ends the rule.
  EXPECT_FALSE(gbnf_to_lark("root ::= \"a\"\n*").ok());
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
           {"root ::= (\"a\nb\"\n# c\n other)", "line 4: the rule other is not defined"},
           {"root ::= b\nb ::= \"x\" (\n) d\nd ::= e\na ::= (\n\n\ne)", "line 8: the rule e is not defined"},
           {"root ::= " + std::string(100, '(') + "\"a\"" + std::string(100, ')'), "nested"}}) {
    const auto lark = gbnf_to_lark(gbnf);
    ASSERT_FALSE(lark.ok()) << gbnf;
    EXPECT_NE(lark.status().message().find(message), std::string::npos) << lark.status().message();
  }
}

// What walks over an expression recurses: how deep is the parser's to bound, not the stack's.
TEST(Gbnf, NestedRepetitionsHaveALimit) {
  const auto refusal = [](const std::string& gbnf) {
    return std::string(gbnf_to_lark(gbnf).status().message());
  };
  const std::string limit = "line 2: expected at most 200 nested repetitions";
  EXPECT_EQ(refusal("root ::=\n\"a\"" + std::string(10'000, '*')).substr(0, limit.size()), limit);
  EXPECT_EQ(refusal("root ::=\n\"a\"" + std::string(201, '?')).substr(0, limit.size()), limit);
  EXPECT_TRUE(gbnf_to_lark("root ::=\n\"a\"" + std::string(200, '?')).ok());
  // Through groups, at the deepest place.
  const auto grouped = [](const std::string& inner) {
    return "root ::=\n(\"b\"? | \"c\" (" + inner + "){2} \"d\"*)" + std::string(100, '+');
  };
  EXPECT_EQ(refusal(grouped("\"a\"" + std::string(100, '*'))).substr(0, limit.size()), limit);
  EXPECT_TRUE(gbnf_to_lark(grouped("\"a\"" + std::string(99, '*'))).ok());
  // One beside another is not nested.
  std::string beside = "root ::=";
  for (int i = 0; i < 1000; ++i) beside += " \"a\"*";
  EXPECT_TRUE(gbnf_to_lark(beside).ok());
}

// The largest grammars: rules that each name many later ones, without recursion or with one that all lead to.
TEST(Gbnf, ManyRulesTakeLinearlyManySteps) {
  constexpr std::size_t kRules = 1000;
  constexpr std::size_t kUses = 19;
  const std::string_view letters = "abcdefghijklmnopqrstuvwxyz0123456789";
  std::vector<std::string> names = {"root"};
  for (std::size_t rule = 1; rule < kRules; ++rule)
    names.push_back({letters[rule / letters.size()], letters[rule % letters.size()]});
  for (const std::string last : {"\"x\"", "\"x\" root?"}) {
    std::string gbnf;
    for (std::size_t rule = 0; rule < kRules; ++rule) {
      gbnf += names[rule] + "::=";
      if (rule + 1 == kRules) gbnf += last;
      for (std::size_t use = rule + 1; use <= rule + kUses && use < kRules; ++use) gbnf += names[use] + " ";
      gbnf += "\n";
    }
    const std::size_t before = gbnf_test_allocations;
    const Result<std::string> lark = gbnf_to_lark(gbnf);
    const std::size_t allocations = gbnf_test_allocations - before;
    ASSERT_TRUE(lark.ok()) << lark.status().to_string();
    // The rules that lead to recursion are rules, the others terminals.
    EXPECT_EQ(lark->find(last == "\"x\"" ? "r" : "T", 7), std::string::npos);
    EXPECT_LT(allocations, 3 * kRules * kUses);
  }
}

}  // namespace
}  // namespace loci
