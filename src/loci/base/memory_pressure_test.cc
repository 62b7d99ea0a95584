// SPDX-License-Identifier: Apache-2.0
#include "loci/base/memory_pressure.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "loci/base/folder_testing.h"

namespace loci {
namespace {

class MemoryPressureTest : public testing::Test {
 protected:
  void write(const std::string& path, std::uint64_t total) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << "some avg10=0.00 avg60=0.00 avg300=0.00 total=" << total
                                << "\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
  }

  const TestFolder folder_;
  const std::string root_ = folder_.path();
};

TEST_F(MemoryPressureTest, SaysForHowLongProgramsStoodStillSinceItWasAsked) {
  write("/proc/pressure/memory", 1'000'000);
  MemoryPressure pressure(root_);
  EXPECT_EQ(pressure.source(), root_ + "/proc/pressure/memory");
  EXPECT_EQ(pressure.stalled_us(), 0u) << "what was before is past";
  write("/proc/pressure/memory", 1'250'000);
  EXPECT_EQ(pressure.stalled_us(), 250'000u);
  EXPECT_EQ(pressure.stalled_us(), 0u);
}

TEST_F(MemoryPressureTest, OfTheOwnGroupWhereItTells) {
  std::filesystem::create_directories(root_ + "/proc/self");
  std::ofstream(root_ + "/proc/self/cgroup") << "0::/a\n";
  write("/proc/pressure/memory", 5);
  write("/sys/fs/cgroup/a/memory.pressure", 9);
  EXPECT_EQ(MemoryPressure(root_).source(), root_ + "/sys/fs/cgroup/a/memory.pressure");
}

TEST_F(MemoryPressureTest, NothingIsSaidWhereTheSystemTellsNothing) {
  MemoryPressure pressure(root_);
  EXPECT_EQ(pressure.source(), "");
  EXPECT_EQ(pressure.stalled_us(), 0u);
}

TEST_F(MemoryPressureTest, AStopEndsTheWait) {
  MemoryPressure pressure(root_);
  std::thread waiting([&] { pressure.wait(3'600 * kNanosPerSecond); });
  pressure.stop();
  waiting.join();  // or the test never ends
  pressure.wait(3'600 * kNanosPerSecond);
}

TEST(MemoryPressureOfThisMachine, CanBeRead) {
  MemoryPressure pressure("");
  if (pressure.source().empty()) GTEST_SKIP() << "this kernel tells of no pressure";
  pressure.stalled_us();
  EXPECT_LT(pressure.stalled_us(), 3'600'000'000u);
}

}  // namespace
}  // namespace loci
