// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/pool_size.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

constexpr std::uint64_t kOneGib = std::uint64_t{1} << 30;

PoolRequest request(std::uint64_t available) {
  return {.wanted_bytes = {},
          .available_bytes = available,
          .groups = {{.window = 0, .block_bytes = 1 << 20}},
          .context_tokens = 8192,
          .max_running = 64};
}

TEST(SizePool, TakesAtMostHalfOfTheMachinesMemory) {
  EXPECT_EQ(size_pool(request(16 * kOneGib)).value().blocks[0], (8 * kOneGib) >> 20);
  EXPECT_EQ(size_pool(request(4 * kOneGib)).value().blocks[0], (2 * kOneGib) >> 20);
  EXPECT_EQ(size_pool(request(1 * kOneGib)).value().blocks[0], (kOneGib / 2) >> 20);
  EXPECT_EQ(size_pool(request(1 << 20)).status().field(), "device_memory");
}

TEST(SizePool, IsCappedAtWhatCouldBeUsed) {
  PoolRequest few = request(1000 * kOneGib);
  few.max_running = 1;
  few.context_tokens = 33;
  EXPECT_EQ(size_pool(few).value().blocks[0], 8u);
}

TEST(SizePool, TakesNineTenthsOfADevice) {
  PoolRequest device = request(100 * kOneGib);
  device.memory = PoolMemory::kDevice;
  device.max_running = 1;
  device.context_tokens = 33;
  const PoolSize size = size_pool(device).value();
  EXPECT_EQ(size.blocks[0], (90 * kOneGib) >> 20) << "what requests can hold at once is no cap";
  EXPECT_EQ(size.reason, "90 % of the 100.0 GiB that the weights leave");
  device.available_bytes = 1 << 20;
  EXPECT_EQ(size_pool(device).status().field(), "device_memory");
  device.wanted_bytes = 7 << 20;
  EXPECT_EQ(size_pool(device).value().blocks[0], 7u);
}

TEST(DefaultHostTier, IsHalfOfWhatIsFreeBesideADevice) {
  EXPECT_EQ(default_host_tier(PoolMemory::kDevice, 64 * kOneGib), 32 * kOneGib);
  EXPECT_EQ(default_host_tier(PoolMemory::kHost, 64 * kOneGib), 0u) << "it would be the same memory";
}

TEST(SizePool, GivesWhatIsWanted) {
  PoolRequest wanted = request(0);
  wanted.wanted_bytes = (10 << 20) + 5;
  EXPECT_EQ(size_pool(wanted).value().blocks[0], 10u);
  wanted.wanted_bytes = 1 << 20;
  const Status little = size_pool(wanted).status();
  EXPECT_EQ(little.field(), "device_memory");
  EXPECT_EQ(little.message(),
            "expected room for at least two blocks of each group of layers, 2.0 MiB; got 1.0 MiB");
  EXPECT_NE(size_pool(request(1 << 20))
                .status()
                .message()
                .find("of memory are available, too little for two blocks of each group of layers"),
            std::string::npos);
}

TEST(SizePool, RefusesMoreBlocksThanAreCounted) {
  PoolRequest wanted = request(0);
  wanted.wanted_bytes = std::uint64_t{kPoolSlotsMax} << 20;
  EXPECT_EQ(size_pool(wanted).value().blocks[0], kPoolSlotsMax);
  for (const std::uint64_t bytes : {*wanted.wanted_bytes + kOneGib, std::uint64_t{1} << 62}) {
    wanted.wanted_bytes = bytes;
    EXPECT_EQ(size_pool(wanted).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(size_pool(wanted).status().field(), "device_memory");
  }
}

TEST(SizePool, SplitsOverGroups) {
  PoolRequest mixed = request(1000 * kOneGib);
  mixed.groups.push_back({.window = 512, .block_bytes = 5 << 20});
  const PoolSize capped = size_pool(mixed).value();
  EXPECT_EQ(capped.blocks, (std::vector<std::uint32_t>{4 * 256 * 64, 4 * 18 * 64}));
  mixed.wanted_bytes = std::uint64_t{3 * (64 + 18 * 5)} << 20;
  EXPECT_EQ(size_pool(mixed).value().blocks, (std::vector<std::uint32_t>{192, 54}));
  mixed.wanted_bytes = 10 << 20;
  EXPECT_EQ(size_pool(mixed).status().field(), "device_memory");
}

PoolsRequest pools(PoolMemory memory) {
  return {.memory = memory,
          .device_available_bytes = 10 * kOneGib,
          .host_available_bytes = 16 * kOneGib,
          .groups = {{.window = 0, .block_bytes = 1 << 20}},
          .context_tokens = 8192,
          .max_running = 64};
}

TEST(SizePools, ADeviceHasMemoryOfItsOwnAndAHostTier) {
  const PoolSizes sizes = size_pools(pools(PoolMemory::kDevice)).value();
  EXPECT_EQ(sizes.device.blocks[0], (9 * kOneGib) >> 20);
  EXPECT_EQ(sizes.host_bytes, 8 * kOneGib);
  EXPECT_EQ(sizes.host_reason, "half of the 16.0 GiB available");
}

TEST(SizePools, OnAProcessorBothAreOfOneMemory) {
  PoolsRequest request = pools(PoolMemory::kHost);
  EXPECT_EQ(size_pools(request)->host_bytes, 0u);
  EXPECT_EQ(size_pools(request)->device.blocks[0], (8 * kOneGib) >> 20);
  request.host_bytes = 6 * kOneGib;
  const PoolSizes sizes = size_pools(request).value();
  EXPECT_EQ(sizes.host_bytes, 6 * kOneGib);
  EXPECT_EQ(sizes.host_reason, "");
  EXPECT_EQ(sizes.device.blocks[0], (5 * kOneGib) >> 20);
  request.host_bytes = 17 * kOneGib;
  EXPECT_EQ(size_pools(request).status().field(), "host_memory") << "nothing is left";
  request.device_bytes = kOneGib;
  EXPECT_TRUE(size_pools(request).ok()) << "whoever says both is believed: pages are taken as they fill";
}

TEST(SizePools, AMachineThatDoesNotTellNeedsToBeToldWhatIsUsed) {
  PoolsRequest request = pools(PoolMemory::kDevice);
  request.host_available_bytes.reset();
  EXPECT_EQ(size_pools(request).status().field(), "host_memory");
  request.host_bytes = 0;
  EXPECT_TRUE(size_pools(request).ok());
  request = pools(PoolMemory::kHost);
  request.host_available_bytes.reset();
  EXPECT_EQ(size_pools(request).status().field(), "device_memory");
  request.device_bytes = kOneGib;
  EXPECT_EQ(size_pools(request)->device.blocks[0], 1024u);
}

}  // namespace
}  // namespace loci
