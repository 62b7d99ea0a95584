// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/json_parse.h"
#include "loci/base/printable.h"
#include "loci/serve/wire/json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace loci {
namespace {

std::string error_of(std::string_view text, const JsonLimits& limits = {}) {
  const Result<Json> result = parse_json(text, limits);
  return result.ok() ? "" : result.status().message();
}

TEST(JsonParse, TakesValidTextAndTheLastOfTwoKeys) {
  const Result<Json> result = parse_json(R"({"a": 1, "b": [true, "\u00e9"], "a": 2})");
  ASSERT_TRUE(result.ok());
  EXPECT_EQ((*result)["a"], 2);
  EXPECT_EQ((*result)["b"][1], "é");
}

TEST(JsonParse, SaysWhereTheFaultIs) {
  EXPECT_NE(error_of("{\"a\": }").find("column 7"), std::string::npos) << error_of("{\"a\": }");
  EXPECT_NE(error_of(""), "");
  EXPECT_NE(error_of("{} x"), "");
  EXPECT_NE(error_of("{\"a\": 1e999}"), "");
  EXPECT_NE(error_of("[1,]"), "");
}

TEST(JsonParse, RefusesTextThatIsNotUtf8) {
  for (const char* text : {"\"\xff\"", "\"\xc3\"", "\"\xed\xa0\x80\"", "\"\\ud800\"", "\"\xc0\x80\""}) {
    EXPECT_NE(error_of(text), "") << text;
  }
}

TEST(JsonParse, BoundsTheDepth) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_EQ(error_of(nested(64)), "");
  EXPECT_NE(error_of(nested(65)).find("the JSON is nested deeper than 64 levels (byte "), std::string::npos);
  EXPECT_NE(error_of(std::string(1 << 20, '[')).find("64 levels"), std::string::npos);
  EXPECT_EQ(parse_json(R"({"messages": [{"content": )" + nested(64) + "}]}").status().field(),
            "messages[0].content[0][0][0][0][0]");
  // Brackets inside strings are text.
  EXPECT_EQ(error_of("\"" + std::string(100, '[') + "\\\"" + std::string(100, '{') + "\""), "");
}

TEST(JsonParse, BoundsTheNumberOfValues) {
  const JsonLimits limits{.depth_max = 8, .values_max = 10};
  EXPECT_EQ(error_of("[1,2,3,4,5,6,7,8]", limits), "");
  EXPECT_NE(error_of("[1,2,3,4,5,6,7,8,9,10]", limits).find("the JSON holds more than 10 values"),
            std::string::npos);
  EXPECT_NE(error_of("[[],[],[],[],[],[],[],[]]", limits), "");
}

TEST(JsonParse, BoundsTheMembersOfAnObjectAndKeepsTheirOrder) {
  const JsonLimits limits{.members_max = 3};
  EXPECT_EQ(error_of(R"({"a": 1, "b": [1, 2, 3, 4, 5], "c": {"d": 1, "e": 2, "f": 3}})", limits), "");
  EXPECT_NE(error_of(R"({"a": {"x": 1, "y": 2, "z": 3, "w": 4}})", limits)
                .find("an object has more than 3 members (byte "),
            std::string::npos);
  const auto field_of = [&](std::string_view text) { return parse_json(text, limits).status().field(); };
  const std::string wide = R"({"x": 1, "y": {}, "z": 3, "w": 4})";
  EXPECT_EQ(field_of(wide), "") << "the body itself";
  EXPECT_EQ(field_of(R"({"tools": [{"a": {"b": 1}}, {"function": {"a,:\"[{": )" + wide + "}}]}"),
            R"(tools[1].function.a,:\"[{)");
  EXPECT_EQ(field_of(R"({"a": [[1], {"b": 1}], "é)" + std::string(100, 'b') + R"(": )" + wide + "}"),
            "\\xc3\\xa9" + std::string(62, 'b'));
  EXPECT_EQ(parse_json(R"({"z": {"b": 1, "a": 2}, "a": 3})")->dump(), R"({"z":{"b":1,"a":2},"a":3})");
}

TEST(JsonParse, BoundsWhatTheParserCopiesAndCompares) {
  const auto nested = [](int levels, int members, std::size_t bytes) {
    std::string text = "\"" + std::string(bytes, 'x') + "\"";
    for (int level = 0; level < levels; ++level) {
      text = "{\"a\":" + text;
      for (int i = 1; i < members; ++i) text += ",\"\":0";
      text += "}";
    }
    return text;
  };
  EXPECT_TRUE(parse_json(nested(1, 2'000, 4'000'000), {}).ok());
  EXPECT_NE(parse_json(nested(50, 128, 3'000'000), {}).status().message().find("depth and number"),
            std::string::npos);
}

TEST(JsonParse, CutsLongMessages) {
  const std::string message = error_of("{\"" + std::string(100'000, 'x'));
  EXPECT_FALSE(message.empty());
  EXPECT_LT(message.size(), 400u);
  // It goes to logs: nothing of a stranger's bytes is written raw.
  EXPECT_EQ(error_of("\"a\xff\n").find('\xff'), std::string::npos);
  EXPECT_EQ(visible_ascii("a\n\xc3\xa9 b"), "a\\x0a\\xc3\\xa9 b");
}

// What is made of a body may be deeper than a body; what a model writes may be of any depth.
TEST(JsonOrNull, HasTwiceABodysBounds) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  const std::size_t depth_max = 2 * JsonLimits().depth_max;
  EXPECT_TRUE(json_or_null(nested(depth_max)).is_array());
  EXPECT_TRUE(json_or_null(nested(depth_max + 1)).is_null());
  EXPECT_TRUE(json_or_null(R"({"unfinished": )").is_null());
  EXPECT_EQ(json_or_null(R"({"a": 1})")["a"], 1);
}

TEST(DecimalJson, IsTheShortestNumber) {
  EXPECT_EQ(dump_json(decimal_json(0.8F)), "0.8");
  EXPECT_EQ(dump_json(decimal_json(1)), "1");
}

TEST(JsonExcerpt, IsShortAndWholeUtf8) {
  EXPECT_EQ(json_excerpt("hot"), "\"hot\"");
  EXPECT_EQ(json_excerpt(Json::parse("[1,2]")), "[1,2]");
  const std::string cut = json_excerpt(std::string(100, 'a') + "é", 20);
  EXPECT_EQ(cut, "\"" + std::string(20, 'a') + "...\"");
  EXPECT_EQ(json_excerpt(std::vector<int>(1000, 1)), "an array of 1000");
}

TEST(Utf8Prefix, NeverPartsACharacter) {
  const std::string text = "aé€😀z";
  for (std::size_t bytes = 0; bytes <= text.size() + 1; ++bytes) {
    const std::string_view prefix = utf8_prefix(text, bytes);
    EXPECT_LE(prefix.size(), bytes);
    EXPECT_TRUE(parse_json("\"" + std::string(prefix) + "\"").ok()) << bytes;
  }
}

TEST(Utf8, CountsCharacters) {
  EXPECT_EQ(count_characters(""), 0u);
  EXPECT_EQ(count_characters("ab"), 2u);
  EXPECT_EQ(count_characters("aé→🙂"), 4u);
}

}  // namespace
}  // namespace loci
