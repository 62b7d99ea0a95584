// SPDX-License-Identifier: Apache-2.0
// A device that a kernel has broken; only on hardware, because on the simulated device such a kernel ends the
// program. gpu-check runs each suite in a process of its own, so no other suite loses its device.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loci/compute/cuda/check/device_testing.h"
#include "loci/compute/cuda/runtime_testing.h"

namespace loci::cuda {
namespace {

class LostDeviceTest : public DeviceTest {};

TEST_F(LostDeviceTest, IsToldOfAndDoesNothingMore) {
  const Memory values = upload(std::vector<std::uint32_t>(64, 1)), host = pinned(256);
  expect_lost();
  launch_write_nowhere({values.as<std::uint32_t>(), 1, 1}, stream());
  stream().synchronize();
  const Status status = device().status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("is lost"), std::string::npos) << status.message();
  // Nothing hangs, nothing crashes, and all that is asked says the same.
  Event event(device());
  stream().copy(host.data(), values.data(), 256);
  stream().record(event);
  event.synchronize();
  EXPECT_TRUE(event.done());
  EXPECT_FALSE(stream().begin_capture());
  EXPECT_FALSE(stream().end_capture().present());
  const Result<Memory> more = Memory::allocate(device(), MemoryKind::kDevice, 64, "more");
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.status().message(), status.message());
  device().synchronize();
}

}  // namespace
}  // namespace loci::cuda
