// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "loci/memory/block_index_testing.h"

namespace loci {
namespace {

// Room for four blocks on the device, two in host memory, four on the disk.
class BlockTiersTest : public BlockIndexTest {
 protected:
  BlockTiersTest() : BlockIndexTest(tiers()) {}
  static IndexPools tiers() {
    IndexPools all = pools({4});
    all.host.push_back({2, std::make_unique<OldestFirst>(), nullptr});
    all.disk.push_back({4, std::make_unique<OldestFirst>(), nullptr});
    return all;
  }
  void copy_to(BlockId id, Tier tier) {
    const BlockPin pin = index_.pin(id);
    ASSERT_TRUE(index_.reserve_copy(id, tier, 0).has_value());
    index_.finish_copy(id, tier, 0, true);
  }
  const EvictionFacts& facts(BlockId id, Tier tier) { return index_.block(id).copy(tier, 0)->facts; }
};

TEST_F(BlockTiersTest, ACopyIsAsWantedAndAsOldAsItsBlock) {
  BlockId id;
  {
    const BlockPin r = root();
    const BlockPin pin = full(r.block(), tokens_of({1}, kBlockTokens));
    id = pin.block();
    index_.advance(10);
  }
  index_.set_wanted(id, 3);
  index_.advance(50);
  copy_to(id, Tier::kHost);
  EXPECT_EQ(facts(id, Tier::kHost).wanted, 3u);
  EXPECT_EQ(facts(id, Tier::kHost).last_used, 10);
  index_.advance(70);
  copy_to(id, Tier::kDisk);
  EXPECT_EQ(facts(id, Tier::kDisk).last_used, 10);
  index_.set_wanted(id, 1);
  EXPECT_EQ(facts(id, Tier::kDisk).wanted, 1u);
  index_.check_invariants();
}

TEST_F(BlockTiersTest, TheDiskForgetsWhatASaveThatFailedLeft) {
  const BlockPin r = root();
  const BlockPin pin = full(r.block(), tokens_of({1}, kBlockTokens));
  ASSERT_TRUE(index_.reserve_copy(pin.block(), Tier::kHost, 0).has_value());
  index_.finish_copy(pin.block(), Tier::kHost, 0, false);
  EXPECT_TRUE(index_.take_record_changes().empty());
  const std::optional<SlotId> slot = index_.reserve_copy(pin.block(), Tier::kDisk, 0);
  ASSERT_TRUE(slot.has_value());
  index_.finish_copy(pin.block(), Tier::kDisk, 0, false);
  EXPECT_EQ(index_.take_record_changes(),
            (std::vector<RecordChange>{{.kind = RecordChange::Kind::kForget, .group = 0, .slot = *slot}}));
  EXPECT_EQ(index_.block(pin.block()).copy(Tier::kDisk, 0), nullptr);
  index_.check_invariants();
}

// Else one bad place of a disk would end all saving: the slot that was freed last is the next one.
TEST_F(BlockTiersTest, ASaveThatFailedIsNotFollowedByAnotherInItsSlot) {
  const BlockPin r = root();
  const BlockPin pin = full(r.block(), tokens_of({1}, kBlockTokens));
  const std::optional<SlotId> bad = index_.reserve_copy(pin.block(), Tier::kDisk, 0);
  index_.doubt_slot(pin.block(), Tier::kDisk, 0);
  index_.finish_copy(pin.block(), Tier::kDisk, 0, false);
  std::vector<BlockId> ids;
  for (std::uint32_t i = 2; i < 8; ++i) {
    const BlockPin other = full(r.block(), tokens_of({i}, kBlockTokens));
    const std::optional<SlotId> slot = index_.reserve_copy(other.block(), Tier::kDisk, 0);
    ASSERT_TRUE(slot.has_value());
    EXPECT_NE(slot, bad) << "also where the disk is full, and others are given up";
    index_.finish_copy(other.block(), Tier::kDisk, 0, true);
    index_.check_invariants();
  }
  EXPECT_EQ(index_.use(Tier::kDisk, 0).evictions, 3u);
}

// A disk that stands still must not lose all that it has to saves that fail.
TEST_F(BlockTiersTest, WhereNoSaveGoesWellNothingIsGivenUpForOne) {
  const BlockPin r = root();
  for (std::uint32_t i = 0; i < 4; ++i)
    copy_to(full(r.block(), tokens_of({i}, kBlockTokens)).block(), Tier::kDisk);
  for (std::uint32_t i = 10; i < 60; ++i) {
    const BlockPin pin = full(r.block(), tokens_of({i}, kBlockTokens));
    const std::optional<SlotId> slot = index_.reserve_copy(pin.block(), Tier::kDisk, 0);
    ASSERT_TRUE(slot.has_value()) << "one that was set aside is tried";
    index_.doubt_slot(pin.block(), Tier::kDisk, 0);
    index_.finish_copy(pin.block(), Tier::kDisk, 0, false);
    index_.check_invariants();
  }
  EXPECT_LE(index_.use(Tier::kDisk, 0).evictions, 8u);
}

TEST_F(BlockTiersTest, WhatIsBroughtTakesNoRoomFromWhatIsNeededBefore) {
  const BlockPin r = root();
  std::vector<BlockId> ids;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const BlockPin pin = full(r.block(), tokens_of({i}, kBlockTokens));
    ids.push_back(pin.block());
    index_.set_wanted(ids[i], i);
  }
  copy_to(ids[3], Tier::kDisk);
  copy_to(ids[1], Tier::kHost);
  copy_to(ids[2], Tier::kHost);
  const BlockPin last = index_.pin(ids[3]), first = index_.pin(ids[0]);
  EXPECT_FALSE(index_.reserve_copy(ids[3], Tier::kHost, 0).has_value()) << "both are needed before it";
  EXPECT_TRUE(index_.reserve_copy(ids[0], Tier::kHost, 0).has_value()) << "it is needed before both";
  index_.finish_copy(ids[0], Tier::kHost, 0, false);
  index_.check_invariants();
}

// The device saves blocks and ends of sequences before it evicts them.
class BlockEndsTest : public BlockIndexTest {
 protected:
  BlockEndsTest() : BlockIndexTest(tiers()) {}
  static IndexPools tiers() {
    IndexPools all = pools({4});
    all.device.front().unsaved = std::make_unique<OldestFirst>();
    all.disk.push_back({4, std::make_unique<OldestFirst>(), nullptr});
    return all;
  }
  BlockId next() { return index_.next_unsaved(Tier::kDevice, 0); }
};

TEST_F(BlockEndsTest, AnEndIsToBeSavedUntilItIsSettledAndAgainOnceItHasGrown) {
  const BlockPin r = root();
  BlockId id;
  {
    const BlockPin pin = tail(r.block(), tokens_of({1, 2, 3}));
    id = pin.block();
    EXPECT_EQ(next(), kNoBlock) << "somebody uses it";
  }
  EXPECT_EQ(next(), id);
  EXPECT_EQ(index_.reclaimable(Tier::kDevice, 0), 3u);
  index_.settle_end(id);
  EXPECT_EQ(next(), kNoBlock);
  EXPECT_EQ(index_.reclaimable(Tier::kDevice, 0), 4u);
  index_.check_invariants();
  {
    BlockPin pin = index_.pin(id);
    index_.hold(pin, 0);
    const auto token = index_.claim(id);
    index_.append(*token, tokens_of({4}));
  }
  EXPECT_EQ(next(), id);
  {
    BlockPin pin = index_.pin(id);
    index_.hold(pin, 0);
    index_.settle_end(id);
    const auto token = index_.claim(id);
    index_.truncate(*token, 2);
  }
  EXPECT_EQ(next(), id);
  index_.check_invariants();
}

}  // namespace
}  // namespace loci
