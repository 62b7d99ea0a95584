// SPDX-License-Identifier: Apache-2.0
#include "loci/base/printable.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

TEST(Printable, ReplacesControlCharacters) {
  EXPECT_EQ(printable("\x1b[2J\x1b]0;title\x07 a\rb\x7f", LineEnds::kKeep), "?[2J?]0;title? a?b?");
  EXPECT_EQ(printable(std::string_view("a\0b", 3), LineEnds::kKeep), "a?b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "2J\xc2\x80\xc2\x9f",
                      LineEnds::kKeep),
            "?2J??")
      << "C1 in UTF-8";
  EXPECT_EQ(printable("\x9b"
                      "2J",
                      LineEnds::kKeep),
            "?2J")
      << "C1 as a byte";
}

TEST(Printable, KeepsTextOfEveryLanguage) {
  // Among them characters whose last bytes would be C1 alone: ě is c4 9b, 魚 is e9 ad 9a.
  const std::string text = "é ě ü\u00a0 \u2028魚 😀 – ~";
  EXPECT_EQ(printable(text, LineEnds::kReplace), text);
  EXPECT_EQ(printable("\xc2", LineEnds::kKeep), "?") << "half a character";
  EXPECT_EQ(printable("\xc2\x1b[m", LineEnds::kKeep), "\xc2?[m") << "one that a control character cuts";
}

TEST(Printable, KeepsLineEndsWhereTheyAreWanted) {
  EXPECT_EQ(printable("a\n\tb", LineEnds::kKeep), "a\n\tb");
  EXPECT_EQ(printable("a\n\tb", LineEnds::kReplace), "a??b");
}

TEST(Printable, PiecesMayPartCharacters) {
  const std::string text = "é\xc2\x9b ě\x1b\xc2\xa0 魚\xc2\x85😀\x9b\n\xc2";
  const std::string whole = printable(text, LineEnds::kKeep);
  EXPECT_EQ(whole, "é? ě?\u00a0 魚?😀?\n?");
  for (std::size_t size = 1; size < text.size(); ++size) {
    PrintablePieces pieces(LineEnds::kKeep);
    std::string shown;
    for (std::size_t at = 0; at < text.size(); at += size)
      shown += pieces.take(std::string_view(text).substr(at, size));
    EXPECT_EQ(shown + pieces.finish(), whole) << size;
    EXPECT_EQ(pieces.take("\x9b"), "?") << "nothing is left of the text before";
  }
}

}  // namespace
}  // namespace loci
