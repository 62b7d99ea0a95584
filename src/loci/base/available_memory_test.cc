// SPDX-License-Identifier: Apache-2.0
#include "loci/base/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "loci/base/folder_testing.h"

namespace loci {
namespace {

constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

// A made-up machine's /proc and /sys.
class AvailableMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    write("/proc/meminfo", "MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\n");
  }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  const TestFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(AvailableMemoryTest, IsWhatTheMachineHas) {
  const Result<AvailableMemory> memory = read_available_memory(root_);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory.value().bytes, 16 * kGib);
  EXPECT_EQ(memory.value().limited_by, "the machine");
}

TEST_F(AvailableMemoryTest, ObeysTheNarrowestControlGroup) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/memory.max", std::to_string(4 * kGib) + "\n");
  write("/sys/fs/cgroup/a/memory.current", std::to_string(3 * kGib) + "\n");
  write("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file " + std::to_string(1 * kGib) + "\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "100\n");
  const Result<AvailableMemory> memory = read_available_memory(root_);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory.value().bytes, 2 * kGib);
  EXPECT_EQ(memory.value().limited_by, "control group /a");
}

TEST_F(AvailableMemoryTest, AGroupOverItsLimitLeavesNothing) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "100\n");
  write("/sys/fs/cgroup/memory.current", "200\n");
  EXPECT_EQ(read_available_memory(root_).value().bytes, 0u);
}

TEST_F(AvailableMemoryTest, IsUnavailableWhereTheMachineDoesNotTell) {
  std::filesystem::remove_all(root_);
  EXPECT_EQ(read_available_memory(root_).status().code(), StatusCode::kUnavailable);
}

}  // namespace
}  // namespace loci
