// SPDX-License-Identifier: Apache-2.0
// What is replaced outlives a loss of power: which files are synchronised with the disk, and when.
#include "loci/base/durable_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
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

// A link stays one, and what it leads to is replaced, be it there yet or not.
TEST_F(ReplaceFile, FollowsLinks) {
  std::filesystem::create_directory(folder_.file("real"));
  const std::string real = folder_.file("real") + "/keys.toml";
  std::filesystem::create_symlink("real/keys.toml", folder_.file("first"));
  std::filesystem::create_symlink(folder_.file("first"), path_);
  for (const char* text : {"old", "new"}) {
    ASSERT_TRUE(replace_file(path_, text).ok());
    EXPECT_TRUE(std::filesystem::is_symlink(path_));
    EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::symlink_status(real)));
    EXPECT_EQ(content(real), text);
  }
}

// Renaming a file onto /dev/null would take it from all others.
TEST_F(ReplaceFile, ReplacesFilesAlone) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  for (const std::string& path : {path_, folder_.path().string(), std::string("/dev/null")}) {
    EXPECT_EQ(replace_file(path, "new").message(),
              path + ": expected a file, found a device, a pipe or a folder");
    EXPECT_FALSE(lock_changes(path).ok());
    EXPECT_TRUE(is_no_file(path));
  }
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".lock"));
  EXPECT_FALSE(is_no_file(path_ + ".txt"));
}

// Some threads count in one file, under two names.
TEST_F(ReplaceFile, LosesNoChangeUnderTheLock) {
  constexpr int kThreads = 4, kCounts = 25;
  ASSERT_TRUE(replace_file(path_, "0").ok());
  std::filesystem::create_symlink(path_, folder_.file("link"));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([path = i % 2 == 0 ? path_ : folder_.file("link")] {
      for (int count = 0; count < kCounts; ++count) {
        const Result<Descriptor> lock = lock_changes(path);
        EXPECT_TRUE(lock.ok()) << lock.status().message();
        EXPECT_TRUE(replace_file(path, std::to_string(std::stoi(content(path)) + 1)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(content(path_), std::to_string(kThreads * kCounts));
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
