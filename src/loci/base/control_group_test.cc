// SPDX-License-Identifier: Apache-2.0
#include "loci/base/control_group.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace loci {
namespace {

class ControlGroupTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        testing::TempDir() + "control_group_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
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

TEST_F(ControlGroupTest, WhatIsNoLimitIsNone) {
  for (const char* text : {"", "max", "x y", "0 100000", "100000 0", "-1 100000"}) {
    write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_FALSE(processor_limit(root_).has_value()) << text;
  }
}

}  // namespace
}  // namespace loci
