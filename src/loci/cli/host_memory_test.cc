// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/host_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace loci {
namespace {

constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

// A made-up machine's /proc and /sys.
class HostMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ =
        testing::TempDir() + "host_memory_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(root_);
    write("/proc/meminfo", "MemTotal:       33554432 kB\nMemFree: 1 kB\nMemAvailable:   16777216 kB\n");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(HostMemoryTest, IsWhatTheMachineHas) {
  const Result<HostMemoryReading> memory = read_host_memory(root_);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory.value().available_bytes, 16 * kGib);
  EXPECT_EQ(memory.value().limited_by, "the machine");
}

TEST_F(HostMemoryTest, ObeysTheNarrowestControlGroup) {
  write("/proc/self/cgroup", "0::/a/b\n");
  write("/sys/fs/cgroup/a/memory.max", std::to_string(4 * kGib) + "\n");
  write("/sys/fs/cgroup/a/memory.current", std::to_string(3 * kGib) + "\n");
  write("/sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file " + std::to_string(1 * kGib) + "\n");
  write("/sys/fs/cgroup/a/b/memory.max", "max\n");
  write("/sys/fs/cgroup/a/b/memory.current", "100\n");
  const Result<HostMemoryReading> memory = read_host_memory(root_);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory.value().available_bytes, 2 * kGib);
  EXPECT_EQ(memory.value().limited_by, "control group /a");
}

TEST_F(HostMemoryTest, AGroupOverItsLimitLeavesNothing) {
  write("/proc/self/cgroup", "0::/\n");
  write("/sys/fs/cgroup/memory.max", "100\n");
  write("/sys/fs/cgroup/memory.current", "200\n");
  EXPECT_EQ(read_host_memory(root_).value().available_bytes, 0u);
}

TEST_F(HostMemoryTest, SaysWhatToDoWhereNothingIsKnown) {
  std::filesystem::remove_all(root_);
  EXPECT_EQ(read_host_memory(root_).status().field(), "--device-memory");
}

PoolRequest request(std::uint64_t available) {
  return {.wanted_bytes = {},
          .available_bytes = available,
          .groups = {{.window = 0, .block_bytes = 1 << 20}},
          .context_tokens = 8192,
          .max_running = 64};
}

TEST(SizePool, TakesAtMostHalfOfTheMachinesMemory) {
  EXPECT_EQ(size_pool(request(16 * kGib)).value().blocks[0], (8 * kGib) >> 20);
  EXPECT_EQ(size_pool(request(4 * kGib)).value().blocks[0], (2 * kGib) >> 20);
  EXPECT_EQ(size_pool(request(1 * kGib)).value().blocks[0], (kGib / 2) >> 20);
  EXPECT_EQ(size_pool(request(1 << 20)).status().field(), "--device-memory");
}

TEST(SizePool, IsCappedAtWhatCouldBeUsed) {
  PoolRequest few = request(1000 * kGib);
  few.max_running = 1;
  few.context_tokens = 33;
  EXPECT_EQ(size_pool(few).value().blocks[0], 8u);
}

TEST(SizePool, TakesNineTenthsOfADevice) {
  PoolRequest device = request(100 * kGib);
  device.memory = PoolMemory::kDevice;
  device.max_running = 1;
  device.context_tokens = 33;
  const PoolSize size = size_pool(device).value();
  EXPECT_EQ(size.blocks[0], (90 * kGib) >> 20) << "what requests can hold at once is no cap";
  EXPECT_EQ(size.reason, "90 % of the 100.0 GiB that the weights leave");
  device.available_bytes = 1 << 20;
  EXPECT_EQ(size_pool(device).status().field(), "--device-memory");
  device.wanted_bytes = 7 << 20;
  EXPECT_EQ(size_pool(device).value().blocks[0], 7u);
}

TEST(DefaultHostTier, IsHalfOfWhatIsFreeBesideADevice) {
  EXPECT_EQ(default_host_tier(PoolMemory::kDevice, 64 * kGib), 32 * kGib);
  EXPECT_EQ(default_host_tier(PoolMemory::kHost, 64 * kGib), 0u) << "it would be the same memory";
}

TEST(SizePool, GivesWhatIsWanted) {
  PoolRequest wanted = request(0);
  wanted.wanted_bytes = (10 << 20) + 5;
  EXPECT_EQ(size_pool(wanted).value().blocks[0], 10u);
  wanted.wanted_bytes = 1 << 20;
  EXPECT_EQ(size_pool(wanted).status().field(), "--device-memory");
}

TEST(SizePool, SplitsOverGroups) {
  PoolRequest mixed = request(1000 * kGib);
  mixed.groups.push_back({.window = 512, .block_bytes = 5 << 20});
  const PoolSize capped = size_pool(mixed).value();
  EXPECT_EQ(capped.blocks, (std::vector<std::uint32_t>{4 * 256 * 64, 4 * 18 * 64}));
  mixed.wanted_bytes = std::uint64_t{3 * (64 + 18 * 5)} << 20;
  EXPECT_EQ(size_pool(mixed).value().blocks, (std::vector<std::uint32_t>{192, 54}));
  mixed.wanted_bytes = 10 << 20;
  EXPECT_EQ(size_pool(mixed).status().field(), "--device-memory");
}

}  // namespace
}  // namespace loci
