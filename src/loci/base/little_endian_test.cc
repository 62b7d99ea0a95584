// SPDX-License-Identifier: Apache-2.0
#include "loci/base/little_endian.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace loci {
namespace {

static_assert(little_endian(std::uint32_t{0x04030201}) == std::array<std::uint8_t, 4>{1, 2, 3, 4});
static_assert(little_endian(std::int16_t{-2}) == std::array<std::uint8_t, 2>{0xfe, 0xff});

template <class T>
void expect_the_same_back() {
  for (const T value : {std::numeric_limits<T>::min(), std::numeric_limits<T>::max(), T{0}, T{1}, T{100}}) {
    std::string text = "head";
    put_number(text, value);
    ASSERT_EQ(text.size(), 4 + sizeof(T));
    EXPECT_EQ(from_little_endian<T>(std::string_view(text).substr(4)), value);
  }
}

TEST(LittleEndianTest, NumbersComeBack) {
  expect_the_same_back<std::uint8_t>();
  expect_the_same_back<std::int8_t>();
  expect_the_same_back<std::uint16_t>();
  expect_the_same_back<std::int32_t>();
  expect_the_same_back<std::uint64_t>();
  expect_the_same_back<std::int64_t>();
}

TEST(LittleEndianTest, BytesMayBeFewerOrMore) {
  EXPECT_EQ(from_little_endian<std::uint32_t>(""), 0u);
  EXPECT_EQ(from_little_endian<std::uint32_t>("\x01\x02"), 0x0201u);
  EXPECT_EQ(from_little_endian<std::uint16_t>("\x01\x02\x03"), 0x0201u);
  EXPECT_EQ(from_little_endian<std::int8_t>("\xff\x01"), -1);
}

TEST(LittleEndianTest, FieldsAreTakenInOrder) {
  std::vector<std::uint8_t> bytes;
  put_number(bytes, std::uint16_t{0x0201});
  bytes.push_back('k');
  put_number(bytes, std::int64_t{-5});
  FieldTaker fields({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  EXPECT_EQ(fields.number<std::uint16_t>(), 0x0201);
  EXPECT_EQ(fields.bytes(1), "k");
  EXPECT_EQ(fields.left(), 8u);
  EXPECT_EQ(fields.number<std::int64_t>(), -5);
  EXPECT_EQ(fields.left(), 0u);
}

}  // namespace
}  // namespace loci
