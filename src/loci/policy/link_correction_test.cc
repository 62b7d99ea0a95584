// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/link_correction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "loci/base/random.h"
#include "loci/policy/cost_model.h"

namespace loci {
namespace {

constexpr Nanos kLatency = kNanosPerMilli / 5;

LoadTime load_of(Nanos moving) { return {kLatency, moving}; }

TEST(LinkCorrection, ChangesNothingBeforeItHasSeenSomething) {
  LinkCorrection correction;
  correction.relax();
  EXPECT_EQ(correction.apply(load_of(12'345)), kLatency + 12'345);
  EXPECT_EQ(correction.apply({kCostMax, kCostMax}), kCostMax) << "cut off, not overflowed";
  correction.observe({0, 0}, 1'000);
  EXPECT_EQ(correction.apply(load_of(12'345)), kLatency + 12'345) << "nothing was predicted";
}

TEST(LinkCorrection, IsAsItsExampleSays) {
  LinkCorrection correction;
  correction.observe(load_of(kNanosPerMilli), 9 * kNanosPerMilli);
  const Nanos second = correction.apply(load_of(30 * kNanosPerMilli));
  EXPECT_GE(second, 38 * kNanosPerMilli);
  EXPECT_LE(second, 42 * kNanosPerMilli) << "a short load says little about the rate";
  correction.observe(load_of(30 * kNanosPerMilli), 38 * kNanosPerMilli);
  EXPECT_EQ(correction.apply(load_of(30 * kNanosPerMilli)), 38 * kNanosPerMilli);
  EXPECT_EQ(correction.apply(load_of(kNanosPerMilli)), 9 * kNanosPerMilli);
  EXPECT_EQ(correction.apply(load_of(100 * kNanosPerMilli)), 108 * kNanosPerMilli);
}

TEST(LinkCorrection, ALongLoadSaysThatTheLinkIsSlow) {
  LinkCorrection correction;
  correction.observe(load_of(100 * kNanosPerMilli), 400 * kNanosPerMilli);
  EXPECT_EQ(correction.apply(load_of(100 * kNanosPerMilli)) / kNanosPerMilli, 399);
  EXPECT_GE(correction.apply(load_of(200 * kNanosPerMilli)), 790 * kNanosPerMilli);
}

TEST(LinkCorrection, LearnsThatALinkIsFasterThanItsCosts) {
  LinkCorrection correction;
  correction.observe(load_of(10 * kNanosPerMilli), 5 * kNanosPerMilli);
  EXPECT_EQ(correction.apply(load_of(30 * kNanosPerMilli)) / kNanosPerMilli, 14);
  correction.observe(load_of(40 * kNanosPerMilli), 11 * kNanosPerMilli);
  EXPECT_NEAR(static_cast<double>(correction.apply(load_of(70 * kNanosPerMilli))), 17e6, 1e5)
      << "3 ms and a fifth";
}

// Loads of 1 to 40 ms, each a tenth more or less, and every tenth disturbed.
TEST(LinkCorrection, FindsOverheadAndRatioOfEveryLink) {
  Random random(7);
  for (const Nanos overhead : {Nanos{0}, kNanosPerMilli, 8 * kNanosPerMilli, 30 * kNanosPerMilli}) {
    for (const Nanos tenths : {3, 10, 25, 80}) {
      LinkCorrection correction;
      std::vector<Nanos> errors;
      for (int i = 0; i < 200; ++i) {
        const Nanos moving = (i % 2 == 0 ? 1 : 8 + static_cast<Nanos>(random.below(33))) * kNanosPerMilli;
        const Nanos alone =
            (overhead + moving * tenths / 10) * static_cast<Nanos>(90 + random.below(21)) / 100;
        const Nanos took = random.below(10) == 0 ? alone * 4 : alone;
        errors.push_back(std::abs(correction.apply(load_of(moving)) - took) * 100 / took);
        correction.observe(load_of(moving), took);
      }
      errors.erase(errors.begin(), errors.begin() + 9);
      std::sort(errors.begin(), errors.end());
      EXPECT_LE(errors[errors.size() / 2], 15) << overhead << " ns and " << tenths << " tenths";
    }
  }
}

TEST(LinkCorrection, OneDisturbedLoadOfManyChangesLittle) {
  LinkCorrection correction;
  for (int i = 0; i < 9; ++i)
    correction.observe(load_of((1 + i) * kNanosPerMilli), kLatency + (1 + i) * kNanosPerMilli);
  const Nanos before = correction.apply(load_of(20 * kNanosPerMilli));
  correction.observe(load_of(kNanosPerMilli), 500 * kNanosPerMilli);
  EXPECT_LE(correction.apply(load_of(20 * kNanosPerMilli)), before * 11 / 10);
}

TEST(LinkCorrection, RelaxesSlownessAlone) {
  LinkCorrection correction;
  correction.observe(load_of(100 * kNanosPerMilli), 600 * kNanosPerMilli);
  correction.relax();
  EXPECT_NEAR(static_cast<double>(correction.apply(load_of(100 * kNanosPerMilli))), 300e6, 1e6);
  for (int i = 0; i < 3; ++i) correction.relax();
  EXPECT_NEAR(static_cast<double>(correction.apply(load_of(100 * kNanosPerMilli))), 100.2e6, 1e5);
  LinkCorrection fast;
  fast.observe(load_of(100 * kNanosPerMilli), 25 * kNanosPerMilli);
  fast.relax();
  EXPECT_NEAR(static_cast<double>(fast.apply(load_of(100 * kNanosPerMilli))), 25e6, 1e5);
}

// Whatever was seen, more bytes never take less time.
TEST(LinkCorrection, NeverFallsWhereBytesGrow) {
  Random random(3);
  for (int round = 0; round < 200; ++round) {
    LinkCorrection correction;
    for (std::uint64_t i = random.below(12); i > 0; --i) {
      const auto any = [&] { return static_cast<Nanos>(random.below(std::uint64_t{1} << random.below(50))); };
      correction.observe({kLatency, any()}, any());
    }
    Nanos last = 0;
    for (Nanos moving = 1; moving < kCostMax / 4; moving *= 3) {
      const Nanos time = correction.apply(load_of(moving));
      EXPECT_GE(time, last);
      EXPECT_LE(time, kCostMax);
      last = time;
    }
  }
}

}  // namespace
}  // namespace loci
