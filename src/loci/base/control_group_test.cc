// SPDX-License-Identifier: Apache-2.0
#include "loci/base/control_group.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "loci/base/folder_testing.h"

namespace loci {
namespace {

class ControlGroupTest : public testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }

  const TestFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(ControlGroupTest, TheNarrowestLimitOfProcessorsCounts) {
  EXPECT_FALSE(processor_limit(root_).has_value());
  write("/proc/self/cgroup", "1:cpu:/old\n0::/a/b\n");
  write("/sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
  EXPECT_FALSE(processor_limit(root_).has_value());
  write("/sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(processor_limit(root_), 1.5);
  write("/sys/fs/cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(processor_limit(root_), 0.5);
  write("/sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(processor_limit(root_), 1.5);
}

TEST_F(ControlGroupTest, AContainersOwnGroupIsTheTopmost) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(processor_limit(root_), 2.0);
  EXPECT_EQ(control_group_folders(root_), std::vector<std::string>{root_ + "/sys/fs/cgroup"});
}

TEST_F(ControlGroupTest, LimitsOfVersion1Count) {
  write("/proc/self/cgroup", "4:memory:/docker/ab\n2:cpu,cpuacct:/docker/ab\n0::/\n");
  EXPECT_FALSE(processor_limit(root_).has_value());
  EXPECT_TRUE(memory_limits(root_).empty());
  write("/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_quota_us", "150000\n");
  write("/sys/fs/cgroup/cpu/docker/ab/cpu.cfs_period_us", "100000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(processor_limit(root_), 1.5);
  write("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes",
        "9223372036854771712\n");  // the kernel's "none"
  write("/sys/fs/cgroup/memory/docker/memory.usage_in_bytes", "5000\n");
  write("/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", "1000\n");
  write("/sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes", "400\n");
  write("/sys/fs/cgroup/memory/docker/ab/memory.stat", "inactive_file 1\ntotal_inactive_file 100\n");
  const std::vector<GroupMemory> limits = memory_limits(root_);
  ASSERT_EQ(limits.size(), 1u);
  EXPECT_EQ(limits[0].group, "/docker/ab");
  EXPECT_EQ(limits[0].limit_bytes, 1000u);
  EXPECT_EQ(limits[0].held_bytes, 300u);
  EXPECT_EQ(limits[0].available_bytes(), 700u);
}

// A container that does not see the host's groups has its own as the topmost, under a name that is not there.
TEST_F(ControlGroupTest, AContainersOwnGroupOfVersion1IsTheTopmostToo) {
  write("/proc/self/cgroup", "4:memory:/docker/ab\n");
  write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "1000\n");
  write("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2000\n");
  ASSERT_EQ(memory_limits(root_).size(), 1u);
  EXPECT_EQ(memory_limits(root_)[0].group, "/");
  EXPECT_EQ(memory_limits(root_)[0].available_bytes(), 0u) << "over its limit";
}

TEST_F(ControlGroupTest, WhereReclaimBeginsIsALimitToo) {
  write("/proc/self/cgroup", "0::/a\n");
  write("/sys/fs/cgroup/a/memory.max", "max\n");
  write("/sys/fs/cgroup/a/memory.current", "10\n");
  EXPECT_TRUE(memory_limits(root_).empty());
  write("/sys/fs/cgroup/a/memory.high", "700\n");
  ASSERT_EQ(memory_limits(root_).size(), 1u);
  EXPECT_EQ(memory_limits(root_)[0].limit_bytes, 700u);
  write("/sys/fs/cgroup/a/memory.max", "600\n");
  EXPECT_EQ(memory_limits(root_)[0].limit_bytes, 600u);
}

TEST_F(ControlGroupTest, WhatIsNoLimitIsNone) {
  for (const char* text : {"", "max", "x y", "0 100000", "100000 0", "-1 100000"}) {
    write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_FALSE(processor_limit(root_).has_value()) << text;
  }
}

}  // namespace
}  // namespace loci
