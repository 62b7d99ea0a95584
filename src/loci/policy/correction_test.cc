// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/correction.h"

#include <gtest/gtest.h>

#include "loci/policy/cost_model.h"

namespace loci {
namespace {

TEST(Correction, ChangesNothingBeforeItHasSeenSomething) {
  const Correction correction;
  EXPECT_EQ(correction.apply(12'345), 12'345);
  EXPECT_EQ(correction.apply(kCostMax), kCostMax);
  EXPECT_EQ(correction.apply(0), 0);
}

TEST(Correction, FollowsTheMedianOfTheLast) {
  Correction correction;
  for (int i = 0; i < 9; ++i) correction.observe(1'000, 1'000);
  correction.observe(1'000, 50'000);  // disturbed
  EXPECT_EQ(correction.apply(1'000), 1'000);
  for (int i = 0; i < 3; ++i) correction.observe(1'000, 4'000);
  EXPECT_EQ(correction.apply(1'000), 1'000) << "four of nine";
  correction.observe(1'000, 4'000);
  EXPECT_EQ(correction.apply(1'000), 4'000) << "five of nine";
  for (int i = 0; i < 5; ++i) correction.observe(1'000, 250);
  EXPECT_EQ(correction.apply(1'000), 250);
}

TEST(Correction, ThreeInFourAreWithinTheHighOne) {
  Correction correction;
  EXPECT_EQ(correction.apply_high(1'000), 1'000);
  for (int i = 1; i <= 9; ++i) correction.observe(1'000, 1'000 * (10 - i));
  EXPECT_EQ(correction.apply(1'000), 5'000);
  EXPECT_EQ(correction.apply_high(1'000), 7'000);
  EXPECT_EQ(correction.apply_high(kCostMax), kCostMax);
}

TEST(Correction, LearnsFromTheFirst) {
  Correction correction;
  correction.observe(768, 256);
  EXPECT_EQ(correction.apply(300), 99) << "a third, rounded down";
}

TEST(Correction, NothingPredictedTeachesNothing) {
  Correction correction;
  correction.observe(0, 1'000);
  EXPECT_EQ(correction.ratio(), Correction::kOne);
}

TEST(Correction, KeepsWithinItsBounds) {
  Correction correction;
  correction.observe(1, kCostMax);
  EXPECT_EQ(correction.ratio(), Correction::kRatioMax);
  EXPECT_EQ(correction.apply(kCostMax), kCostMax) << "cut off, not overflowed";
  Correction fast;
  fast.observe(kCostMax, 0);
  EXPECT_EQ(fast.ratio(), Correction::kRatioMin);
}

}  // namespace
}  // namespace loci
