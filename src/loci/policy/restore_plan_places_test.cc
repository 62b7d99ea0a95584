// SPDX-License-Identifier: Apache-2.0
// Which places are worth a price where a request may go on from many.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "loci/base/random.h"
#include "loci/policy/restore_plan.h"

namespace loci {
namespace {

using Chosen = std::vector<std::size_t>;

PlaceNeeds of_disk(std::uint64_t bytes) { return {.bytes = {0, 0, bytes, 0}}; }

// So many places, each of which loads a byte less than the one behind it, and the first loads nothing.
std::vector<PlaceNeeds> falling(std::size_t count) {
  std::vector<PlaceNeeds> places;
  for (std::size_t i = 0; i < count; ++i) places.push_back(of_disk(count - 1 - i));
  return places;
}

TEST(RestorePlanPlaces, FewAreAllPriced) {
  EXPECT_EQ(places_to_price(falling(1)), (Chosen{0}));
  const Chosen all = places_to_price(falling(kPlacesPriced));
  ASSERT_EQ(all.size(), kPlacesPriced);
  EXPECT_EQ(all.back(), kPlacesPriced - 1);
}

TEST(RestorePlanPlaces, OfThousandsSomeAtEvenDistancesAre) {
  const Chosen some = places_to_price(falling(4'000));
  EXPECT_LE(some.size(), kPlacesPriced);
  EXPECT_EQ(some.front(), 0u);
  EXPECT_EQ(some.back(), 3'999u);
  for (std::size_t i = 1; i < some.size(); ++i) {
    EXPECT_GT(some[i], some[i - 1]);
    EXPECT_LE(some[i] - some[i - 1], 4'000 / (kPlacesPriced - 3) + 1);
  }
}

// An earlier place that loads as much computes more for nothing.
TEST(RestorePlanPlaces, WhatALaterPlaceDoesBetterIsLeftOut) {
  EXPECT_EQ(places_to_price(
                std::vector{of_disk(30), of_disk(30), of_disk(40), of_disk(20), of_disk(25), of_disk(0)}),
            (Chosen{0, 3, 5}));
  // Another tier's bytes are no more and no less.
  const PlaceNeeds host{.bytes = {0, 50, 0, 0}};
  EXPECT_EQ(places_to_price(std::vector{of_disk(30), host, of_disk(0)}), (Chosen{0, 1, 2}));
  // Nor does an earlier one lose that waits for nothing.
  PlaceNeeds awaits = of_disk(30);
  awaits.awaited = 4;
  EXPECT_EQ(places_to_price(std::vector{awaits, of_disk(30), awaits, of_disk(0)}), (Chosen{0, 1, 3}));
}

// So thousands of places on the device leave room for those that differ.
TEST(RestorePlanPlaces, WhatIsLeftOutTakesNoOnesPlace) {
  std::vector<PlaceNeeds> places = falling(41);
  places.back() = of_disk(1);
  places.insert(places.end(), 3'000, of_disk(1));
  places.push_back(of_disk(0));
  const Chosen priced = places_to_price(places);
  ASSERT_EQ(priced.size(), 41u);
  EXPECT_EQ(priced[39], 39u) << "of equal ones the last";
  EXPECT_EQ(priced.back(), places.size() - 1);
}

TEST(RestorePlanPlaces, NoTierThatIsLateIsWaitedFor) {
  std::vector<PlaceNeeds> places = falling(4);
  places[0].overdue = places[2].overdue = true;
  EXPECT_EQ(places_to_price(places), (Chosen{1, 3}));
  places.pop_back();
  EXPECT_EQ(places_to_price(places), (Chosen{1, 2})) << "there is no other beginning";
}

// `pensieve` takes the last place from which host memory alone is loaded from.
TEST(RestorePlanPlaces, TheLastPlaceWithoutASlowTierIsPriced) {
  std::vector<PlaceNeeds> places = falling(4'000);
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::uint64_t bytes = places[i].bytes[2];
    places[i].bytes = {0, std::min<std::uint64_t>(bytes, 1'001),
                       bytes - std::min<std::uint64_t>(bytes, 1'001), 0};
  }
  const Chosen priced = places_to_price(places);
  EXPECT_LE(priced.size(), kPlacesPriced);
  EXPECT_TRUE(std::ranges::binary_search(priced, 2'998u));
}

// Where no more are left than are priced, the price is the least of all places.
TEST(RestorePlanPlaces, NoPriceOfOthersIsLess) {
  Random random(9);
  for (int round = 0; round < 500; ++round) {
    std::vector<PlaceNeeds> places(1 + random.below(60));
    std::vector<RestoreProblem> problems;
    const std::uint64_t most = std::uint64_t{1} << random.below(20);
    for (std::size_t i = 0; i < places.size(); ++i) {
      RestoreProblem problem{.layers = 6};
      problem.links[2] = {.booked = 500, .latency = 20};
      for (std::size_t tier = 1; tier < kTiers; ++tier) {
        if (i + 1 == places.size() || random.below(2) == 0) continue;
        const std::uint64_t bytes = places[i].bytes[tier] = random.below(most + 1);
        if (random.below(4) == 0) places[i].awaited |= static_cast<std::uint8_t>(1u << tier);
        problem.links[tier].awaited = (places[i].awaited >> tier & 1) != 0;
        if (bytes == 0) continue;
        problem.blocks.push_back({.from = static_cast<Tier>(tier),
                                  .load = static_cast<Nanos>(bytes * tier),
                                  .charge = static_cast<Nanos>(bytes / 8)});
      }
      const auto rows = static_cast<Nanos>(10 + i), passes = (rows + 19) / 20;
      problem.computed_anyway = rows * 1'000;
      problem.first_reading = problem.computed_anyway / passes;
      problems.push_back(problem);
    }
    const RestoreTimes best = choose_place(problems, RestoreRule::kAuto).times;
    std::vector<RestoreProblem> priced;
    for (const std::size_t i : places_to_price(places)) priced.push_back(problems[i]);
    ASSERT_EQ(choose_place(priced, RestoreRule::kAuto).times.price, best.price) << round;
  }
}

}  // namespace
}  // namespace loci
