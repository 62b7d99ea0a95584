// SPDX-License-Identifier: Apache-2.0
#include "loci/base/hex.h"

#include <gtest/gtest.h>

#include <array>

namespace loci {
namespace {

TEST(Hex, WritesTwoDigitsAByte) {
  EXPECT_EQ(to_hex(std::array<std::uint8_t, 4>{0x00, 0x0a, 0x9f, 0xff}), "000a9fff");
  EXPECT_EQ(to_hex(std::string_view("\x80z\0", 3)), "807a00");
  EXPECT_EQ(to_hex(std::string_view()), "");
}

}  // namespace
}  // namespace loci
