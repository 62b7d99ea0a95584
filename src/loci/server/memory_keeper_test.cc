// SPDX-License-Identifier: Apache-2.0
// The room of memory as slots of each group's pool.
#include "loci/server/memory_keeper.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

CoreGroup group(std::uint32_t blocks, std::uint64_t block_bytes) {
  CoreGroup group;
  group.block_count = blocks;
  group.block_bytes = block_bytes;
  return group;
}

using Slots = std::vector<std::uint32_t>;

TEST(MemoryRoom, IsTheSameShareOfEachPool) {
  const std::vector<CoreGroup> groups = {group(100, 4096), group(10, 512)};
  const std::uint64_t all = 100 * 4096 + 10 * 512;
  EXPECT_EQ(room_of(groups, all, all / 2).slots, (Slots{50, 5}));
  EXPECT_EQ(room_of(groups, all, all / 100 + 1).slots, (Slots{1, 0}));  // never more than the room
  EXPECT_EQ(room_of(groups, all, 0).slots, (Slots{0, 0}));
}

TEST(MemoryRoom, IsAllSlotsWhereNothingIsShort) {
  const std::vector<CoreGroup> groups = {group(7, 1000), group(3, 1)};
  for (const std::uint64_t room : {std::uint64_t{7003}, std::uint64_t{7004}, UINT64_MAX})
    EXPECT_EQ(room_of(groups, 7003, room).slots, (Slots{7, 3}));
  EXPECT_EQ(room_of({group(5, 0)}, 0, 0).slots, (Slots{5}));  // a backend that tells no sizes
}

// A pool of a machine with terabytes, of which bytes times blocks are more than 64 bits hold.
TEST(MemoryRoom, OfALargePool) {
  const std::uint64_t block = std::uint64_t{1} << 24, blocks = std::uint64_t{1} << 20;
  const std::vector<CoreGroup> groups = {group(static_cast<std::uint32_t>(blocks), block)};
  EXPECT_EQ(room_of(groups, block * blocks, block * blocks / 4).slots, (Slots{1u << 18}));
}

}  // namespace
}  // namespace loci
