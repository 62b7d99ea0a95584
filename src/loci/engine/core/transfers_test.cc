// SPDX-License-Identifier: Apache-2.0
// Transfers alone, over an index of one group: the example of transfers.h, and what links do.
#include "loci/engine/core/transfers.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "loci/engine/testing/transfers_testing.h"

namespace loci {
namespace {

constexpr std::uint32_t kDeviceBlocks = 4;

class TransfersTest : public TransfersFixture {
 protected:
  TransfersTest()
      : TransfersFixture({.window = 0, .block_count = kDeviceBlocks, .host_blocks = 8, .disk_blocks = 8}, 4) {
  }

  Nanos now_ = 0;  // of advance()
  // What began since the last call ends so.
  std::vector<Transfers::Ended> end_all(MoveResult result = MoveResult::kDone) {
    std::vector<Transfers::Ended> ended;
    for (const Move& move : transfers_.take_begun())
      ended.push_back(transfers_.end({move.id, result, 0}, std::nullopt));
    transfers_.check_invariants();
    return ended;
  }
  // The block is in host memory alone.
  BlockPin in_host_memory(std::uint32_t first) {
    BlockPin pin = computed(first);
    transfers_.wish_save(pin.block(), Tier::kDevice, SaveScope::kAllGroups);
    transfers_.save({});
    end_all();
    index_.let_go(pin, 0, Release::kWanted);
    for (std::uint32_t i = 0; i < kDeviceBlocks; ++i) computed(10'000 + 100 * i);  // who needs the room
    EXPECT_FALSE(index_.block(pin.block()).parts[0]);
    return pin;
  }
  std::vector<std::uint32_t> load(BlockPin& pin) {
    if (!index_.block(pin.block()).parts[0]) {
      EXPECT_TRUE(index_.place(pin, 0));
    }
    CoreProbe wanted;
    wanted.node = pin.block();
    wanted.load = true;
    return transfers_.load({&wanted, 1}, {&pin, 1});
  }
};

TEST_F(TransfersTest, SavesGoFromTierToTierAndToADiskThatIsKnown) {
  const BlockPin pin = computed(1);
  transfers_.wish_save(pin.block(), Tier::kDevice, SaveScope::kWithoutWindows);
  transfers_.save({});
  const std::vector<Move> first = transfers_.take_begun();
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first[0].from, Tier::kDevice);
  EXPECT_EQ(first[0].to, Tier::kHost);
  transfers_.check_invariants();
  transfers_.end({first[0].id, MoveResult::kDone, 0}, std::nullopt);
  EXPECT_TRUE(index_.block(pin.block()).copy(Tier::kHost, 0)->whole);

  transfers_.save({});
  EXPECT_TRUE(transfers_.take_begun().empty()) << "what the disk has from before is not known yet";
  transfers_.open_disk();
  transfers_.save({});
  const std::vector<Move> second = transfers_.take_begun();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].from, Tier::kHost);
  EXPECT_EQ(second[0].to, Tier::kDisk);
  transfers_.end({second[0].id, MoveResult::kFailed, 0}, std::nullopt);
  EXPECT_EQ(index_.block(pin.block()).copy(Tier::kDisk, 0), nullptr) << "a save that failed left nothing";
  EXPECT_TRUE(transfers_.idle());
}

TEST_F(TransfersTest, TwoRequestsWaitForOneLoad) {
  BlockPin pin = in_host_memory(1);
  EXPECT_TRUE(transfers_.comes(pin.block(), Tier::kHost));
  EXPECT_FALSE(transfers_.comes(pin.block(), Tier::kDevice));
  EXPECT_EQ(transfers_.load_tier(pin.block()), Tier::kHost);
  EXPECT_EQ(load(pin), std::vector<std::uint32_t>{0});
  EXPECT_TRUE(transfers_.loading(pin.block(), 0));
  BlockPin other = block(1);
  index_.hold(other, 0);
  EXPECT_EQ(load(other), std::vector<std::uint32_t>{0});
  const auto ended = end_all();
  ASSERT_EQ(ended.size(), 1u) << "the second began no move of its own";
  EXPECT_FALSE(ended[0].missed);
  EXPECT_FALSE(transfers_.loading(pin.block()));
  EXPECT_EQ(index_.block(pin.block()).filled, kBlockTokens);
}

TEST_F(TransfersTest, WhatDoesNotVerifyIsMissedAndGone) {
  BlockPin pin = in_host_memory(1);
  load(pin);
  const auto ended = end_all(MoveResult::kDamaged);
  ASSERT_EQ(ended.size(), 1u);
  ASSERT_TRUE(ended[0].missed);
  EXPECT_EQ(ended[0].missed->block, pin.block());
  EXPECT_EQ(ended[0].missed->from, Tier::kHost);
  EXPECT_EQ(index_.block(pin.block()).copy(Tier::kHost, 0), nullptr);
  EXPECT_FALSE(transfers_.comes(pin.block(), Tier::kDisk));
}

// Somebody else's tail completed the block meanwhile, in a slot of its own.
TEST_F(TransfersTest, ASlotThatAPassReadsOutlivesItsLoad) {
  BlockPin pin = in_host_memory(1);
  load(pin);
  std::optional<SlotReservation> replaced = index_.reserve(0);
  ASSERT_TRUE(replaced);
  transfers_.keep_slot(pin.block(), 0, replaced, OperationId(7));
  EXPECT_FALSE(replaced) << "the load has it now";
  EXPECT_EQ(transfers_.detached()[0], 1u);
  const std::vector<Move> begun = transfers_.take_begun();
  ASSERT_EQ(begun.size(), 1u);
  Transfers::Ended ended = transfers_.end({begun[0].id, MoveResult::kDone, 0}, OperationId(7));
  ASSERT_EQ(ended.still_read.size(), 1u);
  EXPECT_EQ(transfers_.detached()[0], 0u);
  EXPECT_EQ(index_.block(pin.block()).filled, 0u) << "it brought nothing to where the block is now";
}

TEST_F(TransfersTest, ADiskThatFailsIsLeftAloneForAWhile) {
  transfers_.open_disk();
  EXPECT_EQ(transfers_.slowest_readable(), Tier::kDisk);
  for (std::uint32_t i = 0; i < LinkBreaker::kFailuresMax; ++i) {
    BlockPin pin = block(1 + 100 * i);
    ASSERT_TRUE(index_.recover_copy(pin.block(), 0, SlotId(0), 0));
    load(pin);
    ASSERT_TRUE(end_all(MoveResult::kFailed)[0].missed);
  }
  EXPECT_EQ(transfers_.slowest_readable(), Tier::kHost);
  transfers_.advance(LinkBreaker::kPause);
  EXPECT_EQ(transfers_.slowest_readable(), Tier::kDisk);
}

// Of one that brought a part in time nobody says that it does not answer.
TEST_F(TransfersTest, ADiskThatIsSlowIsNotLeftAlone) {
  transfers_.open_disk();
  for (const bool came : {true, false}) {
    for (std::uint32_t i = 0; i < LinkBreaker::kFailuresMax; ++i) {
      transfers_.advance(now_ += 20 * kNanosPerSecond);
      BlockPin pin = block(1 + 100 * i);
      if (came) {
        ASSERT_TRUE(index_.recover_copy(pin.block(), 0, SlotId(i), 0));
      }
      load(pin);
      for (const Move& move : transfers_.take_begun())
        transfers_.end({move.id, MoveResult::kTooSlow, 10 * kNanosPerSecond, came}, std::nullopt);
      transfers_.check_invariants();
    }
    EXPECT_EQ(transfers_.slowest_readable(), came ? Tier::kDisk : Tier::kHost);
  }
}

// All that was booked comes late together, so it is given up together, and must not be by a slow disk's usual
// times.
TEST_F(TransfersTest, ALoadMayTakeTwiceWhatWasPredicted) {
  transfers_.open_disk();
  std::vector<BlockPin> pins;
  Nanos before = 0;
  for (std::uint32_t i = 0; i < 3; ++i) {
    pins.push_back(block(1 + 100 * i));
    ASSERT_TRUE(index_.recover_copy(pins[i].block(), 0, SlotId(i), 0));
    load(pins[i]);
    const std::vector<Move> begun = transfers_.take_begun();
    ASSERT_EQ(begun.size(), 1u);
    EXPECT_EQ(begun[0].time_limit, 2 * (transfers_.arrives_at(pins[i].block()) - now_));
    EXPECT_GT(begun[0].time_limit, before) << "it waits for those before it";
    before = begun[0].time_limit;
  }
}

TEST_F(TransfersTest, AMoveEndsOnce) {
  const BlockPin pin = computed(1);
  transfers_.wish_save(pin.block(), Tier::kDevice, SaveScope::kAllGroups);
  transfers_.save({});
  const std::vector<Move> begun = transfers_.take_begun();
  ASSERT_EQ(begun.size(), 1u);
  const MoveOutcome outcome{begun[0].id, MoveResult::kDone, 0};
  transfers_.end(outcome, std::nullopt);
  EXPECT_DEATH(transfers_.end(outcome, std::nullopt), "a move ends once");
}

}  // namespace
}  // namespace loci
