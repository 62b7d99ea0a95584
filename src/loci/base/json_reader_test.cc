// SPDX-License-Identifier: Apache-2.0
#include "loci/base/json_reader.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

namespace loci {
namespace {

using Json = nlohmann::json;

std::string nested(std::size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

TEST(JsonReader, BoundsTheDepthOfFilesAndOfBodies) {
  for (const JsonLimits& limits : {JsonLimits{}, kJsonFileLimits}) {
    EXPECT_TRUE(read_json<Json>(nested(limits.depth_max), limits).ok());
    for (const std::string& deep : {nested(limits.depth_max + 1), std::string(5'000'000, '[')}) {
      const JsonRead<Json> read = read_json<Json>(deep, limits);
      EXPECT_EQ(read.fault, JsonFault::kLimit);
      EXPECT_EQ(read.what, "the JSON is nested deeper than 64 levels (byte 64)");
      EXPECT_TRUE(read.value.is_null());
    }
  }
}

TEST(JsonReader, BoundsOnlyTheDepthOfFiles) {
  std::string wide = "{\"0\":0";
  for (int i = 1; i < 20'000; ++i) wide += ",\"" + std::to_string(i) + "\":{\"a\":[1,2]}";
  wide += "}";
  EXPECT_EQ(read_json<Json>(wide, {}).fault, JsonFault::kLimit);
  const JsonRead<Json> read = read_json<Json>(wide, kJsonFileLimits);
  ASSERT_TRUE(read.ok()) << read.what;
  EXPECT_EQ(read.value.size(), 20'000u);
}

TEST(JsonReader, SaysWhatIsWrongAndWhere) {
  const JsonRead<Json> read = read_json<Json>("{\"a\":\n }", {});
  EXPECT_EQ(read.fault, JsonFault::kSyntax);
  EXPECT_EQ(read.byte, 8u) << "the bracket that ends it";
  EXPECT_EQ(read.what.find("json.exception"), std::string::npos) << read.what;
  const JsonRead<Json> number = read_json<Json>("1e999", {});
  EXPECT_EQ(number.fault, JsonFault::kSyntax);
  EXPECT_NE(number.what, "");
}

}  // namespace
}  // namespace loci
