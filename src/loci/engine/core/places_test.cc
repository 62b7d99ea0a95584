// SPDX-License-Identifier: Apache-2.0
// Compares the rule of places with its definition, which looks at every token, for all contents of four
// blocks. Then asks for the places of requests whose state lies in an index with one group, which has a
// window.
#include "loci/engine/core/places.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "loci/engine/testing/transfers_testing.h"

namespace loci {
namespace {

constexpr std::uint32_t kWorldBlocks = 4;
constexpr std::uint32_t kWindowSlots = 4;

class PlacesTest : public TransfersFixture {
 protected:
  PlacesTest() : TransfersFixture({.window = 40, .block_count = kWindowSlots, .host_blocks = 8}, 4) {}

  static CoreConfig of_three_groups(CoreConfig config) {
    config.groups = {{.window = 0}, {.window = 64}, {.window = 40}};
    return config;
  }
  static CoreProbe found(BlockId node) {
    CoreProbe probe;
    probe.node = node;
    return probe;
  }
  // A block whose state is in host memory alone.
  BlockPin in_host_memory(std::uint32_t first) {
    BlockPin pin = computed(first);
    transfers_.wish_save(pin.block(), Tier::kDevice, SaveScope::kAllGroups);
    transfers_.save({});
    for (const Move& move : transfers_.take_begun())
      transfers_.end({move.id, MoveResult::kDone, 0}, std::nullopt);
    index_.let_go(pin, 0, Release::kWanted);
    index_.advance(++now_);
    for (std::uint32_t i = 0; i < kWindowSlots; ++i) computed(100 * first + 100 * i);  // who needs the room
    EXPECT_FALSE(index_.block(pin.block()).parts[0]);
    return pin;
  }

  Nanos now_ = 0;
  CoreConfig several_ = of_three_groups(config_);  // more than the index has, which the rule does not ask
  Places rule_{several_, index_, transfers_};
  Places places_{config_, index_, transfers_};
};

// `there`: by block, the groups that have it. Every token that one at `position` sees is in such a block.
bool sees_only_what_is_there(const CoreConfig& config, const std::vector<GroupSet>& there,
                             std::uint32_t position) {
  for (std::uint32_t group = 0; group < config.groups.size(); ++group) {
    const std::uint32_t window = config.groups[group].window;
    for (std::uint32_t token = 0; token < there.size() * kBlockTokens; ++token) {
      const bool sees = window == 0 || token + window > position;
      if (sees && !has_group(there[token / kBlockTokens], group)) return false;
    }
  }
  return true;
}

TEST_F(PlacesTest, APlaceIsWhereEveryGroupHasWhatIsSeen) {
  for (std::uint32_t world = 0; world < 1u << 3 * kWorldBlocks; ++world) {
    PlaceWalk walk;
    std::vector<GroupSet> there;
    bool is_over = false;
    for (std::uint32_t block = 0; block <= kWorldBlocks; ++block) {
      ASSERT_EQ(walk.blocks(), block);
      ASSERT_EQ(rule_.is_over(walk), is_over) << world << " " << block;
      for (const std::uint32_t tokens : {0u, 1u, 8u, 9u, 31u}) {
        const std::uint32_t position = block * kBlockTokens + tokens;
        ASSERT_EQ(rule_.is_place(walk, tokens), sees_only_what_is_there(several_, there, position))
            << world << " " << position;
      }
      there.push_back(static_cast<GroupSet>(world >> 3 * block & 7u));
      is_over = is_over || !has_group(there.back(), 0);
      walk.step(there.back());
    }
  }
}

TEST_F(PlacesTest, AStepOverSeveralBlocksIsThatOverEach) {
  PlaceWalk one, several;
  for (const GroupSet there : {GroupSet{7}, GroupSet{5}, GroupSet{7}}) {
    for (std::uint32_t i = 0; i < 3; ++i) one.step(there);
    several.step(there, 3);
    EXPECT_EQ(one.blocks(), several.blocks());
    for (std::uint32_t group = 0; group < 3; ++group) EXPECT_EQ(one.whole(group), several.whole(group));
  }
  EXPECT_EQ(several.whole(0), 9u);
  EXPECT_EQ(several.whole(1), 3u) << "right before, behind the hole";
}

TEST_F(PlacesTest, GroupsSeeTheBlocksOfTheirWindows) {
  for (std::uint32_t position = 0; position < kWorldBlocks * kBlockTokens; ++position) {
    bool all = true;
    for (std::uint32_t group = 0; group < several_.groups.size(); ++group) {
      const std::uint32_t first = rule_.first_seen(group, position);
      for (std::uint32_t block = 0; block < position / kBlockTokens; ++block)
        EXPECT_EQ(has_group(rule_.groups_seen(position, block), group), block >= first);
      all = all && first_visible(several_.groups[group].window, position) == 0;
    }
    EXPECT_EQ(rule_.sees_all(position), all) << position;
  }
  EXPECT_EQ(rule_.first_seen(2, 96), 1u) << "57 to 95";
  EXPECT_EQ(rule_.first_seen(0, 96), 0u);
  EXPECT_EQ(rule_.seeing_all(), 1u);
  EXPECT_TRUE(rule_.any_windows());
}

TEST_F(PlacesTest, AWindowIsAtLeastABlockAndLessThanTheContext) {
  CoreConfig config = several_;
  config.context_tokens = 64;
  config.groups[2].window = 5;
  config = limited_windows(config);
  EXPECT_EQ(config.groups[1].window, 0u) << "nothing is ever behind it";
  EXPECT_EQ(config.groups[2].window, kBlockTokens);
  config.groups.pop_back();
  EXPECT_FALSE(Places(config, index_, transfers_).any_windows());
}

TEST_F(PlacesTest, ARequestGoesOnFromTheLastOne) {
  const BlockPin first = computed(100), second = computed(200);
  CoreProbes probes;
  probes.blocks = {found(kNoBlock), found(first.block()), found(second.block()), found(kNoBlock)};
  EXPECT_EQ(places_.all(probes, Tier::kDevice, nullptr), (std::vector<std::uint32_t>{0, 96}));
  EXPECT_TRUE(places_.can_start(probes, 3, 0, Tier::kDevice));
  EXPECT_FALSE(places_.can_start(probes, 2, 0, Tier::kDevice)) << "it sees 25 to 63, and block 0 is missing";
  places_.choose_start(probes, Tier::kDevice, nullptr, UINT32_MAX);
  EXPECT_EQ(probes.start, 96u);
  EXPECT_EQ(probes.blocks[0].groups, 0u) << "a window has moved past it";
  EXPECT_EQ(probes.blocks[1].groups, 1u);
  EXPECT_FALSE(probes.blocks[1].load);
  places_.choose_start(probes, Tier::kDevice, nullptr, 2);
  EXPECT_EQ(probes.start, 0u);
  EXPECT_EQ(probes.blocks[1].groups, 0u);
}

TEST_F(PlacesTest, WhatAPlaceSeesAndTheDeviceLacksIsLoaded) {
  std::vector<BlockPin> pins;
  pins.push_back(in_host_memory(100));
  pins.push_back(in_host_memory(200));
  pins.push_back(computed(300));
  CoreProbes probes;
  for (const BlockPin& pin : pins) probes.blocks.push_back(found(pin.block()));
  probes.blocks.push_back(found(kNoBlock));
  const auto bytes = [](const PlaceLoads& loads, std::uint32_t place) {
    return loads.at(place).bytes[index_of(LoadLink::kHost)];
  };
  const std::uint64_t part = config_.groups.front().block_bytes;
  const PlaceLoads loads(places_, transfers_, probes);
  EXPECT_EQ(bytes(loads, 0), 0u);
  EXPECT_EQ(bytes(loads, 64), 2 * part);
  EXPECT_EQ(bytes(loads, 96), part) << "of block 1; 0 is behind the window, and the device has 2";
  EXPECT_EQ(bytes(PlaceLoads(), 96), 0u);

  places_.choose_start(probes, Tier::kHost, nullptr, UINT32_MAX);
  ASSERT_EQ(probes.start, 96u);
  EXPECT_FALSE(probes.blocks[0].load);
  EXPECT_TRUE(probes.blocks[1].load);
  ASSERT_TRUE(index_.place(pins[1], 0));
  transfers_.load({&probes.blocks[1], 1}, {&pins[1], 1});
  const PlaceLoads later(places_, transfers_, probes);
  EXPECT_EQ(bytes(later, 96), 0u);
  EXPECT_EQ(later.at(96).awaited[index_of(LoadLink::kHost)], 1u) << "it is on its way";
}

}  // namespace
}  // namespace loci
