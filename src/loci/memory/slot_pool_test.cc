// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/slot_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

#include "loci/base/random.h"

namespace loci {
namespace {

TEST(SlotPool, GivesEachSlotOnce) {
  SlotPool pool(3);
  auto a = pool.take(), b = pool.take(), c = pool.take();
  EXPECT_EQ(a->slot(), SlotId(0));
  EXPECT_EQ(b->slot(), SlotId(1));
  EXPECT_EQ(c->slot(), SlotId(2));
  EXPECT_FALSE(pool.take().has_value());
  b.reset();
  EXPECT_EQ(pool.free_count(), 1u);
  EXPECT_FALSE(pool.taken(SlotId(1)));
  EXPECT_EQ(pool.take()->slot(), SlotId(1));
}

TEST(SlotPool, AReservationMovesAndEndsOnce) {
  SlotPool pool(2);
  auto a = pool.take();
  SlotReservation moved = std::move(*a);
  a.reset();
  EXPECT_EQ(pool.free_count(), 1u);
  auto b = pool.take();
  moved = std::move(*b);  // drops slot 0
  EXPECT_EQ(moved.slot(), SlotId(1));
  EXPECT_EQ(pool.free_count(), 1u);
  EXPECT_TRUE(pool.taken(SlotId(1)));
}

TEST(SlotPool, WhatRestsIsTakenAfterAllOthersAndCountsAsUnused) {
  SlotPool pool(4);
  auto a = pool.take(), b = pool.take(), c = pool.take();
  EXPECT_EQ(pool.used_count(), 3u);
  EXPECT_FALSE(pool.rest().has_value()) << "nothing that was used is free";
  a.reset();
  b.reset();
  EXPECT_EQ(pool.used_count(), 3u) << "free, and its memory is there";
  EXPECT_EQ(pool.rest(), SlotId(1));
  EXPECT_EQ(pool.used_count(), 2u);
  EXPECT_EQ(pool.free_count(), 3u);
  EXPECT_EQ(pool.take()->slot(), SlotId(0)) << "its memory is there";
  a = pool.take();
  b = pool.take();
  EXPECT_EQ(b->slot(), SlotId(1)) << "before slot 3, which nobody had, since it was the last to rest";
  EXPECT_EQ(pool.used_count(), 3u);
  EXPECT_EQ(pool.take()->slot(), SlotId(3));
  EXPECT_EQ(pool.used_count(), 4u);
}

TEST(SlotPool, AgreesWithASet) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    SlotPool pool(static_cast<std::uint32_t>(random.below(20)));
    std::vector<SlotReservation> held;
    std::set<SlotId> model;
    for (int i = 0; i < 500; ++i) {
      if (random.below(2) == 0) {
        auto taken = pool.take();
        ASSERT_EQ(taken.has_value(), model.size() < pool.count());
        if (!taken) continue;
        ASSERT_TRUE(model.insert(taken->slot()).second);
        held.push_back(std::move(*taken));
      } else if (random.below(4) == 0) {
        const auto rested = pool.rest();
        if (rested) {
          ASSERT_FALSE(model.contains(*rested));
        }
      } else if (!held.empty()) {
        std::swap(held[random.below(held.size())], held.back());
        model.erase(held.back().slot());
        held.pop_back();
      }
      ASSERT_EQ(pool.free_count() + model.size(), pool.count());
      for (std::uint32_t s = 0; s < pool.count(); ++s)
        ASSERT_EQ(pool.taken(SlotId(s)), model.contains(SlotId(s)));
    }
  }
}

}  // namespace
}  // namespace loci
