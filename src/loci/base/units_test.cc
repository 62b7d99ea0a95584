// SPDX-License-Identifier: Apache-2.0
#include "loci/base/units.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

TEST(Units, ParsesSizes) {
  EXPECT_EQ(parse_bytes("4GiB", "f").value(), std::uint64_t{4} << 30);
  for (const auto& [letter, shift] :
       {std::pair("K", 10), std::pair("M", 20), std::pair("G", 30), std::pair("T", 40)}) {
    for (const char* rest : {"", "B", "iB"})
      EXPECT_EQ(parse_bytes(std::string("3") + letter + rest, "f").value(), std::uint64_t{3} << shift)
          << letter << rest;
  }
  EXPECT_EQ(parse_bytes("512M", "f").value(), std::uint64_t{512} << 20);
  EXPECT_EQ(parse_bytes("1.5g", "f").value(), std::uint64_t{3} << 29);
  EXPECT_EQ(parse_bytes(" 1048576 ", "f").value(), 1048576u);
  EXPECT_EQ(parse_bytes("0", "f").value(), 0u);
}

TEST(Units, RefusesWhatIsNoSize) {
  for (const char* text : {"", "GiB", "-1", "1e400", "4 potatoes", "nan", "1x", "99999999999T", "1 2"}) {
    const Status status = parse_bytes(text, "device-memory").status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(status.field(), "device-memory");
  }
}

TEST(Units, ParsesDurations) {
  EXPECT_EQ(parse_duration("250ms", "f").value(), 250'000'000);
  EXPECT_EQ(parse_duration("2", "f").value(), 2'000'000'000);
  EXPECT_EQ(parse_duration("1.5h", "f").value(), 5'400'000'000'000);
  EXPECT_FALSE(parse_duration("soon", "f").ok());
  EXPECT_FALSE(parse_duration("99999999999d", "f").ok());
}

TEST(Units, FormatsForPeople) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1536), "1.5 KiB");
  EXPECT_EQ(format_bytes(std::uint64_t{4} << 30), "4.0 GiB");
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1234567), "1,234,567");
  EXPECT_EQ(format_duration(1'500'000'000), "1.50 s");
}

}  // namespace
}  // namespace loci
