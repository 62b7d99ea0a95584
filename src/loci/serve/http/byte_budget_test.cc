// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/http/byte_budget.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace loci {
namespace {

constexpr std::uint64_t kFree = ByteBudget::kFreeBytes;

// Another party's body may have so many bytes beyond the free ones, and no more.
bool has_room(ByteBudget& budget, std::uint64_t bytes) {
  ByteBudget::Charge other(budget, "other");
  return other.grow_to(kFree + bytes) && !other.grow_to(kFree + bytes + 1);
}

// Grows to the most that there is room for, of 100 bytes.
std::uint64_t most_of(ByteBudget::Charge& charge) {
  std::uint64_t bytes = 100;
  while (bytes > 0 && !charge.grow_to(kFree + bytes)) --bytes;
  return bytes;
}

TEST(ByteBudget, ChargesWhatArrivesBeyondTheFreeBytes) {
  ByteBudget budget(1000);
  ByteBudget::Charge first(budget, "first");
  {
    ByteBudget::Charge second(budget, "second");
    EXPECT_TRUE(first.grow_to(kFree));
    EXPECT_TRUE(has_room(budget, 1000));
    EXPECT_TRUE(first.grow_to(kFree + 600));
    EXPECT_TRUE(second.grow_to(kFree + 400));
    EXPECT_TRUE(has_room(budget, 0));
    EXPECT_FALSE(second.grow_to(kFree + 401));
    EXPECT_TRUE(has_room(budget, 0));
    EXPECT_TRUE(second.grow_to(kFree + 400));
  }
  EXPECT_TRUE(has_room(budget, 400));
  first.release();
  EXPECT_TRUE(has_room(budget, 1000));
  EXPECT_FALSE(first.grow_to(kFree + 1001));
}

// The example of the header.
TEST(ByteBudget, OnePartyLeavesRoomForOthers) {
  ByteBudget budget(100);
  ByteBudget::Charge a(budget, "a"), one_of_a(budget, "a"), b(budget, "b"), one_of_b(budget, "b");
  ByteBudget::Charge c(budget, "c"), one_of_c(budget, "c");
  ASSERT_TRUE(one_of_a.grow_to(kFree + 1));
  EXPECT_EQ(most_of(a), 79u);
  ASSERT_TRUE(one_of_b.grow_to(kFree + 1));
  EXPECT_EQ(most_of(b), 15u);
  ASSERT_TRUE(one_of_c.grow_to(kFree + 1));
  EXPECT_EQ(most_of(c), 2u);
  EXPECT_FALSE(a.grow_to(kFree + 80));
  a.release();
  one_of_a.charge_to("d");
  EXPECT_EQ(most_of(one_of_a), 81u) << "one thing alone takes all that is left";
}

TEST(ByteBudget, WhatHasBegunGoesOn) {
  ByteBudget budget(100, PastShare::kWhatHasBegun);
  ByteBudget::Charge b(budget, "b"), c(budget, "c");
  {
    ByteBudget::Charge a(budget, "a");
    EXPECT_EQ(most_of(a), 80u) << "four times the rest";
    EXPECT_EQ(most_of(b), 16u);
    ByteBudget::Charge more(budget, "a");
    EXPECT_FALSE(more.grow_to(kFree + 1)) << "all of a party count together";
    EXPECT_TRUE(more.grow_to(kFree)) << "what everything has for nothing";
    EXPECT_TRUE(a.grow_to(kFree + 84)) << "it has begun, and takes what is left";
    EXPECT_FALSE(a.grow_to(kFree + 85));
  }
  EXPECT_EQ(most_of(c), 67u) << "what has ended is others'";
}

TEST(ByteBudget, WhatDoesNotFitChangesNothing) {
  ByteBudget budget(100, PastShare::kWhatHasBegun);
  ByteBudget::Charge a(budget, "a");
  EXPECT_TRUE(a.grow_to(kFree + 40));
  EXPECT_FALSE(a.grow_to(kFree + 101));
  EXPECT_FALSE(a.grow_to(UINT64_MAX));
  EXPECT_TRUE(a.grow_to(kFree + 10)) << "never less than before";
  ByteBudget::Charge b(budget, "b");
  EXPECT_FALSE(b.grow_to(kFree + 49)) << "forty are held, so eleven would be left";
  EXPECT_TRUE(b.grow_to(kFree + 48));
}

// Whatever comes and goes, everybody who holds nothing finds room, and all of it is given back.
TEST(ByteBudget, NobodyIsLeftWithoutRoom) {
  ByteBudget budget(1'000'000, PastShare::kWhatHasBegun);
  std::vector<std::unique_ptr<ByteBudget::Charge>> held;
  for (std::uint8_t tenant = 0; tenant < 6; ++tenant) {
    for (int i = 0; i < 50; ++i) {
      auto charge = std::make_unique<ByteBudget::Charge>(budget, std::to_string(tenant));
      const bool took = charge->grow_to(kFree + 30'000 / (1 + tenant * tenant * tenant * 7));
      EXPECT_TRUE(took || i > 0) << "tenant " << int{tenant};
      if (took) held.push_back(std::move(charge));
    }
  }
  held.clear();
  ByteBudget::Charge last(budget, "a");
  EXPECT_TRUE(last.grow_to(kFree + 800'000));
}

}  // namespace
}  // namespace loci
