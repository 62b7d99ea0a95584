// SPDX-License-Identifier: Apache-2.0
// What is replaced outlives a loss of power: which files are synchronised with the disk, and when.
#include "loci/base/durable_file.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "loci/base/folder_testing.h"

namespace {

// Called with the path of what is to be synchronised; says what fsync() returns. Empty: nobody looks.
std::function<int(const std::string&)> seen_fsync;

}  // namespace

// Takes the place of the system's in this program.
extern "C" int fsync(int file) {
  if (seen_fsync) {
    const auto path = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file));
    if (seen_fsync(path) != 0) return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}

namespace loci {
namespace {

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class ReplaceFile : public testing::Test {
 protected:
  // `fails`: the path of what cannot be synchronised.
  void watch(const std::string& fails = "") {
    seen_fsync = [this, fails](const std::string& path) {
      const bool is_folder = std::filesystem::is_directory(path);
      synced_.push_back({path, is_folder ? "" : content(path), content(path_)});
      if (path != fails) return 0;
      errno = EIO;
      return -1;
    };
  }
  ~ReplaceFile() override { seen_fsync = nullptr; }

  struct Synced {
    std::string path;
    std::string content;     // its own, where it is a file
    std::string under_name;  // what the file's name leads to at that time
  };
  const TestFolder folder_;
  const std::string path_ = folder_.file("keys.toml");
  const std::string folder_path_ = std::filesystem::canonical(folder_.path());
  std::vector<Synced> synced_;
};

// First the new content, while the old one is still under the name; then, under its new name, the folder.
TEST_F(ReplaceFile, SynchronisesTheContentAndThenTheFolder) {
  ASSERT_TRUE(replace_file(path_, "old").ok());
  watch();
  ASSERT_TRUE(replace_file(path_, "new").ok());
  ASSERT_EQ(synced_.size(), 2u);
  EXPECT_EQ(synced_[0].content, "new");
  EXPECT_EQ(synced_[0].under_name, "old");
  EXPECT_EQ(synced_[1].path, folder_path_);
  EXPECT_EQ(synced_[1].under_name, "new");
}

TEST_F(ReplaceFile, SaysThatAFolderCouldNotBeSynchronised) {
  watch(folder_path_);
  const Status status = replace_file(path_, "new");
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find(path_ + ": its folder could not be synchronised"), std::string::npos)
      << status.message();
}

TEST_F(ReplaceFile, LeavesTheOldContentWhereTheNewOneCannotBeSynchronised) {
  ASSERT_TRUE(replace_file(path_, "old").ok());
  watch(folder_path_ + "/keys.toml.new-" + std::to_string(::getpid()));
  EXPECT_EQ(replace_file(path_, "new").code(), StatusCode::kUnavailable);
  EXPECT_EQ(content(path_), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_path_), {}), 1)
      << "nothing is left beside it";
}

}  // namespace
}  // namespace loci
