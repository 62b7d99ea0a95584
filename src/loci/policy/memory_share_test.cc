// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/memory_share.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "loci/base/random.h"

namespace loci {
namespace {

constexpr std::uint64_t kGib = std::uint64_t{1} << 30;

TEST(MemoryShare, KeepsThePoolWhereThereIsMemory) {
  MemoryShare share(4 * kGib);
  EXPECT_EQ(share.look({16 * kGib, 10 * kGib, 0, 0}), 4 * kGib);
  EXPECT_EQ(share.look({16 * kGib, 6 * kGib, 4 * kGib, 0}), 4 * kGib);
}

TEST(MemoryShare, LeavesASixteenthFree) {
  MemoryShare share(8 * kGib);
  EXPECT_EQ(share.look({16 * kGib, 3 * kGib, 4 * kGib, 0}), 6 * kGib)
      << "it does not grow into what is not there";
  EXPECT_EQ(share.look({16 * kGib, 0, 4 * kGib, 0}), 3 * kGib);
  EXPECT_EQ(share.look({16 * kGib, 0, 0, 0}), 0u);
}

TEST(MemoryShare, GivesWhileProgramsStandStillWhateverIsSaidToBeAvailable) {
  MemoryShare share(8 * kGib);
  EXPECT_EQ(share.look({16 * kGib, 12 * kGib, 4 * kGib, 99}), 8 * kGib);
  EXPECT_EQ(share.look({16 * kGib, 12 * kGib, 4 * kGib, 100}), 4 * kGib / 8 * 7);
  EXPECT_EQ(share.look({16 * kGib, 12 * kGib, 3 * kGib, 500}), 3 * kGib / 8 * 7);
}

TEST(MemoryShare, KeepsSomethingThroughStallsAndWhatOthersStallOf) {
  MemoryShare share(8 * kGib);
  MemoryLook look{16 * kGib, 12 * kGib, 1 * kGib, 500};
  EXPECT_EQ(share.look(look), 1 * kGib) << "an eighth of the pool stays";
  MemoryShare other(8 * kGib);
  look.stalls_are_own = false;
  EXPECT_EQ(other.look(look), 8 * kGib) << "there is memory: who stalls has a limit of its own";
  look.available_bytes = 1 * kGib;
  look.used_bytes = 4 * kGib;
  EXPECT_LT(other.look(look), 4 * kGib) << "the machine has none left";
}

TEST(MemoryShare, TakesMemoryAgainAfterAWhileAndInSteps) {
  MemoryShare share(8 * kGib);
  share.look({16 * kGib, 0, 5 * kGib, 0});
  const MemoryLook calm{16 * kGib, 12 * kGib, 4 * kGib, 0};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(share.look(calm), 4 * kGib) << i;
  EXPECT_EQ(share.look(calm), 6 * kGib);
  EXPECT_EQ(share.look(calm), 7 * kGib);
  for (int i = 0; i < 40; ++i) share.look(calm);
  EXPECT_EQ(share.look(calm), 8 * kGib) << "all of it in the end";
}

// What others use is never quite still. Near its limit the room goes down to the least that there was, and
// stays there.
TEST(MemoryShare, DoesNotFollowNoise) {
  MemoryShare share(8 * kGib);
  Random random(3);
  std::uint64_t room = 8 * kGib;
  int changes = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::uint64_t noise = random.below(kGib / 16);
    const std::uint64_t now = share.look({16 * kGib, 3 * kGib + noise, 4 * kGib, 0});
    changes += now != room ? 1 : 0;
    room = now;
  }
  EXPECT_LE(changes, 20) << "without a band it would be one in two looks";
  EXPECT_GE(room, 6 * kGib);
  EXPECT_EQ(share.look({16 * kGib, 3 * kGib + kGib / 4, 4 * kGib, 0}),
            room + (6 * kGib + kGib / 4 - room + 1) / 2)
      << "more than noise is taken";
}

TEST(MemoryShare, NeverExceedsThePoolNorWhatIsThere) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Random random(seed);
    const std::uint64_t pool = random.below(1000), total = 1 + random.below(2000);
    MemoryShare share(pool);
    for (int i = 0; i < 200; ++i) {
      const MemoryLook look{total, random.below(total), random.below(pool + 1),
                            static_cast<std::uint32_t>(random.below(1001))};
      const std::uint64_t room = share.look(look);
      ASSERT_LE(room, pool) << seed;
      const std::uint64_t all = look.used_bytes + look.available_bytes;
      ASSERT_LE(room, all - std::min(all, total / 16)) << seed;
    }
  }
}

}  // namespace
}  // namespace loci
