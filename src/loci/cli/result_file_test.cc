// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/result_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "loci/base/folder_testing.h"

namespace loci {
namespace {

class ResultFileTest : public testing::Test {
 protected:
  static std::string content(const std::string& path) {
    std::ifstream in(path);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::ptrdiff_t files() const {
    return std::distance(std::filesystem::directory_iterator(folder_.path()), {});
  }

  const TestFolder folder_;
};

TEST_F(ResultFileTest, IsThereOnceTheResultIs) {
  const std::string path = folder_.file("costs.svg");
  Result<ResultFile> file = ResultFile::open(path, "--svg");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(files(), 0) << "who is interrupted now leaves nothing";
  ASSERT_TRUE(file->write("<svg/>").ok());
  EXPECT_EQ(content(path), "<svg/>");
  EXPECT_EQ(files(), 1);
}

TEST_F(ResultFileTest, ReplacesWhatWasThereAndKeepsItsMode) {
  const std::string path = folder_.file("costs.svg");
  std::ofstream(path) << "the one before";
  ASSERT_EQ(chmod(path.c_str(), 0640), 0);
  Result<ResultFile> file = ResultFile::open(path, "--svg");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_EQ(content(path), "the one before");
  ASSERT_TRUE(file->write("<svg/>").ok());
  EXPECT_EQ(content(path), "<svg/>");
  struct stat facts{};
  ASSERT_EQ(stat(path.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0640u);
  EXPECT_EQ(files(), 1);
}

TEST_F(ResultFileTest, ADeviceIsWrittenTo) {
  Result<ResultFile> file = ResultFile::open("/dev/null", "--svg");
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  EXPECT_TRUE(file->write("<svg/>").ok());
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
}

TEST_F(ResultFileTest, WhatCannotBeWrittenIsRefusedAtOnce) {
  for (const std::string& path : {folder_.path().string(), folder_.file("none/costs.svg")}) {
    const Status status = ResultFile::open(path, "--svg").status();
    EXPECT_EQ(status.field(), "--svg");
    EXPECT_TRUE(status.message().starts_with("expected a file that can be written, found " + path + " ("))
        << status.message();
  }
  Result<ResultFile> none = ResultFile::open("", "--svg");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->write("<svg/>").ok());
}

}  // namespace
}  // namespace loci
