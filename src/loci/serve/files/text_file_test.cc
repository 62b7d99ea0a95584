// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/files/text_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>

#include "loci/base/folder_testing.h"

namespace loci {
namespace {

TEST(TextFile, IsReadWhole) {
  const TestFolder folder;
  const std::string path = folder.file("text");
  const std::string text = std::string(200'000, 'a') + std::string("\0\r\n", 3);
  std::ofstream(path, std::ios::binary) << text;
  EXPECT_EQ(*read_text_file(path), text);
  std::ofstream(path, std::ios::binary | std::ios::trunc).flush();
  EXPECT_EQ(*read_text_file(path), "");
  std::filesystem::remove(path);
  EXPECT_EQ(read_text_file(path).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_text_file(path).status().message(), path + " is not there");
}

// The first byte of a process's memory is nobody's, so the kernel answers the read with EIO.
TEST(TextFile, AReadThatFailsIsAnError) {
  const Status broken = read_text_file("/proc/self/mem").status();
  EXPECT_EQ(broken.code(), StatusCode::kUnavailable);
  EXPECT_EQ(broken.message(), "/proc/self/mem cannot be read: Input/output error");
  const TestFolder folder;
  const Status directory = read_text_file(folder.path()).status();
  EXPECT_EQ(directory.code(), StatusCode::kUnavailable);
  EXPECT_EQ(directory.message(), folder.path().string() + " cannot be read: Is a directory");
}

// A pipe that nobody writes to would never be open, and a device has no end.
TEST(TextFile, WhatIsReadAgainIsAnOrdinaryFile) {
  const TestFolder folder;
  const std::string pipe = folder.file("pipe"), path = folder.file("text");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& other : {pipe, std::string("/dev/zero")}) {
    const Status refused = read_text_file_again(other).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    EXPECT_EQ(refused.message(), other + ": expected an ordinary file, found another kind");
  }
  std::ofstream(path) << "text";
  EXPECT_EQ(*read_text_file_again(path), "text");
  std::filesystem::resize_file(path, kTextFileBytesMax + 1);
  for (const Status& long_one : {read_text_file_again(path).status(), read_text_file(path).status()})
    EXPECT_EQ(long_one.message(), path + ": expected a file of at most 64.0 MiB, found a longer one");
  EXPECT_TRUE(read_text_file(path, kTextFileBytesMax + 1).ok());
  std::filesystem::remove(path);
  EXPECT_EQ(read_text_file_again(path).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(read_text_file_again(folder.path()).status().message(),
            folder.path().string() + " cannot be read: Is a directory");
}

TEST(TextFile, WhatIsOpenIsReadToItsEnd) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe(ends.data()), 0);
  ASSERT_EQ(::write(ends[1], "two lines\n", 10), 10);
  ::close(ends[1]);
  EXPECT_EQ(*read_text(ends[0], "standard input"), "two lines\n");
  ::close(ends[0]);
  EXPECT_EQ(read_text(ends[0], "standard input").status().message(),
            "standard input cannot be read: Bad file descriptor");
}

}  // namespace
}  // namespace loci
