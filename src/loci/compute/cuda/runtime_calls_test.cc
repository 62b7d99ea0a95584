// SPDX-License-Identifier: Apache-2.0
// Which calls the real runtime (runtime.cc) makes of CUDA's, and from which thread on which device: it is
// compiled here over a scripted driver (scripted/cuda_runtime_api.h), because no simulated device runs it.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "loci/compute/cuda/runtime.h"

namespace loci::cuda {
namespace {

class RuntimeCallsTest : public testing::Test {
 protected:
  void SetUp() override {
    reset(3);
    scripted::current_device = 0;
  }

  // The driver before a process has made its first call.
  static void reset(int devices) {
    scripted::Driver& driver = scripted::driver();
    driver.devices = devices;
    driver.refusing.clear();
    driver.next.clear();
    driver.calls.clear();
    driver.contexts.clear();
  }
  static scripted::Driver& driver() { return scripted::driver(); }
  // A thread of its own, which has made no call.
  static void elsewhere(const std::function<void()>& work) { std::thread(work).join(); }
  static std::unique_ptr<Device> open(std::uint32_t ordinal) {
    return std::move(Device::open(ordinal)).value();
  }
};

TEST_F(RuntimeCallsTest, FindingDevicesMakesNoContext) {
  for (std::uint32_t ordinal = 0; ordinal < 3; ++ordinal) {
    const Result<DeviceProperties> found = Device::find(ordinal);
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_EQ(found->ordinal, ordinal);
    EXPECT_EQ(found->capability, 90u);
  }
  EXPECT_FALSE(Device::find(3).ok());
  EXPECT_EQ(driver().contexts, std::set<int>());
  const auto device = open(2);
  EXPECT_EQ(driver().contexts, std::set<int>{2});
}

// A thread's first call may be any of these. Another process has the first device for itself.
TEST_F(RuntimeCallsTest, WaitingForEventsTouchesNoOtherDevice) {
  const auto device = open(1);
  driver().refusing = {0};
  std::optional<Event> begin(std::in_place, *device, Event::Timing::kTimed);
  std::optional<Event> end(std::in_place, *device, Event::Timing::kTimed);
  elsewhere([&] { EXPECT_TRUE(end->done()); });
  elsewhere([&] { end->synchronize(); });
  elsewhere([&] { EXPECT_EQ(end->milliseconds_since(*begin), 1.0); });
  elsewhere([&] { begin.reset(); });
  end.reset();
  for (const char* name : {"cudaEventQuery", "cudaEventSynchronize", "cudaEventElapsedTime"})
    EXPECT_EQ(driver().calls[name], 1u) << name;
  EXPECT_EQ(driver().calls["cudaEventDestroy"], 2u);
  EXPECT_TRUE(device->status().ok()) << device->status().to_string();
  EXPECT_EQ(driver().contexts, std::set<int>{1});
}

TEST_F(RuntimeCallsTest, AnEventThatIsNotThereYetIsNoError) {
  const auto device = open(1);
  const Event event(*device);
  driver().next["cudaEventQuery"] = cudaErrorNotReady;
  EXPECT_FALSE(event.done());
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(device->status().ok());
}

// Waits return when the device is lost, whether they find out or were told.
TEST_F(RuntimeCallsTest, WaitingForALostDeviceReturns) {
  for (const char* fails :
       {"cudaSetDevice", "cudaEventQuery", "cudaEventSynchronize", "cudaEventElapsedTime"}) {
    const auto device = open(1);
    const Event begin(*device, Event::Timing::kTimed), end(*device, Event::Timing::kTimed);
    driver().next[fails] = cudaErrorIllegalAddress;
    for (int round = 0; round < 2; ++round) {
      EXPECT_TRUE(end.done());
      end.synchronize();
      static_cast<void>(end.milliseconds_since(begin));
    }
    EXPECT_EQ(device->status().code(), StatusCode::kUnavailable) << fails;
    const unsigned asked = driver().calls["cudaSetDevice"];
    EXPECT_TRUE(end.done());
    EXPECT_EQ(driver().calls["cudaSetDevice"], asked) << "nothing more is asked of a lost device";
  }
}

TEST_F(RuntimeCallsTest, AllocationsThatAreRefusedLoseNoDevice) {
  const auto device = open(0);
  struct Refused {
    MemoryKind kind;
    const char* call;
  };
  for (const Refused& refused :
       {Refused{MemoryKind::kDevice, "cudaMalloc"}, Refused{MemoryKind::kPinned, "cudaHostAlloc"}}) {
    for (const cudaError_t error :
         {cudaErrorMemoryAllocation, cudaErrorInvalidValue, cudaErrorNotSupported}) {
      driver().next[refused.call] = error;
      const Status status = Memory::allocate(*device, refused.kind, 4096, "the test's").status();
      EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << refused.call << " " << error;
      EXPECT_NE(status.message().find("4096 bytes"), std::string::npos) << status.message();
      EXPECT_TRUE(device->status().ok()) << device->status().to_string();
    }
    EXPECT_TRUE(Memory::allocate(*device, refused.kind, 4096, "the test's").ok());
  }
  driver().next["cudaMalloc"] = cudaErrorIllegalAddress;
  EXPECT_EQ(Memory::allocate(*device, MemoryKind::kDevice, 4096, "the test's").status().code(),
            StatusCode::kUnavailable);
  EXPECT_TRUE(device->lost());
}

}  // namespace
}  // namespace loci::cuda
