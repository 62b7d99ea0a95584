// SPDX-License-Identifier: Apache-2.0
// Lineages alone, over an index of one group. (What is found of them is tested with the core.)
#include "loci/engine/core/prefixes.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "loci/engine/testing/transfers_testing.h"

namespace loci {
namespace {

// A request may have half of the context, and its front takes all of that but two blocks. So each cut drops
// one block, and a history that is as long as the context was cut once for each block of its second half.
constexpr std::uint32_t kContextBlocks = 1024;
constexpr std::uint32_t kFrontBlocks = kContextBlocks / 2 - 2;
constexpr std::uint32_t kManyCuts = kContextBlocks / 2;
constexpr std::uint32_t kLineagesMost = 8;

class PrefixesTest : public TransfersFixture {
 protected:
  PrefixesTest() : TransfersFixture({.block_count = 16, .disk_blocks = 16}, 4) {
    config_.context_tokens = kContextBlocks * kBlockTokens;
  }

  // `keys_come`: the arrival brings its keys.
  CoreLineage cut(std::uint32_t cuts, bool keys_come = false) const {
    Arrival event{RequestId(1), "g", run_of(0, std::size_t{kContextBlocks} * kBlockTokens), 1, 0, {}, kNever};
    for (std::uint32_t block = kFrontBlocks; block < kFrontBlocks + cuts; ++block)
      event.dropped.push_back({block * kBlockTokens, (block + 1) * kBlockTokens});
    ArrivalKeys brought;
    if (keys_come) brought = arrival_keys(config_, hasher_, {}, event);
    return *prefixes_.keys_of(event, std::move(brought)).lineage;
  }

  // How often the lineages that have originals were cut.
  static std::set<std::uint32_t> cuts_of(const CoreLineage& lineage, std::uint32_t cuts) {
    std::set<std::uint32_t> found;
    for (const CoreLineage::Earlier& one : lineage.earlier)
      if (!one.keys.empty()) found.insert(cuts - one.shift_blocks);
    return found;
  }

  // The index knows the lineage after so many cuts.
  void make_known(std::uint32_t cuts) { known_.push_back(index_.open_gate(front_.block(), cut(cuts).gate)); }

  Prefixes prefixes_{config_, index_, transfers_};
  BlockPin front_ = block(0);
  std::vector<BlockPin> known_;
};

// Each lineage that is looked at costs a hash for every block of a context, and each original a look at every
// probe. Clients choose how many cuts there are.
TEST_F(PrefixesTest, ABlockHasFewOriginalsHoweverOftenTheHistoryWasCut) {
  const CoreLineage lineage = cut(kManyCuts);
  ASSERT_EQ(lineage.earlier.size(), kLineagesMost);
  for (const CoreLineage::Earlier& one : lineage.earlier) EXPECT_EQ(one.keys.size(), 2u);
  EXPECT_EQ(cuts_of(lineage, kManyCuts).size(), kLineagesMost);
}

TEST_F(PrefixesTest, AllEarlierLineagesAreLookedAtWhereTheyAreFew) {
  EXPECT_EQ(cuts_of(cut(8), 8), (std::set<std::uint32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// With small cuts a turn may make many at once: then the turn before is in none of the last few lineages.
TEST_F(PrefixesTest, LineagesThatTheIndexKnowsComeBeforeNewerOnes) {
  for (const std::uint32_t cuts : {485u, 490u}) make_known(cuts);
  EXPECT_EQ(cuts_of(cut(kManyCuts), kManyCuts),
            (std::set<std::uint32_t>{485, 490, 506, 507, 508, 509, 510, 511}));
}

// Else a step would hash them: whoever submits does not know which ones the index knows.
TEST_F(PrefixesTest, LineagesThatNobodyHasHashedAreNotLookedAt) {
  for (const std::uint32_t cuts : {7u, 100u, 479u, 480u}) make_known(cuts);
  EXPECT_EQ(cuts_of(cut(kManyCuts, true), kManyCuts),
            (std::set<std::uint32_t>{480, 505, 506, 507, 508, 509, 510, 511}));
}

TEST_F(PrefixesTest, OfManyThatTheIndexKnowsTheNewestAreLookedAt) {
  for (std::uint32_t cuts = 481; cuts <= 500; ++cuts) make_known(cuts);
  EXPECT_EQ(cuts_of(cut(kManyCuts), kManyCuts),
            (std::set<std::uint32_t>{493, 494, 495, 496, 497, 498, 499, 500}));
}

// A step hashes none of those that came.
TEST_F(PrefixesTest, LineagesAreTheSameWhoeverHashesThem) {
  for (const std::uint32_t cuts : {7u, 490u}) make_known(cuts);
  for (const std::uint32_t cuts : {8u, 40u, kManyCuts}) {
    const CoreLineage own = cut(cuts), brought = cut(cuts, true);
    EXPECT_EQ(own.gate, brought.gate);
    ASSERT_EQ(own.earlier.size(), brought.earlier.size());
    for (std::size_t i = 0; i < own.earlier.size(); ++i) {
      EXPECT_EQ(own.earlier[i].shift_blocks, brought.earlier[i].shift_blocks);
      EXPECT_EQ(own.earlier[i].keys, brought.earlier[i].keys);
      EXPECT_FALSE(own.earlier[i].keys.empty());
    }
  }
}

// (The mark would be gone if they were made again.)
TEST_F(PrefixesTest, NothingIsHashedThatAnEventBrings) {
  const ChainKey mark = hasher_.root("mark");
  Arrival arrival{RequestId(1), "g", run_of(0, 400), 1, 0, {}, kNever};
  arrival.dropped = {{32, 64}, {64, 128}};
  ArrivalKeys keys = arrival_keys(config_, hasher_, {}, arrival);
  ASSERT_EQ(keys.lineage->earlier.size(), 2u);
  keys.blocks.back() = keys.lineage->earlier[1].keys.back() = mark;
  const ArrivalKeys taken = prefixes_.keys_of(arrival, keys);
  EXPECT_EQ(taken.blocks.back(), mark);
  EXPECT_EQ(taken.lineage->earlier[1].keys.back(), mark);

  const Forget forget{.tenant = "g", .salt = {}, .tokens = run_of(0, 400)};
  ForgetKeys names = forget_keys(hasher_, {}, forget);
  names.paths.front().keys.back() = mark;
  EXPECT_EQ(prefixes_.keys_of(forget, names).paths.front().keys.back(), mark);
}

// (A sample that found none would move the whole prompt.)
TEST_F(PrefixesTest, APreparedArrivalHasRoomForItsReply) {
  Arrival whole{RequestId(1), "g", run_of(0, 4000), 1u << 20, 0, {}, kNever};
  prepare_arrival(config_, hasher_, {}, whole);
  EXPECT_TRUE(whole.keys.made);
  EXPECT_GE(whole.prompt.capacity(), 8000u);
  Arrival cut{RequestId(2), "g", run_of(0, 400), 2000, 0, {}, kNever};
  cut.dropped = {{32, 64}};
  prepare_arrival(config_, hasher_, {}, cut);
  EXPECT_GE(cut.keys.kept.capacity(), 368u + kReplyRoom);
}

// A prefix may become public, or stop being so, while an event waits.
TEST_F(PrefixesTest, WhatIsNoLongerSoIsMadeAgain) {
  const Arrival arrival{RequestId(1), "g", run_of(0, 100), 1, 0, {}, kNever};
  const Forget forget{.tenant = "g", .salt = {}, .tokens = run_of(0, 100)};
  const ArrivalKeys before = arrival_keys(config_, hasher_, {}, arrival);
  const ForgetKeys names_before = forget_keys(hasher_, {}, forget);
  std::vector<BlockPin> path;
  path.push_back(index_.open_root(hasher_.public_root()));
  const Tokens tokens = run_of(0, kBlockTokens);
  const ChainKey key = hasher_.child(hasher_.public_root(), tokens);
  path.push_back(index_.open_full(path.back().block(), key, tokens));
  ASSERT_TRUE(index_.place(path.back(), 0));
  index_.fill(*index_.claim(path.back().block()), kBlockTokens);
  std::vector<BlockPin> blocks;
  blocks.push_back(std::move(path.back()));
  prefixes_.keep(RequestId(9), kBlockTokens, std::move(blocks));

  const ArrivalKeys now = prefixes_.keys_of(arrival, before);
  EXPECT_EQ(now.public_blocks, 1u);
  EXPECT_EQ(now.blocks.front(), key);
  EXPECT_EQ(now.blocks, arrival_keys(config_, hasher_, *prefixes_.public_chains(), arrival).blocks);
  EXPECT_EQ(prefixes_.keys_of(forget, names_before).paths.size(), 2u);
  prefixes_.withdraw(RequestId(9));
  EXPECT_EQ(prefixes_.keys_of(arrival, now).blocks, before.blocks);
}

}  // namespace
}  // namespace loci
