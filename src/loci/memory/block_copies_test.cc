// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "loci/base/random.h"
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

// Three blocks have room on the disk as keys and values, or nine as hidden states.
class BlockFormsTest : public BlockIndexTest {
 protected:
  BlockFormsTest() : BlockIndexTest(tiers()) {}
  static IndexPools tiers() {
    IndexPools all = pools({16});
    all.disk.push_back({3, std::make_unique<OldestFirst>(), nullptr});
    all.disk.push_back({9, nullptr, nullptr});
    return all;
  }
  bool save(std::uint32_t i, StateForm form) {
    const BlockPin r = root();
    const BlockPin pin = full(r.block(), tokens_of({i}, kBlockTokens));
    const bool room = index_.reserve_copy(pin.block(), Tier::kDisk, 0, std::nullopt, form).has_value();
    if (room) index_.finish_copy(pin.block(), Tier::kDisk, 0, true);
    index_.check_invariants();
    return room;
  }
  std::uint32_t used(StateForm form) const {
    const TierUse use = index_.use(Tier::kDisk, form == StateForm::kHidden ? 1 : 0);
    return use.slots - use.free;
  }
  std::size_t forgotten(std::uint32_t pool) {
    const std::vector<RecordChange> changes = index_.take_record_changes();
    return static_cast<std::size_t>(std::ranges::count_if(changes, [&](const RecordChange& change) {
      return change.kind == RecordChange::Kind::kForget && change.group == pool;
    }));
  }
};

TEST_F(BlockFormsTest, EitherFormMayUseAllOfTheRoom) {
  for (std::uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(save(i, StateForm::kHidden));
  EXPECT_EQ(used(StateForm::kHidden), 9u) << "nothing was given up";
  EXPECT_EQ(forgotten(1), 0u);
  EXPECT_TRUE(save(9, StateForm::kKeysAndValues));
  EXPECT_EQ(used(StateForm::kHidden), 6u) << "three of them are as large as one";
  EXPECT_EQ(used(StateForm::kKeysAndValues), 1u);
  EXPECT_EQ(forgotten(1), 3u) << "nobody writes there next, so the disk is told";
  for (std::uint32_t i = 10; i < 12; ++i) EXPECT_TRUE(save(i, StateForm::kKeysAndValues));
  EXPECT_EQ(used(StateForm::kKeysAndValues), 3u);
  EXPECT_EQ(used(StateForm::kHidden), 0u);
  forgotten(1);
  EXPECT_TRUE(save(12, StateForm::kHidden));
  EXPECT_EQ(used(StateForm::kKeysAndValues), 2u) << "one of keys and values is enough for three";
  EXPECT_EQ(forgotten(0), 1u);
  for (std::uint32_t i = 13; i < 15; ++i) EXPECT_TRUE(save(i, StateForm::kHidden));
  EXPECT_EQ(used(StateForm::kKeysAndValues), 2u);
  EXPECT_EQ(used(StateForm::kHidden), 3u);
}

TEST_F(BlockFormsTest, WithLessRoomBothGiveUpTheOldest) {
  for (std::uint32_t i = 0; i < 4; ++i)
    EXPECT_TRUE(save(i, i % 2 == 0 ? StateForm::kHidden : StateForm::kKeysAndValues));
  index_.limit(Tier::kDisk, 0, 1);
  index_.limit(Tier::kDisk, 1, 3);
  EXPECT_FALSE(save(7, StateForm::kHidden)) << "to give one up makes no room yet";
  EXPECT_EQ(index_.trim(Tier::kDisk, 0, 1), 1u);
  EXPECT_EQ(used(StateForm::kHidden), 1u);
  EXPECT_EQ(index_.trim(Tier::kDisk, 0, 8) + index_.trim(Tier::kDisk, 1, 8), 2u);
  EXPECT_EQ(used(StateForm::kHidden), 0u) << "before the youngest of keys and values";
  EXPECT_EQ(used(StateForm::kKeysAndValues), 1u);
  index_.check_invariants();
}

// What it has no more room for is tried again in time.
TEST_F(BlockFormsTest, AFormThatFailsCostsTheOtherLittle) {
  std::uint32_t tried = 0;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    const BlockPin r = root();
    const BlockPin pin = full(r.block(), tokens_of({100 + i % 40}, kBlockTokens));
    if (index_.block(pin.block()).copy(Tier::kDisk, 0) != nullptr) continue;
    if (index_.reserve_copy(pin.block(), Tier::kDisk, 0, std::nullopt, StateForm::kHidden)) {
      ++tried;
      index_.doubt_slot(pin.block(), Tier::kDisk, 0);
      index_.finish_copy(pin.block(), Tier::kDisk, 0, false);
    }
    if (used(StateForm::kKeysAndValues) < 3) {
      EXPECT_TRUE(save(1000 + i, StateForm::kKeysAndValues));
    }
  }
  EXPECT_LE(index_.use(Tier::kDisk, 0).evictions, 12u);
  EXPECT_GT(tried, 8u);
  EXPECT_EQ(used(StateForm::kKeysAndValues), 3u);
}

TEST_F(BlockFormsTest, KeysAndValuesThatFailAreTriedAgainTooAndCostLittle) {
  for (std::uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(save(i, StateForm::kHidden));
  std::uint32_t tried = 0, lost = 0;
  for (std::uint32_t i = 0; i < 8000; ++i) {
    const BlockPin r = root();
    const BlockPin pin = full(r.block(), tokens_of({100 + i % 40}, kBlockTokens));
    if (index_.block(pin.block()).copy(Tier::kDisk, 0) != nullptr) continue;
    if (index_.reserve_copy(pin.block(), Tier::kDisk, 0)) {
      ++tried;
      index_.doubt_slot(pin.block(), Tier::kDisk, 0);
      index_.finish_copy(pin.block(), Tier::kDisk, 0, false);
      index_.check_invariants();
    }
    for (; used(StateForm::kHidden) < 9; ++lost) EXPECT_TRUE(save(1000 + i + lost, StateForm::kHidden));
  }
  // The first eight, and then a trial for each 1,024 that are refused.
  EXPECT_GE(tried, 8u + 7u);
  EXPECT_LE(tried, 8u + 8u);
  EXPECT_EQ(lost, 3 * tried) << "a trial gives up what it needs, and what gives up is a trial";
}

// One bad slot, and one of two directories that is dead.
TEST_F(BlockFormsTest, ABadSlotIsNotTriedAgainAndAgainOnAFullDisk) {
  for (const std::vector<std::uint32_t>& bad : {std::vector<std::uint32_t>{1}, {0, 2}}) {
    BlockIndex index(tiers());
    std::uint32_t failed = 0, saved = 0;
    for (std::uint32_t i = 0; i < 500; ++i) {
      const BlockPin r = index.open_root(hasher_.root("g"));
      const Tokens tokens = tokens_of({i}, kBlockTokens);
      BlockPin pin = index.open_full(r.block(), hasher_.child(index.block(r.block()).key, tokens), tokens);
      ASSERT_TRUE(index.place(pin, 0));
      const std::optional<SlotId> slot = index.reserve_copy(pin.block(), Tier::kDisk, 0);
      ASSERT_TRUE(slot.has_value());
      const bool fails = std::ranges::find(bad, slot->value) != bad.end();
      if (fails) index.doubt_slot(pin.block(), Tier::kDisk, 0);
      index.finish_copy(pin.block(), Tier::kDisk, 0, !fails);
      ++(fails ? failed : saved);
      index.check_invariants();
    }
    EXPECT_LE(failed, bad.size() + 1);
    EXPECT_GE(saved, 500 - bad.size() - 1);
  }
}

// A slot that was set aside is tried in the place of the one that was given up for it: nobody writes there.
TEST_F(BlockFormsTest, WhatGoesForATrialOfAnotherSlotIsCleared) {
  index_.limit(Tier::kDisk, 0, 2);
  std::set<std::uint32_t> records;  // by slot
  std::set<std::uint32_t> written;
  for (std::uint32_t i = 0; i < 3000; ++i) {
    const BlockPin r = root();
    const BlockPin pin = full(r.block(), tokens_of({i}, kBlockTokens));
    const std::optional<SlotId> slot = index_.reserve_copy(pin.block(), Tier::kDisk, 0);
    ASSERT_TRUE(slot.has_value());
    for (const RecordChange& change : index_.take_record_changes())
      if (change.kind == RecordChange::Kind::kForget) records.erase(change.slot.value);
    const bool fails = i == 0;
    if (fails) {
      index_.doubt_slot(pin.block(), Tier::kDisk, 0);
    } else {
      records.insert(slot->value);
      written.insert(slot->value);
    }
    index_.finish_copy(pin.block(), Tier::kDisk, 0, !fails);
    ASSERT_EQ(records.size(), used(StateForm::kKeysAndValues)) << i;
  }
  EXPECT_EQ(written.size(), 3u) << "the one that failed was tried";
}

// Two of three slots are bad: giving up copies of the other form, older as they are, helps nothing.
TEST_F(BlockFormsTest, WhereASlotIsMissingTheOtherFormGivesNothingUp) {
  {
    const BlockPin r = root();
    const BlockPin first = full(r.block(), tokens_of({100}, kBlockTokens));
    const BlockPin second = full(r.block(), tokens_of({101}, kBlockTokens));
    for (const BlockId id : {first.block(), second.block()}) {
      ASSERT_TRUE(index_.reserve_copy(id, Tier::kDisk, 0));
      index_.doubt_slot(id, Tier::kDisk, 0);
    }
    for (const BlockId id : {first.block(), second.block()}) index_.finish_copy(id, Tier::kDisk, 0, false);
  }
  for (std::uint32_t i = 0; i < 3; ++i) EXPECT_TRUE(save(i, StateForm::kHidden));
  for (std::uint32_t i = 3; i < 8; ++i) EXPECT_TRUE(save(i, StateForm::kKeysAndValues));
  EXPECT_EQ(used(StateForm::kHidden), 3u);
  EXPECT_EQ(used(StateForm::kKeysAndValues), 1u);
  EXPECT_EQ(index_.use(Tier::kDisk, 0).evictions, 4u);
}

// The first victims may go, and the last may not: then all stay.
TEST_F(BlockFormsTest, WhatIsNotEnoughIsNotGivenUp) {
  for (std::uint32_t i = 0; i < 9; ++i) EXPECT_TRUE(save(i, StateForm::kHidden));
  // The device gives up its parts of two of them; the others are there too.
  for (std::uint32_t i = 9; i < 17; ++i) {
    const BlockPin r = root();
    (void)full(r.block(), tokens_of({i}, kBlockTokens));
  }
  const BlockPin r = root();
  const BlockPin pin = full(r.block(), tokens_of({17}, kBlockTokens));
  ASSERT_EQ(index_.evictions(), 2u);
  EXPECT_FALSE(index_.reserve_copy(pin.block(), Tier::kDisk, 0, Tier::kDevice));
  EXPECT_EQ(used(StateForm::kHidden), 9u);
  EXPECT_EQ(index_.use(Tier::kDisk, 1).evictions, 0u);
  index_.check_invariants();
  EXPECT_TRUE(index_.reserve_copy(pin.block(), Tier::kDisk, 0));
  EXPECT_EQ(used(StateForm::kHidden), 6u) << "where nobody asks, three go";
}

// Whatever comes and goes, in either form, and with slots that fail: together they never have more than the
// room, and what was given up for another form is cleared.
TEST_F(BlockFormsTest, TogetherTheyKeepToTheRoom) {
  Random random(5);
  const auto choose = [&](std::uint32_t count) { return static_cast<std::uint32_t>(random.below(count)); };
  std::uint32_t saved = 0;
  for (std::uint32_t i = 0; i < 2000; ++i) {
    const StateForm form = choose(3) == 0 ? StateForm::kKeysAndValues : StateForm::kHidden;
    const BlockPin r = root();
    const BlockPin pin = full(r.block(), tokens_of({choose(40)}, kBlockTokens));
    if (index_.block(pin.block()).copy(Tier::kDisk, 0) != nullptr) continue;
    if (!index_.reserve_copy(pin.block(), Tier::kDisk, 0, std::nullopt, form)) continue;
    const bool fails = choose(10) == 0;
    if (fails) index_.doubt_slot(pin.block(), Tier::kDisk, 0);
    index_.finish_copy(pin.block(), Tier::kDisk, 0, !fails);
    saved += !fails;
    index_.check_invariants();
    ASSERT_LE(3 * used(StateForm::kKeysAndValues) + used(StateForm::kHidden), 9u);
  }
  EXPECT_GT(saved, 800u);
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
