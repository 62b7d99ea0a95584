// SPDX-License-Identifier: Apache-2.0
// Entries of an earlier process, taken over into an index of one group without a core.
#include "loci/engine/core/recovery.h"

#include <gtest/gtest.h>

#include <vector>

#include "loci/engine/testing/core_events_testing.h"
#include "loci/engine/testing/transfers_testing.h"

namespace loci {
namespace {

class RecoveryTest : public TransfersFixture {
 protected:
  explicit RecoveryTest(std::uint32_t disk_blocks = 16)
      : TransfersFixture({.block_count = 8, .disk_blocks = disk_blocks}, 4) {
    disk_.add("group", run_of(0, 4 * kBlockTokens));
    entries_ = disk_.events(4).front().entries;
  }
  std::vector<RecordChange> take_over(std::vector<RecoveredEntry> entries, bool last) {
    std::vector<RecordChange> forgets = recovery_.take_over({std::move(entries), 0, last}, 0);
    recovery_.check_invariants();
    if (last) {
      EXPECT_TRUE(recovery_.let_go());
      recovery_.check_invariants();
    }
    return forgets;
  }
  std::size_t pins() const {
    std::size_t count = 0;
    recovery_.visit_pins([&](const BlockPin&) { ++count; });
    return count;
  }
  BlockId block(std::size_t entry) const { return index_.find(entries_[entry].entry.key); }

  LeftOnDisk disk_{config_};
  std::vector<RecoveredEntry> entries_;  // of one conversation, by block
  ChainKeyHasher names_{config_.chain_secret, config_.model_fingerprint};
  Recovery recovery_{config_, names_, index_};
};

TEST_F(RecoveryTest, PinsWhatItHasTakenOverUntilAllIsThere) {
  EXPECT_TRUE(take_over({entries_[0], entries_[1]}, false).empty());
  EXPECT_EQ(pins(), 2u);
  index_.forget(block(1));
  EXPECT_NE(block(1), kNoBlock) << "it is pinned";
  EXPECT_TRUE(take_over({entries_[2]}, true).empty());
  EXPECT_EQ(pins(), 0u);
  index_.forget(block(2));
  EXPECT_EQ(block(2), kNoBlock);
  EXPECT_NE(block(1), kNoBlock);
}

TEST_F(RecoveryTest, AHoleStaysWhileWhatIsBelowItMayComeAndNoLonger) {
  entries_[0].hole = entries_[1].hole = true;
  entries_[1].slot = SlotId(1);
  EXPECT_TRUE(take_over({entries_[0], entries_[1]}, false).empty());
  EXPECT_EQ(pins(), 2u) << "nothing else keeps them";
  EXPECT_TRUE(take_over({entries_[2]}, true).empty());
  EXPECT_NE(block(0), kNoBlock) << "a hole that leads to a copy";
  index_.forget(block(2));
  EXPECT_EQ(block(0), kNoBlock) << "and leads nowhere any more";
}

TEST_F(RecoveryTest, HolesThatLeadNowhereGoWithTheLastBatch) {
  entries_[0].hole = entries_[1].hole = true;
  EXPECT_TRUE(take_over({entries_[0], entries_[1]}, false).empty());
  take_over({}, true);
  EXPECT_EQ(block(0), kNoBlock);
  EXPECT_EQ(index_.take_record_changes().size(), 2u) << "the disk forgets them";
}

class RecoveryOfMuch : public RecoveryTest {
 protected:
  static constexpr std::size_t kEntries = 2 * Recovery::kLetGoInAStep + 3;
  RecoveryOfMuch() : RecoveryTest(kEntries) {}
};

// A step that let go of all that a disk holds would hold up whoever decodes.
TEST_F(RecoveryOfMuch, IsLetGoAPortionAtATime) {
  LeftOnDisk much(config_);
  much.add("group", run_of(0, kEntries * kBlockTokens));
  EXPECT_FALSE(recovery_.let_go()) << "nothing has come";
  EXPECT_TRUE(recovery_.take_over({much.events(kEntries).front().entries, 0, true}, 0).empty());
  for (const std::size_t left : {kEntries, kEntries - Recovery::kLetGoInAStep, std::size_t{3}}) {
    EXPECT_EQ(pins(), left);
    EXPECT_TRUE(recovery_.has_more());
    EXPECT_EQ(recovery_.let_go(), left == 3);
    recovery_.check_invariants();
  }
  EXPECT_EQ(pins(), 0u);
  EXPECT_FALSE(recovery_.has_more());
  EXPECT_FALSE(recovery_.let_go()) << "it is over once";
}

TEST_F(RecoveryTest, WhatHasNoWayToItOrAForgedKeyIsForgotten) {
  entries_[1].entry.tokens[3] = TokenId(99);
  const std::vector<RecordChange> forgets = take_over({entries_[0], entries_[1], entries_[2]}, false);
  ASSERT_EQ(forgets.size(), 2u);
  EXPECT_EQ(forgets[0].slot, entries_[1].slot);
  EXPECT_EQ(forgets[1].slot, entries_[2].slot) << "its parent has not come";
  EXPECT_EQ(pins(), 1u);
  CoreStats stats;
  recovery_.add_stats(stats);
  EXPECT_EQ(stats.recovered_total, 1u);
  EXPECT_EQ(stats.orphans_total, 2u);
}

// An earlier process may have written a block twice.
TEST_F(RecoveryTest, ACopyIsTakenOverOnce) {
  RecoveredEntry twice = entries_[0];
  twice.slot = SlotId(9);
  const std::vector<RecordChange> forgets = take_over({entries_[0], twice}, false);
  ASSERT_EQ(forgets.size(), 1u);
  EXPECT_EQ(forgets[0].slot, twice.slot);
  EXPECT_EQ(index_.block(block(0)).copy(Tier::kDisk, 0)->slot.slot(), entries_[0].slot);
}

// A limit is kept to within an eighth of it, and within an hour.
TEST_F(RecoveryTest, StateIsLookedAtOftenEnoughForItsLimit) {
  for (const auto& [limit, apart] : {std::pair{80 * kNanosPerSecond, 10 * kNanosPerSecond},
                                     std::pair{30 * 86'400 * kNanosPerSecond, 3600 * kNanosPerSecond}}) {
    StateAge age(limit);
    age.sweep(index_, kNanosPerSecond);
    EXPECT_EQ(age.next_sweep(), kNanosPerSecond + apart);
  }
}

}  // namespace
}  // namespace loci
