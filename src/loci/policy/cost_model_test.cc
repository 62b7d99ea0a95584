// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/cost_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/backend.h"

namespace loci {
namespace {

CostCurves some_curves() {
  CostCurves curves;
  curves.token = 1'000'000;
  curves.attention = {500, 700, 1'100, 2'000, 3'900, 7'800, 15'000, 31'000};  // 1 to 128 tokens
  curves.pass = 9'000'000;
  curves.host_load = {10'000, 4'000'000'000};
  curves.host_save = {20'000, 2'000'000'000};
  curves.disk_read = {300'000, 1'000'000'000};
  curves.disk_write = {400'000, 500'000'000};
  return curves;
}

TEST(CostModel, IsExactAtPowersOfTwoAndStraightBetween) {
  const CostCurves curves = some_curves();
  const CostModel model(curves);
  EXPECT_EQ(model.curves(), curves);
  EXPECT_EQ(model.attention(0), 0);
  for (std::size_t i = 0; i < curves.attention.size(); ++i) {
    EXPECT_EQ(model.attention(1u << i), curves.attention[i]) << i;
  }
  EXPECT_EQ(model.attention(3), (700 + 1'100) / 2);
  EXPECT_EQ(model.attention(96), (15'000 + 31'000) / 2);
  EXPECT_EQ(model.attention(65), 15'000 + (31'000 - 15'000) / 64);
  // Beyond the last one in proportion.
  EXPECT_EQ(model.attention(256), 62'000);
  EXPECT_EQ(model.attention(192), 46'500);
}

TEST(CostModel, OneMeasurementIsInProportionEverywhere) {
  CostCurves curves = some_curves();
  curves.attention = {300};
  const CostModel model(curves);
  for (const std::uint32_t before : {1u, 2u, 3u, 77u, 100'000u}) {
    EXPECT_EQ(model.attention(before), Nanos{300} * before);
  }
}

TEST(CostModel, ComputeIsTheSumOverItsTokens) {
  const CostModel model(some_curves());
  EXPECT_EQ(model.compute(7, 0), 0);
  EXPECT_EQ(model.compute(0, 1), 1'000'000);
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    const auto begin = static_cast<std::uint32_t>(random.below(1000));
    const auto count = static_cast<std::uint32_t>(random.below(1000));
    Nanos sum = 0;
    for (std::uint32_t token = begin; token < begin + count; ++token)
      sum += 1'000'000 + model.attention(token);
    EXPECT_NEAR(static_cast<double>(model.compute(begin, count)), static_cast<double>(sum), 1.0 * count + 16)
        << begin << " " << count;
    const auto part = static_cast<std::uint32_t>(random.below(count + 1));
    EXPECT_NEAR(static_cast<double>(model.compute(begin, part) + model.compute(begin + part, count - part)),
                static_cast<double>(model.compute(begin, count)), 1.0 * count + 16);
  }
}

// Pensieve figure 4: of chunks of equal size the trailing ones cost more.
TEST(CostModel, TrailingBlocksCostMore) {
  const CostModel model(some_curves());
  Nanos before = 0;
  for (std::uint32_t begin = 0; begin < 20'000; begin += kBlockTokens) {
    const Nanos cost = model.compute(begin, kBlockTokens);
    EXPECT_GT(cost, before) << begin;
    before = cost;
  }
}

TEST(CostModel, LinksHaveALatencyAndARate) {
  const CostModel model(some_curves());
  EXPECT_EQ(model.load(Tier::kDevice, 1 << 20), 0);
  EXPECT_EQ(model.save(Tier::kDevice, 1 << 20), 0);
  EXPECT_EQ(model.load(Tier::kHost, 4'000'000), 10'000 + 1'000'000);
  EXPECT_EQ(model.save(Tier::kHost, 4'000'000), 20'000 + 2'000'000);
  EXPECT_EQ(model.load(Tier::kDisk, 4'000'000), 300'000 + 4'000'000);
  EXPECT_EQ(model.save(Tier::kDisk, 4'000'000), 400'000 + 8'000'000);
  EXPECT_EQ(model.load(Tier::kDisk, 0), 300'000);
}

TEST(CostModel, APassReadsTheWeightsOrComputesItsRows) {
  const CostModel model(some_curves());
  EXPECT_EQ(model.pass(0, 0), 0);
  EXPECT_EQ(model.pass(1, 0), 9'000'000);
  EXPECT_EQ(model.pass(1, 128), 9'031'000);
  EXPECT_EQ(model.pass(4, 4 * 64), 9'000'000 + 4 * 15'000);
  EXPECT_EQ(model.pass(100, 6'400), 100'000'000 + 100 * 15'000);
}

TEST(CostModel, ALinkThatMovesNothingIsMended) {
  CostCurves curves = some_curves();
  curves.shared_read = {-5, 0};
  const CostModel model(curves);
  EXPECT_EQ(model.curves().shared_read, (LinkCost{0, 1}));
  EXPECT_EQ(model.load(Tier::kShared, 3), 3 * kNanosPerSecond);
}

// Whatever the curves and the questions: costs are in range and grow with what is asked for.
TEST(CostModel, NeitherOverflowsNorFalls) {
  Random random(7);
  const auto any = [&](bool maybe_negative) {
    const Nanos value = static_cast<Nanos>(random.next() >> (1 + random.below(63)));
    return maybe_negative && random.below(4) == 0 ? -value : value;
  };
  const auto any32 = [&] { return static_cast<std::uint32_t>(random.next() >> (32 + random.below(32))); };
  for (int i = 0; i < 3000; ++i) {
    CostCurves curves;
    curves.token = any(true);
    curves.attention.resize(random.below(40));
    for (Nanos& cost : curves.attention) cost = any(true);
    curves.pass = any(true);
    for (LinkCost* link :
         {&curves.host_load, &curves.host_save, &curves.disk_read, &curves.disk_write, &curves.shared_read}) {
      *link = {any(true), random.next() >> random.below(64)};
      if (random.below(10) == 0) link->bytes_per_second = 0;
    }
    const CostModel model(curves);
    const auto in_range = [](Nanos cost) { return cost >= 0 && cost <= kCostMax; };
    const std::uint32_t a = any32(), b = any32();
    const std::uint32_t low = std::min(a, b), high = std::max(a, b), count = any32();
    EXPECT_TRUE(in_range(model.attention(low)));
    EXPECT_LE(model.attention(low), model.attention(high));
    EXPECT_TRUE(in_range(model.compute(low, count)));
    EXPECT_LE(model.compute(count, low), model.compute(count, high));
    const std::uint32_t near = low >> 1, far = high >> 1, some = std::min(count, 1u << 20);
    // (rounding: less than one for each token)
    EXPECT_LE(model.compute(near, some), model.compute(far, some) + some + 16)
        << near << " " << far << " " << some;
    const std::uint64_t context = random.next() >> random.below(64);
    EXPECT_TRUE(in_range(model.pass(low, context)));
    EXPECT_LE(model.pass(low, context / 2), model.pass(low, context));
    const std::uint64_t bytes = random.next() >> random.below(64);
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk, Tier::kShared}) {
      EXPECT_TRUE(in_range(model.load(tier, bytes)));
      EXPECT_TRUE(in_range(model.save(tier, bytes)));
      EXPECT_LE(model.load(tier, bytes / 3), model.load(tier, bytes));
      EXPECT_LE(model.save(tier, bytes / 3), model.save(tier, bytes));
    }
  }
}

}  // namespace
}  // namespace loci
