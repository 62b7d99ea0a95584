// SPDX-License-Identifier: Apache-2.0
#include "loci/model/utf8.h"

#include <gtest/gtest.h>

#include "loci/model/utf8_testing.h"

namespace loci {
namespace {

std::string text_of(std::string_view bytes) {
  std::string text;
  append_utf8_final(bytes, text);
  return text;
}

TEST(Utf8, ReplacesMaximalParts) {
  const std::string r = "\xef\xbf\xbd";
  EXPECT_EQ(text_of("plain \xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80"),
            "plain \xc3\xa9 \xe6\xbc\xa2 \xf0\x9f\x98\x80");
  EXPECT_EQ(text_of("\xff"), r);
  EXPECT_EQ(text_of("\x80\x80"), r + r);
  EXPECT_EQ(text_of("\xc0\xaf"), r + r);                  // overlong
  EXPECT_EQ(text_of("\xed\xa0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(text_of("\xf4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
  EXPECT_EQ(text_of("\xe6\xbc"), r);                      // unfinished
  EXPECT_EQ(text_of("\xf0\x9f\x98!"), r + "!");
  EXPECT_EQ(text_of("\xe6\xe6\xbc\xa2"), r + "\xe6\xbc\xa2");
}

TEST(Utf8, KeepsUnfinishedCharacters) {
  std::string text;
  EXPECT_EQ(append_utf8("ab\xf0\x9f\x98", text), 2u);
  EXPECT_EQ(text, "ab");
  EXPECT_EQ(append_utf8("\xf0\x9f\x98\x80", text), 4u);
  EXPECT_EQ(append_utf8("\xe0", text), 0u);
  EXPECT_EQ(append_utf8("\xe0\x41", text), 2u);
}

TEST(Utf8, EveryCharacterGoesRound) {
  for (char32_t c = 1; c < 0x110000; c += 7) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    append_character(c, text);
    ASSERT_EQ(text_of(text), text);
    ASSERT_EQ(first_character(text).value, c);
    ASSERT_EQ(first_character(text).bytes, text.size());
    ASSERT_TRUE(is_utf8(text));
    ASSERT_EQ(is_utf8(text.substr(0, text.size() - 1)), text.size() == 1) << "nothing is text, a part is not";
  }
  EXPECT_TRUE(is_utf8(""));
  EXPECT_FALSE(is_utf8("a\x80"));
}

}  // namespace
}  // namespace loci
