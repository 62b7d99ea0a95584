// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/wire/percent.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

TEST(Percent, DecodesEscapesAndKeepsTheRest) {
  EXPECT_EQ(percent_decoded("a%2Fb%2fc"), "a/b/c");
  EXPECT_EQ(percent_decoded("%c3%A9+%25"), "é+%");
  EXPECT_EQ(percent_decoded("%zz%4"), "%zz%4");
  EXPECT_EQ(percent_decoded("%%41"), "%A");
  EXPECT_EQ(percent_decoded(""), "");
}

}  // namespace
}  // namespace loci
