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

TEST(SlotPool, ASlotWhoseWriteFailedIsNotTheNextOne) {
  SlotPool pool(8);
  const auto fail = [&] {
    auto taken = pool.take();
    taken->doubt();
    return taken->slot();
  };
  EXPECT_EQ(fail(), SlotId(0));
  EXPECT_EQ(fail(), SlotId(1));
  EXPECT_EQ(pool.free_count(), 8u);
  EXPECT_EQ(pool.ready_count(), 6u);
  int takes = 2;
  for (; takes < 5'000; ++takes) {
    if (pool.take()->slot() == SlotId(0)) break;
  }
  EXPECT_EQ(takes, 1'024) << "then it is tried, and was good, though nobody says so";
  EXPECT_EQ(pool.ready_count(), 7u);
}

TEST(SlotPool, WhereAllAreSetAsideTheFirstIsTried) {
  SlotPool pool(2);
  for (std::uint32_t times = 0; times < 10; ++times) {
    auto taken = pool.take();
    ASSERT_TRUE(taken.has_value());
    EXPECT_EQ(taken->slot(), SlotId(times % 2));
    taken->doubt();
  }
  EXPECT_EQ(pool.ready_count(), 0u);
}

TEST(SlotPool, WritesThatFailOneAfterTheOtherAreNoFaultOfTheSlots) {
  SlotPool pool(100);
  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(pool.fails()) << i;
    pool.take()->doubt();
  }
  EXPECT_TRUE(pool.fails());
  pool.take()->prove();
  EXPECT_FALSE(pool.fails());
}

// What was found again by its name stays in a list that it was taken past.
TEST(SlotPool, WhatWasTakenByNameAndSetAsideIsNotAlsoFresh) {
  SlotPool pool(4);
  auto named = pool.take(SlotId(2));
  named->doubt();
  named.reset();
  auto first = pool.take(), second = pool.take(), third = pool.take();
  EXPECT_EQ(pool.ready_count(), 0u);
  EXPECT_EQ(third->slot(), SlotId(3));
  EXPECT_EQ(pool.take()->slot(), SlotId(2)) << "the last that there is";
}

TEST(SlotPool, WhatProvesGoodBringsTheOthersBack) {
  constexpr std::uint32_t kSlots = 2'000;
  SlotPool pool(kSlots);
  {
    std::vector<SlotReservation> bad;
    for (std::uint32_t i = 0; i + 1 < kSlots; ++i) bad.push_back(*pool.take());
    for (SlotReservation& one : bad) one.doubt();
  }
  EXPECT_EQ(pool.ready_count(), 1u);
  const auto takes_until = [&](std::uint32_t ready) {
    std::uint32_t takes = 0;
    for (; pool.ready_count() < ready && takes < 100'000; ++takes) pool.take()->prove();
    return takes;
  };
  EXPECT_LT(takes_until(kSlots), 5'000u);
  EXPECT_EQ(pool.ready_count(), kSlots);
}

TEST(SlotPool, AgreesWithASet) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    SlotPool pool(static_cast<std::uint32_t>(random.below(20)));
    std::vector<SlotReservation> held;
    std::set<SlotId> model;
    for (int i = 0; i < 500; ++i) {
      if (random.below(2) == 0) {
        const std::uint32_t ready = pool.ready_count();
        const bool by_name = pool.count() > 0 && random.below(4) == 0;
        const SlotId name(by_name ? static_cast<std::uint32_t>(random.below(pool.count())) : 0);
        const bool may_be_taken = by_name ? !model.contains(name) : model.size() < pool.count();
        auto taken = by_name ? pool.take(name) : pool.take();
        ASSERT_EQ(taken.has_value(), may_be_taken);
        ASSERT_TRUE(by_name || taken || ready == 0);
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
        if (random.below(3) == 0) held.back().doubt();
        if (random.below(3) == 0) held.back().prove();
        held.pop_back();
      }
      ASSERT_EQ(pool.free_count() + model.size(), pool.count());
      ASSERT_LE(pool.ready_count(), pool.free_count());
      for (std::uint32_t s = 0; s < pool.count(); ++s)
        ASSERT_EQ(pool.taken(SlotId(s)), model.contains(SlotId(s)));
    }
  }
}

}  // namespace
}  // namespace loci
