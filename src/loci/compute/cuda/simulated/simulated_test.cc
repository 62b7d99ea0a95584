// SPDX-License-Identifier: Apache-2.0
// The simulated device: the language of kernels, and streams, events, graphs and faults. What this shows of
// order (a missing barrier, a missing event) is what tests of kernels and of the backend rely on.
#include "loci/compute/cuda/simulated/simulated_testing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "loci/compute/cuda/runtime.h"
#include "loci/compute/cuda/simulated/faults.h"
#include "loci/compute/cuda/simulated/sanitizers.h"

namespace loci::cuda {
namespace {

class SimulatedTest : public testing::Test {
 protected:
  void open(const simulated::Options& options = {}) {
    simulated::set_options(options);
    device_ = std::move(Device::open(0)).value();
  }
  void SetUp() override { open(); }

  template <class T>
  Memory upload(const std::vector<T>& values, MemoryKind kind = MemoryKind::kDevice) {
    Memory memory = std::move(Memory::allocate(*device_, kind, values.size() * sizeof(T), "test")).value();
    std::memcpy(memory.data(), values.data(), memory.size());
    return memory;
  }

  std::unique_ptr<Device> device_;
};

TEST_F(SimulatedTest, BarriersOrderABlocksThreads) {
  std::vector<int> values(256);
  std::iota(values.begin(), values.end(), 0);
  const Memory memory = upload(values);
  Stream stream(*device_);
  launch_reverse({memory.as<int>(), 256}, true, stream);
  stream.synchronize();
  for (int i = 0; i < 256; ++i) EXPECT_EQ(memory.as<int>()[i], i / 128 * 128 + 127 - i % 128);
}

TEST_F(SimulatedTest, AMissingBarrierShows) {
  std::vector<int> values(128, 7);
  const Memory memory = upload(values);
  Stream stream(*device_);
  launch_reverse({memory.as<int>(), 128}, false, stream);
  stream.synchronize();
  EXPECT_NE(std::vector<int>(memory.as<int>(), memory.as<int>() + 128), values);
}

#ifdef __SANITIZE_ADDRESS__
// By a single value, whether in shared memory or in the device's, behind it or before.
TEST_F(SimulatedTest, TheSanitizerSeesAKernelLeaveItsMemory) {
  const auto reverse = [&](std::uint32_t values, std::uint32_t skipped, std::uint32_t shared_bytes) {
    const Memory memory = upload(std::vector<int>(values));
    Stream stream(*device_);
    launch_reverse({memory.as<int>() - skipped, 128}, true, stream, shared_bytes);
    stream.synchronize();
  };
  reverse(128, 0, 512);
  EXPECT_DEATH(reverse(128, 0, 508), "WRITE of size 4");
  EXPECT_DEATH(reverse(127, 0, 512), "READ of size 4");
  EXPECT_DEATH(reverse(128, 1, 512), "READ of size 4");
}
#endif

TEST_F(SimulatedTest, WarpsExchange) {
  std::vector<float> values(32);
  std::iota(values.begin(), values.end(), 1.0f);
  const Memory memory = upload(values);
  Stream stream(*device_);
  launch_sum_warp({memory.as<float>()}, stream);
  stream.synchronize();
  for (int i = 0; i < 32; ++i) EXPECT_EQ(memory.as<float>()[i], 528.0f);
}

TEST_F(SimulatedTest, TensorCoresMultiply) {
  std::mt19937 random(3);
  std::uniform_int_distribution<int> integer(-8, 8);
  for (const ElementType type : {ElementType::kHalf, ElementType::kBFloat16}) {
    std::vector<float> a(16 * 16), b(16 * 8);
    std::vector<std::uint16_t> a_bits, b_bits;
    const auto bits = [&](float v) {
      return type == ElementType::kHalf ? from_float<Half>(v).bits : from_float<BFloat16>(v).bits;
    };
    for (float& v : a) a_bits.push_back(bits(v = static_cast<float>(integer(random))));
    for (float& v : b) b_bits.push_back(bits(v = static_cast<float>(integer(random))));
    const Memory device_a = upload(a_bits), device_b = upload(b_bits), c = upload(std::vector<float>(128));
    Stream stream(*device_);
    launch_multiply_tile({device_a.data(), device_b.data(), c.as<float>()}, type, stream);
    stream.synchronize();
    for (int row = 0; row < 16; ++row) {
      for (int column = 0; column < 8; ++column) {
        float expected = 0;
        for (int k = 0; k < 16; ++k) expected += a[row * 16 + k] * b[k * 8 + column];
        ASSERT_EQ(c.as<float>()[row * 8 + column], expected) << row << ' ' << column;
      }
    }
  }
}

TEST_F(SimulatedTest, CopiesArriveWhenTheyAreWaitedFor) {
  const Memory memory = upload(std::vector<float>(128, 5.0f));
  Stream stream(*device_);
  launch_read_before_arrival({memory.as<float>()}, stream);
  stream.synchronize();
  EXPECT_TRUE(std::isnan(memory.as<float>()[0]));
  EXPECT_EQ(memory.as<float>()[1], 5.0f);
}

TEST_F(SimulatedTest, RoundsToSixteenBits) {
  EXPECT_EQ(from_float<Half>(1.0f).bits, 0x3c00);
  EXPECT_EQ(from_float<Half>(65520.0f).bits, 0x7c00);
  EXPECT_EQ(from_float<Half>(2049.0f).bits, from_float<Half>(2048.0f).bits);  // a tie, to even
  EXPECT_EQ(from_float<BFloat16>(1.0f).bits, 0x3f80);
  EXPECT_EQ(from_float<BFloat16>(257.0f).bits, from_float<BFloat16>(256.0f).bits);
  EXPECT_EQ(from_float<BFloat16>(259.0f).bits, from_float<BFloat16>(260.0f).bits);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<std::uint16_t>(bits)};
    const BFloat16 brain{static_cast<std::uint16_t>(bits)};
    if (!std::isnan(to_float(half))) {
      ASSERT_EQ(from_float<Half>(to_float(half)).bits, bits);
    }
    if (!std::isnan(to_float(brain))) {
      ASSERT_EQ(from_float<BFloat16>(to_float(brain)).bits, bits);
    }
  }
}

TEST_F(SimulatedTest, NothingRunsBeforeItIsWaitedFor) {
  const Memory memory = upload(std::vector<int>(10));
  Stream stream(*device_);
  launch_add_one({memory.as<int>(), 10}, stream);
  EXPECT_EQ(memory.as<int>()[0], 0);
  stream.synchronize();
  EXPECT_EQ(memory.as<int>()[9], 1);
}

// With the event the copy always follows the kernel; without, some seed shows another order.
TEST_F(SimulatedTest, EventsAloneOrderStreams) {
  int unordered_early = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool ordered : {true, false}) {
      open({.seed = seed});
      const Memory values = upload(std::vector<int>(64)),
                   host = upload(std::vector<int>(64), MemoryKind::kPinned);
      Stream computes(*device_), copies(*device_);
      Event computed(*device_);
      launch_add_one({values.as<int>(), 64}, computes);
      computes.record(computed);
      if (ordered) copies.wait(computed);
      copies.copy(host.data(), values.data(), values.size());
      copies.synchronize();
      if (ordered) {
        EXPECT_EQ(host.as<int>()[5], 1);
      } else {
        unordered_early += host.as<int>()[5] == 0;
      }
    }
  }
  EXPECT_GT(unordered_early, 0);
}

// On Hopper a kernel's blocks may start while the one before it runs: who reads what that one writes waits.
TEST_F(SimulatedTest, AKernelBeginsBeforeTheOneBeforeItHasEnded) {
  std::uint32_t old = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    open({.seed = seed});
    for (const Waits waits : {Waits::kBeforeReading, Waits::kAfterReading}) {
      for (const bool captured : {false, true}) {
        const Memory memory = upload(std::vector<int>{1, 2, 3, 4, 0, 0, 0, 0});
        Stream stream(*device_);
        if (captured) {
          ASSERT_TRUE(stream.begin_capture());
        }
        launch_add_one({memory.as<int>(), 4}, stream);
        launch_copy({memory.as<int>(), 4}, waits, stream);
        if (captured) stream.launch(stream.end_capture());
        stream.synchronize();
        const std::vector<int> values(memory.as<int>(), memory.as<int>() + 8);
        if (waits == Waits::kBeforeReading) {
          EXPECT_EQ(values, (std::vector<int>{2, 3, 4, 5, 2, 3, 4, 5}));
        } else {
          old += values == std::vector<int>{2, 3, 4, 5, 1, 2, 3, 4};
        }
      }
    }
  }
  EXPECT_GT(old, 4u);
  EXPECT_LT(old, 28u);
}

TEST_F(SimulatedTest, ABlockThatNeverWaitsIsFound) {
  const Memory memory = upload(std::vector<int>(8, 1));
  const auto run = [&] {
    Stream stream(*device_);
    launch_copy({memory.as<int>(), 4}, Waits::kNever, stream);
    stream.synchronize();
  };
  EXPECT_DEATH(run(), "ends without await_previous");
}

TEST_F(SimulatedTest, LaunchesThatNoDeviceTakesAreFound) {
  const Memory memory = upload(std::vector<int>(8, 1));
  Stream stream(*device_);
  for (const LaunchShape& shape :
       {LaunchShape{.grid = {1, 65536}, .block = {32}}, LaunchShape{.block = {2048}},
        LaunchShape{.block = {32}, .shared_bytes = 228u << 10}}) {
    EXPECT_DEATH(check_launch_shape("wide", shape, 227u << 10), "wide: a grid of");
  }
}

TEST_F(SimulatedTest, GraphsAreLaunchedAgain) {
  const Memory values = upload(std::vector<int>(64)),
               host = upload(std::vector<int>(64), MemoryKind::kPinned);
  Stream stream(*device_), beside(*device_);
  Event fork(*device_), join(*device_);
  ASSERT_TRUE(stream.begin_capture());
  launch_add_one({values.as<int>(), 64}, stream);
  stream.record(fork);
  beside.wait(fork);
  beside.copy(host.data(), values.data(), values.size());
  beside.record(join);
  stream.wait(join);
  const Graph graph = stream.end_capture();
  for (int i = 0; i < 3; ++i) stream.launch(graph);
  EXPECT_EQ(values.as<int>()[0], 0);
  stream.synchronize();
  EXPECT_EQ(values.as<int>()[63], 3);
  EXPECT_EQ(host.as<int>()[63], 3);
  EXPECT_EQ(simulated::counters().graphs, 3u);
}

TEST_F(SimulatedTest, MemoryEnds) {
  open({.memory_bytes = 1000});
  const Result<Memory> first = Memory::allocate(*device_, MemoryKind::kDevice, 900, "device_memory");
  ASSERT_TRUE(first.ok());
  const Result<Memory> second = Memory::allocate(*device_, MemoryKind::kDevice, 200, "device_memory");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(second.status().field(), "device_memory");
  EXPECT_EQ(device_->free_bytes(), 100u);
}

TEST_F(SimulatedTest, ALostDeviceDoesNothingMore) {
  open({.lost_after = 2});
  const Memory values = upload(std::vector<int>(64));
  Stream stream(*device_);
  for (int i = 0; i < 5; ++i) launch_add_one({values.as<int>(), 64}, stream);
  EXPECT_TRUE(device_->status().ok());
  stream.synchronize();
  EXPECT_EQ(device_->status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(values.as<int>()[0], 2);
}

}  // namespace
}  // namespace loci::cuda
