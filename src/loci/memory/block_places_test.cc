// SPDX-License-Identifier: Apache-2.0
// That who follows what the index tells of places has what the index has.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/memory/block_index_testing.h"

namespace loci {
namespace {

constexpr std::uint32_t kLetters = 3;

class BlockPlacesTest : public testing::Test {
 protected:
  static IndexPools three_tiers() {
    IndexPools all = pools({6});
    all.host.push_back({4, std::make_unique<OldestFirst>(), nullptr});
    all.disk.push_back({9, std::make_unique<OldestFirst>(), nullptr});
    return all;
  }
  // What is held by who applies all that is told.
  void follow(BlockIndex& index, std::map<ChainKey, Tier>& held) {
    for (const BlockPlace& place : index.take_moved()) {
      if (place.tier) {
        held[place.key] = *place.tier;
      } else {
        ASSERT_EQ(held.erase(place.key), 1u) << "what was nowhere does not go";
      }
    }
  }
  // A full look at the index.
  std::map<ChainKey, Tier> look(const BlockIndex& index) {
    std::map<ChainKey, Tier> out;
    for (std::uint32_t id = 0; id < index.id_bound(); ++id) {
      if (const std::optional<Tier> tier = index.tier_of(BlockId(id)))
        out.emplace(index.block(BlockId(id)).key, *tier);
    }
    return out;
  }

  ChainKeyHasher hasher_{{}, {}};
};

// The example of noted_blocks.h.
TEST(NotedBlocks, TellsEachReaderOnce) {
  using Reader = NotedBlocks::Reader;
  const ChainKey gone = ChainKeyHasher({}, {}).root("gone");
  NotedBlocks noted;
  noted.watch(Reader::kNearness);
  noted.note(BlockId(3));
  noted.watch(Reader::kPlaces);
  EXPECT_EQ(noted.take(Reader::kNearness).blocks, std::vector<BlockId>{BlockId(3)});
  EXPECT_TRUE(noted.take(Reader::kPlaces).blocks.empty()) << "it did not watch yet";
  noted.note(BlockId(5));
  noted.note(BlockId(7));
  for (const Reader reader : {Reader::kNearness, Reader::kPlaces}) noted.note_gone(reader, gone);
  noted.note(BlockId(7));
  const std::vector<BlockId> both = {BlockId(5), BlockId(7)};
  const NotedBlocks::Noted first = noted.take(Reader::kNearness);
  EXPECT_EQ(first.blocks, both);
  EXPECT_EQ(first.gone, std::vector<ChainKey>{gone});
  noted.note(BlockId(5));
  noted.check_invariants();
  const NotedBlocks::Noted second = noted.take(Reader::kPlaces);
  EXPECT_EQ(second.blocks, both);
  EXPECT_EQ(second.gone, std::vector<ChainKey>{gone});
  EXPECT_EQ(noted.take(Reader::kNearness).blocks, std::vector<BlockId>{BlockId(5)});
  EXPECT_TRUE(noted.take(Reader::kPlaces).blocks.empty());
  noted.check_invariants();
}

TEST_F(BlockPlacesTest, TellsABlocksWayThroughTheTiers) {
  BlockIndex index(three_tiers());
  index.watch_places();
  const Tokens tokens = tokens_of({1}, kBlockTokens);
  const ChainKey key = hasher_.child(hasher_.root("g"), tokens);
  std::optional<BlockPin> pin;
  {
    const BlockPin root = index.open_root(hasher_.root("g"));
    pin = index.open_full(root.block(), key, tokens);
    ASSERT_TRUE(index.place(*pin, 0));
    EXPECT_TRUE(index.take_moved().empty()) << "nothing is there yet";
    const auto token = index.claim(pin->block());
    index.fill(*token, 7);
    EXPECT_TRUE(index.take_moved().empty()) << "nor is all of it";
    index.fill(*token, kBlockTokens);
  }
  EXPECT_EQ(index.take_moved(), (std::vector<BlockPlace>{{key, Tier::kDevice}}));
  ASSERT_TRUE(index.reserve_copy(pin->block(), Tier::kDisk, 0).has_value());
  index.finish_copy(pin->block(), Tier::kDisk, 0, true);
  EXPECT_TRUE(index.take_moved().empty()) << "it is still on the device";
  const BlockId id = pin->block();
  pin.reset();
  for (int i = 0; i < 6; ++i) {  // others take its slot
    const BlockPin other_root = index.open_root(hasher_.root("other"));
    BlockPin other = index.open_tail(other_root.block());
    ASSERT_TRUE(index.place(other, 0));
    const auto token = index.claim(other.block());
    index.append(*token, tokens_of({static_cast<std::uint32_t>(50 + i)}));
  }
  EXPECT_EQ(index.take_moved(), (std::vector<BlockPlace>{{key, Tier::kDisk}}));
  index.forget(id);
  EXPECT_EQ(index.take_moved(), (std::vector<BlockPlace>{{key, std::nullopt}}));
}

// Blocks of few letters come, are copied, read, evicted and forgotten at random.
TEST_F(BlockPlacesTest, WhoFollowsHasWhatTheIndexHas) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    Random random(seed);
    BlockIndex index(three_tiers());
    index.watch_places();
    index.watch_changed();
    std::map<ChainKey, Tier> held, near;  // by two readers, each at its own times
    std::vector<BlockPin> pins;
    for (Nanos now = 1; now < 300; ++now) {
      index.advance(now);
      // A path of blocks, of which the last one may be half filled.
      BlockPin parent = index.open_root(hasher_.root("g"));
      ChainKey key = hasher_.root("g");
      for (std::uint64_t depth = 1 + random.below(3); depth > 0; --depth) {
        const Tokens tokens = tokens_of({static_cast<std::uint32_t>(random.below(kLetters))}, kBlockTokens);
        key = hasher_.child(key, tokens);
        BlockPin pin = index.open_full(parent.block(), key, tokens);
        const Block& block = index.block(pin.block());
        const bool has_part = block.parts[0].has_value();
        if (has_part) index.hold(pin, 0);
        if (!has_part && !index.place(pin, 0)) break;
        if (auto token = index.claim(pin.block()))
          index.fill(*token, random.below(4) == 0 ? 9 : kBlockTokens);
        for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
          if (random.below(3) != 0 || block.copy(tier, 0) != nullptr) continue;
          if (block.filled_in(0) < kBlockTokens || !index.reserve_copy(pin.block(), tier, 0)) continue;
          index.finish_copy(pin.block(), tier, 0, random.below(4) != 0);
        }
        if (random.below(6) == 0 && block.copy(Tier::kDisk, 0) != nullptr)
          index.drop_copy(pin.block(), Tier::kDisk, 0, MissReason::kDamaged);
        parent = std::move(pin);
      }
      if (random.below(4) == 0) pins.push_back(std::move(parent));
      if (pins.size() > 1 || random.below(4) == 0) pins.clear();
      if (random.below(5) == 0)
        index.forget(BlockId(static_cast<std::uint32_t>(random.below(index.id_bound()))));
      index.check_invariants();
      if (random.below(2) == 0) {
        for (const ChainKey& changed : index.take_changed()) {
          near.erase(changed);
          const BlockId id = index.find(changed);
          const std::optional<Tier> tier = id == kNoBlock ? std::nullopt : index.tier_of(id);
          if (tier) near.emplace(changed, *tier);
        }
        ASSERT_EQ(near, look(index)) << "seed " << seed << ", time " << now;
      }
      if (random.below(3) == 0) continue;  // several changes at once
      follow(index, held);
      ASSERT_EQ(held, look(index)) << "seed " << seed << ", time " << now;
    }
  }
}

}  // namespace
}  // namespace loci
