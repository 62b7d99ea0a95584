// SPDX-License-Identifier: Apache-2.0
#include "loci/cluster/kept_bodies.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace loci {
namespace {

constexpr std::uint64_t kFree = KeptBodies::kFreeBytes;
constexpr PromptKey kA{1}, kB{2}, kC{3};

TEST(KeptBodies, OneKeyLeavesRoomForOthers) {
  KeptBodies pool(100);
  // The largest body that there is room for.
  const auto most = [&](KeptBodies::Charge& charge) {
    std::uint64_t bytes = 100;
    while (bytes > 0 && !charge.grow_to(kFree + bytes)) --bytes;
    return bytes;
  };
  KeptBodies::Charge b(pool, kB), c(pool, kC);
  {
    KeptBodies::Charge a(pool, kA);
    EXPECT_EQ(most(a), 80u) << "four times the rest";
    EXPECT_EQ(most(b), 16u);
    KeptBodies::Charge more(pool, kA);
    EXPECT_FALSE(more.grow_to(kFree + 1)) << "all bodies of a key count together";
    EXPECT_TRUE(more.grow_to(kFree)) << "what every request has for nothing";
    EXPECT_TRUE(a.grow_to(kFree + 84)) << "tokens take what is left";
    EXPECT_FALSE(a.grow_to(kFree + 85));
  }
  EXPECT_EQ(most(c), 67u) << "what has ended is others'";
}

TEST(KeptBodies, WhatDoesNotFitChangesNothing) {
  KeptBodies pool(100);
  KeptBodies::Charge a(pool, kA);
  EXPECT_TRUE(a.grow_to(kFree + 40));
  EXPECT_FALSE(a.grow_to(kFree + 101));
  EXPECT_FALSE(a.grow_to(UINT64_MAX));
  EXPECT_TRUE(a.grow_to(kFree + 10)) << "never less than before";
  KeptBodies::Charge b(pool, kB);
  EXPECT_FALSE(b.grow_to(kFree + 49)) << "forty are held, so eleven would be left";
  EXPECT_TRUE(b.grow_to(kFree + 48));
}

// Whatever comes and goes, everybody who holds nothing finds room, and all of it is given back.
TEST(KeptBodies, NobodyIsLeftWithoutRoom) {
  KeptBodies pool(1'000'000);
  std::vector<std::unique_ptr<KeptBodies::Charge>> held;
  for (std::uint8_t tenant = 0; tenant < 6; ++tenant) {
    for (int i = 0; i < 50; ++i) {
      auto charge = std::make_unique<KeptBodies::Charge>(pool, PromptKey{tenant});
      const bool took = charge->grow_to(kFree + 30'000 / (1 + tenant * tenant * tenant * 7));
      EXPECT_TRUE(took || i > 0) << "tenant " << int{tenant};
      if (took) held.push_back(std::move(charge));
    }
  }
  held.clear();
  KeptBodies::Charge last(pool, kA);
  EXPECT_TRUE(last.grow_to(kFree + 800'000));
}

}  // namespace
}  // namespace loci
