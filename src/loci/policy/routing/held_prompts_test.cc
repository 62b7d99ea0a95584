// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/held_prompts.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

#include "loci/policy/routing/named_chunks.h"

namespace loci {
namespace {

using Names = std::vector<std::uint64_t>;

TEST(HeldPrompts, CountsChunksByTierHolesToo) {
  HeldPrompts held(100, 1);
  const Names prompt = {4, 8, 12, 16, 20};
  EXPECT_EQ(held.match(prompt, 0, 64).all(), 0u);
  held.set(4, Tier::kDevice);
  held.set(12, Tier::kHost);
  held.set(16, Tier::kDisk);
  const HeldChunks found = held.match(prompt, 2, 64);
  EXPECT_EQ(found.in, (std::array<std::uint32_t, 3>{1, 1, 1}));
  EXPECT_EQ(found.sent, 1u) << "the second one was sent, and is not told of";
  EXPECT_EQ(held.match({}, 0, 64).all(), 0u);
  // Some stand for all.
  EXPECT_EQ(held.match(prompt, 0, 1).all(), 0u) << "the last one is not there";
  Names many;
  for (std::uint64_t i = 1; i <= 4'000; ++i) many.push_back(i * 1'000);
  HeldPrompts half(100'000, 1);
  for (std::size_t i = 0; i < 2'000; ++i) half.set(many[i], Tier::kDevice);
  EXPECT_EQ(half.match(many, 0, 16).in[0], chunks_of_names(2'000)) << "later names stand for eight chunks";
  EXPECT_EQ(half.match(many, 3'000, 16).sent, 8'000u);
}

TEST(HeldPrompts, AgreesWithAMap) {
  std::mt19937_64 random(3);
  HeldPrompts held(300, 5);
  std::map<std::uint64_t, Tier> naive;
  for (int turn = 0; turn < 40'000; ++turn) {
    // Names whose homes are close to one another, and to the table's end.
    const std::uint64_t name = ((random() % 700) << 2) * (random() % 2 == 0 ? 1 : 0x1000003ffffcu);
    if (name == 0) continue;
    const std::uint64_t action = random() % 4;
    if (action == 0) {
      EXPECT_TRUE(held.set(name, std::nullopt));
      naive.erase(name);
    } else {
      const bool fits = naive.contains(name) || naive.size() < 300;
      const auto tier = static_cast<Tier>(action - 1);
      EXPECT_EQ(held.set(name | (random() % 4), tier), fits);
      if (fits) naive[name] = tier;
    }
    ASSERT_EQ(held.size(), naive.size());
    const std::uint64_t other = (random() % 700) << 2;
    const auto known = naive.find(other);
    ASSERT_EQ(held.find(other), known == naive.end() ? std::nullopt : std::optional(known->second)) << turn;
    if (turn % 9'999 != 0) continue;
    for (const auto& [one, tier] : naive) ASSERT_EQ(held.find(one), tier);
    held.clear();
    naive.clear();
  }
}

// Names that a member made so that all begin at one place of a table that does not know its seed. (Were they
// there, this would be 10^10 looks.)
TEST(HeldPrompts, NamesThatEndAlikeAreSpread) {
  constexpr std::uint64_t kNames = 1 << 18;
  HeldPrompts held(kNames, 0x1234567812345678);
  for (std::uint64_t i = 1; i <= kNames; ++i) ASSERT_TRUE(held.set(i << 40, Tier::kHost));
  for (std::uint64_t i = 1; i <= kNames; ++i) ASSERT_EQ(held.find(i << 40), Tier::kHost);
  for (std::uint64_t i = 1; i <= kNames; ++i) ASSERT_TRUE(held.set(i << 40, std::nullopt));
  EXPECT_EQ(held.size(), 0u);
}

}  // namespace
}  // namespace loci
