// SPDX-License-Identifier: Apache-2.0
// What peers read, over an index and transfers of one group: the example of peer_reads.h, and its bounds.
#include "loci/engine/core/peer_reads.h"

#include <gtest/gtest.h>

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/testing/transfers_testing.h"

namespace loci {
namespace {

constexpr std::uint32_t kBlocks = 256;

class PeerReadsTest : public TransfersFixture {
 protected:
  PeerReadsTest() : TransfersFixture({.block_count = kBlocks, .disk_blocks = kBlocks}, 32) {}

  ChainKey on_device(std::uint32_t first) { return index_.block(computed(first).block()).key; }
  ChainKey on_disk(std::uint32_t first) {
    const BlockPin pin = block(first);
    EXPECT_TRUE(index_.reserve_copy(pin.block(), Tier::kDisk, 0));
    index_.finish_copy(pin.block(), Tier::kDisk, 0, true);
    return index_.block(pin.block()).key;
  }
  // Somebody computes it until `computed_` lets go.
  ChainKey coming(std::uint32_t first) {
    computed_.push_back(block(first));
    EXPECT_TRUE(index_.place(computed_.back(), 0));
    tokens_.push_back(*index_.claim(computed_.back().block()));
    return index_.block(computed_.back().block()).key;
  }
  void read(std::uint64_t id, const std::vector<ChainKey>& keys, Nanos deadline = kNanosPerSecond,
            std::uint8_t rounds = 1) {
    PeerRead read{.id = PeerReadId(id), .wants = {}, .deadline = deadline, .rounds = rounds};
    for (const ChainKey& key : keys) read.wants.push_back({key, 1});
    reads_.add(read, 0);
  }
  // By tier, what begins now.
  std::vector<Move> serve(Nanos now = 0) {
    reads_.serve(now, {});
    reads_.check_invariants();
    transfers_.check_invariants();
    return transfers_.take_begun();
  }
  void end(const std::vector<Move>& moves) {
    for (const Move& move : moves) {
      const Transfers::Ended ended = transfers_.end({move.id, MoveResult::kDone, 0}, std::nullopt);
      ASSERT_TRUE(ended.served);
      reads_.ended(*ended.served);
    }
    reads_.check_invariants();
  }
  static std::size_t from(const std::vector<Move>& moves, Tier tier) {
    return static_cast<std::size_t>(
        std::count_if(moves.begin(), moves.end(), [tier](const Move& move) { return move.from == tier; }));
  }

  // All that begins and ends until nothing is on its way, as "block round" or, from the disk, "block round-".
  std::string all_rounds(Nanos now = 0) {
    std::string all;
    for (std::vector<Move> moves = serve(now); !moves.empty(); moves = serve(now)) {
      for (const Move& move : moves) {
        const PeerRounds& rounds = move.peer->rounds;
        all += std::to_string(move.peer->index) + char('a' + rounds.begin);
        if (rounds.end > rounds.begin + 1) all += '-';
        all += ' ';
      }
      end(moves);
    }
    return all;
  }

  PeerReads reads_{index_, transfers_};
  std::vector<BlockPin> computed_;
  std::vector<AppendToken> tokens_;  // go before the pins
};

TEST_F(PeerReadsTest, WhatIsThereGoesWhatComesWaitsWhatIsNotThereIsGone) {
  const ChainKey a = on_device(100), b = on_disk(200), c = coming(300), d = hasher_.root("nobody's");
  EXPECT_EQ(reads_.answer(std::vector{a, b, c, d}), (std::vector<std::uint8_t>{1, 1, 1, 0}));
  read(1, {a, b, c, d});
  const std::vector<Move> first = serve();
  EXPECT_EQ(from(first, Tier::kDevice), 1u);
  EXPECT_EQ(from(first, Tier::kDisk), 1u);
  EXPECT_EQ(reads_.waiting(), 1u);
  const std::vector<PeerGone> gone = reads_.take_gone();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].place.index, 3u);
  end(first);
  index_.fill(tokens_.back(), kBlockTokens);
  const std::vector<Move> second = serve();
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].peer->index, 2u);
  end(second);
  EXPECT_EQ(reads_.waiting(), 0u);
  EXPECT_EQ(reads_.next_deadline(0), kNever);
}

TEST_F(PeerReadsTest, FirstLayersOfAllBlocksGoBeforeLaterOnes) {
  read(1, {on_device(100), on_disk(200), on_device(300)}, kNanosPerSecond, 3);
  EXPECT_EQ(all_rounds(), "0a 1a- 2a 0b 2b 0c 2c ") << "what the disk has comes whole";
  EXPECT_EQ(reads_.waiting(), 0u);
  EXPECT_TRUE(reads_.take_gone().empty());
  // More than are on their way at a time.
  std::vector<ChainKey> keys;
  for (std::uint32_t i = 0; i < 8; ++i) keys.push_back(on_device(1000 + 100 * i));
  read(2, keys, kNanosPerSecond, 2);
  EXPECT_EQ(all_rounds(), "0a 1a 2a 3a 4a 5a 6a 7a 0b 1b 2b 3b 4b 5b 6b 7b ");
}

// What a deadline cuts is the last blocks, and not the last layers of all of them.
TEST_F(PeerReadsTest, InTheSecondHalfOfItsTimeBlocksAreFinished) {
  std::vector<ChainKey> keys;
  for (std::uint32_t i = 0; i < 8; ++i) keys.push_back(on_device(1000 + 100 * i));
  read(1, keys, 1'000, 4);
  std::vector<Move> moves = serve(0);
  end(moves);
  end(serve(499));  // four of these are of the second round
  EXPECT_EQ(all_rounds(500), "0c- 1c- 2c- 3c- 4b- 5b- 6b- 7b- ");
  EXPECT_EQ(reads_.waiting(), 0u);
  EXPECT_TRUE(reads_.take_gone().empty());
}

// The bound that peer_reads.h names, over links that bring from a twentieth of the bytes to all of them.
TEST_F(PeerReadsTest, ALateReadHasBroughtMostOfTheBlocksThatItsBytesAre) {
  constexpr std::uint32_t kCount = 48, kRounds = 4;
  std::vector<ChainKey> keys;
  for (std::uint32_t i = 0; i < kCount; ++i) keys.push_back(on_device(1000 + 100 * i));
  for (std::uint32_t percent = 5; percent <= 100; percent += 5) {
    const Nanos deadline = 100'000'000;
    const Nanos round_takes = deadline * 100 / (kCount * kRounds * percent);
    read(percent, keys, deadline, kRounds);
    std::uint32_t whole = 0;
    std::deque<Move> on_way;
    for (Nanos now = 0;;) {
      for (Move& move : serve(now)) on_way.push_back(std::move(move));
      if (on_way.empty()) break;
      const PeerRounds& rounds = on_way.front().peer->rounds;
      now += (rounds.end - rounds.begin) * round_takes;
      whole += rounds.end == kRounds && now <= deadline;
      end({on_way.front()});
      on_way.pop_front();
    }
    // (But for the one that is cut, and those that were on their way in rounds when the half was over.)
    EXPECT_GE(whole + 3, kCount * percent * 2 / 300) << percent << " % of the bytes";
  }
}

TEST_F(PeerReadsTest, WhatComesLateBeginsWithItsFirstLayers) {
  read(1, {coming(100), on_device(200), on_device(300)}, kNanosPerSecond, 2);
  const std::vector<Move> first = serve();
  ASSERT_EQ(first.size(), 4u);
  index_.fill(tokens_.back(), kBlockTokens);
  end(first);
  EXPECT_EQ(all_rounds(), "0a 0b ");
}

// Nothing is held between two rounds: who computes needs the memory.
TEST_F(PeerReadsTest, WhatIsEvictedBetweenRoundsIsGone) {
  std::vector<ChainKey> keys;
  for (std::uint32_t i = 0; i < 7; ++i) keys.push_back(on_device(100 + 100 * i));
  read(1, keys, kNanosPerSecond, 2);
  std::vector<Move> moves = serve();
  ASSERT_EQ(moves.size(), 6u);
  end(moves);
  index_.forget(index_.find(keys[0]));
  moves = serve();
  EXPECT_EQ(moves.front().peer->index, 6u) << "its first layers";
  const std::vector<PeerGone> gone = reads_.take_gone();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].place.index, 0u);
  end(moves);
  all_rounds();
  EXPECT_EQ(reads_.waiting(), 0u);
}

TEST_F(PeerReadsTest, WhatIsLeftOfALateReadIsGone) {
  const std::vector<ChainKey> keys = {on_device(100), on_device(200), on_device(300), on_device(400)};
  read(1, keys, kNanosPerSecond, 8);
  const std::vector<Move> moves = serve();
  EXPECT_EQ(moves.size(), 6u);
  EXPECT_EQ(reads_.next_deadline(0), kNanosPerSecond);
  EXPECT_TRUE(serve(kNanosPerSecond).empty());
  EXPECT_EQ(reads_.take_gone().size(), 4u);
  end(moves);
  EXPECT_EQ(reads_.waiting(), 0u);
}

TEST_F(PeerReadsTest, WhatDoesNotComeInTimeIsGone) {
  read(1, {coming(100)}, 60 * kNanosPerSecond);
  EXPECT_TRUE(serve().empty());
  EXPECT_EQ(reads_.next_deadline(0), PeerReads::kComingMax);
  EXPECT_TRUE(serve(PeerReads::kComingMax).empty());
  EXPECT_EQ(reads_.take_gone().size(), 1u);
  EXPECT_EQ(reads_.waiting(), 0u);
}

// Half of the places are the disk's at most, however many reads want it; memory's blocks pass them.
TEST_F(PeerReadsTest, ASlowDiskLeavesHalfOfThePlaces) {
  std::uint32_t first = 1000;
  for (std::uint64_t id = 1; id <= 4; ++id) {
    std::vector<ChainKey> keys;
    for (int i = 0; i < 6; ++i) keys.push_back(on_disk(first += 100));
    read(id, keys);
  }
  const std::vector<Move> slow = serve();
  EXPECT_EQ(from(slow, Tier::kDisk), 8u);
  EXPECT_EQ(slow.size(), 8u);
  // It stands behind one that waits for the disk.
  read(9, {on_disk(first += 100), on_device(first += 100), on_device(first += 100)});
  const std::vector<Move> fast = serve();
  EXPECT_EQ(from(fast, Tier::kDevice), 2u);
  EXPECT_EQ(fast.size(), 2u);
  end(fast);
  end(slow);
  EXPECT_EQ(from(serve(), Tier::kDisk), 8u) << "the places are there again";
}

// Thousands of waits for what is being computed cost a step a bounded part of them, and each is come to.
TEST_F(PeerReadsTest, AStepLooksAtABoundedNumberOfWaits) {
  const ChainKey late = coming(100);
  std::vector<ChainKey> keys(4 * PeerReads::kLooksMax, late);
  keys.push_back(on_device(200));
  read(1, keys);
  int steps = 0;
  std::vector<Move> begun;
  while (begun.empty() && ++steps < 100) {
    EXPECT_LE(reads_.next_deadline(0), steps == 1 ? kNever : 10 * kNanosPerMilli) << "it goes on by itself";
    begun = serve();
  }
  EXPECT_EQ(steps, 5);
  ASSERT_EQ(begun.size(), 1u);
  EXPECT_EQ(begun[0].peer->index, 4 * PeerReads::kLooksMax);
  end(begun);
  reads_.leave(PeerReadId(1));
  reads_.check_invariants();
  EXPECT_EQ(reads_.waiting(), 0u);
}

// Whose waits are all in vain uses up a step's looks, and the next step begins behind it.
TEST_F(PeerReadsTest, ManyWaitsInVainHoldUpNoOtherRead) {
  read(1, std::vector<ChainKey>(4 * PeerReads::kLooksMax, coming(100)));
  EXPECT_TRUE(serve().empty());
  read(2, {on_device(200)});
  const std::vector<Move> begun = serve();
  ASSERT_EQ(begun.size(), 1u);
  end(begun);
}

TEST_F(PeerReadsTest, WhoLeftGetsNothingMoreAndWhatBeganGoesOn) {
  const ChainKey a = on_device(100);
  read(1, {a, coming(200)});
  const std::vector<Move> begun = serve();
  ASSERT_EQ(begun.size(), 1u);
  reads_.leave(PeerReadId(1));
  reads_.check_invariants();
  EXPECT_TRUE(serve().empty());
  end(begun);
  EXPECT_EQ(transfers_.serves_in_flight(), 0u);
}

// Its pin may be the last of the block, whose copies then may go.
TEST_F(PeerReadsTest, WhatIsReadWhenTheTransfersEndIsReadNoMore) {
  const ChainKey key = on_disk(200);
  {
    Transfers transfers(config_, costs_, index_);
    PeerReads reads(index_, transfers);
    reads.add({.id = PeerReadId(1), .wants = {{key, 1}}, .deadline = kNanosPerSecond}, 0);
    reads.serve(0, {});
    ASSERT_EQ(transfers.take_begun().size(), 1u);
    EXPECT_EQ(index_.block(index_.find(key)).copy(Tier::kDisk, 0)->readers, 1u);
  }
  EXPECT_EQ(index_.block(index_.find(key)).copy(Tier::kDisk, 0)->readers, 0u);
}

}  // namespace
}  // namespace loci
