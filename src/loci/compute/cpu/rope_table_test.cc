// SPDX-License-Identifier: Apache-2.0
// The table of rotations gives the same bits however it has grown, and grows by little at a time.
#include "loci/compute/cpu/rope_table.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace loci::cpu {
namespace {

RopeSpec rope_of(RopeLayout layout) {
  RopeSpec spec{.layout = layout, .dimensions = 12, .inverse_frequency = {}, .magnitude = 1.25};
  for (int i = 0; i < 6; ++i) spec.inverse_frequency.push_back(std::pow(10000.0, -i / 6.0));
  return spec;
}

TEST(RopeTableTest, ItsBitsDoNotDependOnHowItGrew) {
  for (const RopeLayout layout : {RopeLayout::kAdjacent, RopeLayout::kHalves}) {
    constexpr std::uint32_t kEnd = 5 * RopeTable::kChunkPositions / 2;
    RopeTable whole(rope_of(layout)), grown(rope_of(layout));
    whole.extend(kEnd);
    for (std::uint32_t position = 0; position < kEnd; ++position) {
      grown.extend(position + 1);
      const RopeParams a = whole.at(position), b = grown.at(position);
      ASSERT_EQ(a.pairs, 6u);
      ASSERT_EQ(std::memcmp(a.cosine, b.cosine, 12 * sizeof(float)), 0) << position;
      ASSERT_EQ(std::memcmp(a.sine, b.sine, 12 * sizeof(float)), 0) << position;
      const std::uint32_t second = layout == RopeLayout::kAdjacent ? 5 : 8;  // of pair 2
      const double angle = position * rope_of(layout).inverse_frequency[2];
      ASSERT_EQ(a.cosine[second], static_cast<float>(1.25 * std::cos(angle)));
      ASSERT_EQ(a.sine[second], static_cast<float>(1.25 * std::sin(angle)));
    }
  }
}

// A pass computes it while decodes wait.
TEST(RopeTableTest, OneMorePositionIsAChunkAtMost) {
  RopeTable table(rope_of(RopeLayout::kAdjacent));
  for (std::uint32_t positions = 1; positions <= 20'000; ++positions) {
    const std::uint32_t before = table.positions();
    const float* first = before == 0 ? nullptr : table.at(0).cosine;
    table.extend(positions);
    ASSERT_GE(table.positions(), positions);
    ASSERT_LE(table.positions() - before, RopeTable::kChunkPositions) << positions;
    if (first == nullptr) continue;
    ASSERT_EQ(table.at(0).cosine, first) << "nothing is copied";
  }
}

}  // namespace
}  // namespace loci::cpu
