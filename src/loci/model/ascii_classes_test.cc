// SPDX-License-Identifier: Apache-2.0
#include "loci/model/ascii_classes.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

TEST(AsciiClasses, AreSpeltOut) {
  EXPECT_EQ(with_ascii_classes(R"(\d{3}-\w+\s)"), R"([0-9]{3}-[A-Za-z0-9_]+[ \t\n\r\f\v])");
  EXPECT_EQ(with_ascii_classes(R"(\D\W\S)"), R"([^0-9][^A-Za-z0-9_][^ \t\n\r\f\v])");
}

TEST(AsciiClasses, InsideOfClassesToo) {
  EXPECT_EQ(with_ascii_classes(R"([\d.]+)"), "[0-9.]+");
  EXPECT_EQ(with_ascii_classes(R"([^\s,])"), R"([^ \t\n\r\f\v,])");
  EXPECT_EQ(with_ascii_classes(R"([a\D]\d)"), "[a[^0-9]][0-9]");
  EXPECT_EQ(with_ascii_classes(R"([]\d]\d)"), "[]0-9][0-9]");
  EXPECT_EQ(with_ascii_classes(R"([[:alpha:]\d]\d)"), "[[:alpha:]0-9][0-9]");
}

TEST(AsciiClasses, OtherEscapesStay) {
  for (const char* same : {R"(\\d)", R"(\[\.\])", R"(\p{L}\n\x41)", "plain", "", "\\", "[", "]"}) {
    EXPECT_EQ(with_ascii_classes(same), same);
  }
}

}  // namespace
}  // namespace loci
