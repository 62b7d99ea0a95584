// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/options/disk_flag.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

TEST(DiskFlag, Parses) {
  EXPECT_EQ(parse_disk_flag("/data/loci")->path, "/data/loci");
  EXPECT_EQ(parse_disk_flag("/data/loci")->bytes, 0u);
  EXPECT_EQ(parse_disk_flag("/data/lo:ci:2MiB")->path, "/data/lo:ci");
  EXPECT_EQ(parse_disk_flag("d:2MiB")->bytes, 2 * kMib);
  for (const char* text : {"", ":2MiB", "/data:", "/data:much", "/data:0", "/data:-1"}) {
    EXPECT_FALSE(parse_disk_flag(text).ok()) << text;
  }
  EXPECT_TRUE(parse_disk_flags({"none"})->empty());
  EXPECT_TRUE(parse_disk_flags({})->empty());
  EXPECT_EQ(parse_disk_flags({"a", "b:1GiB"})->size(), 2u);
  EXPECT_FALSE(parse_disk_flags({"a", "none"}).ok());
  EXPECT_FALSE(parse_disk_flags({"a", "a:1GiB"}).ok());
  for (const char* text : {"off", "no", "false", "0"}) EXPECT_FALSE(parse_disk_flags({text}).ok()) << text;
  EXPECT_EQ(parse_disk_flags({"./off"})->size(), 1u);
}

TEST(DiskFlag, ErrorsSayWhatWasExpectedAndFound) {
  const auto error = [](const std::vector<std::string>& texts) {
    return parse_disk_flags(texts).status().message();
  };
  EXPECT_EQ(error({"/data:much"}), "expected DIR or DIR:SIZE (/data/loci:64GiB), found \"/data:much\"");
  EXPECT_EQ(error({"/data:0"}), "expected DIR or DIR:SIZE (/data/loci:64GiB), found \"/data:0\"");
  EXPECT_EQ(error({":2MiB"}), "expected a directory before the size, found \":2MiB\"");
  EXPECT_EQ(error({"a", "none"}), "expected `none` alone or directories, found both (a directory: ./none)");
  EXPECT_EQ(error({"off"}), "expected `none` or a directory, found \"off\" (a directory: ./off)");
  EXPECT_EQ(error({"a:1GiB", "a"}), "expected different directories, found a twice");
}

}  // namespace
}  // namespace loci
