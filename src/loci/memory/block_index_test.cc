// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/block_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"
#include "loci/memory/block_index_testing.h"

namespace loci {
namespace {

class DeepestFirst final : public EvictionOrder {
 public:
  void insert(BlockId block, const EvictionFacts& facts) override { blocks_.emplace(facts.depth, block); }
  void erase(BlockId block, const EvictionFacts& facts) override {
    ASSERT_EQ(blocks_.erase({facts.depth, block}), 1u);
  }
  BlockId choose(Nanos) override { return blocks_.empty() ? kNoBlock : blocks_.rbegin()->second; }
  std::size_t size() const override { return blocks_.size(); }

 private:
  std::set<std::pair<std::uint32_t, BlockId>> blocks_;
};

TEST_F(BlockIndexTest, AnotherOrderTakesOverWhatIsThere) {
  BlockPin used = full(root().block(), tokens_of({9}, kBlockTokens));
  {
    const BlockPin first = full(root().block(), tokens_of({1}, kBlockTokens));
    const BlockPin second = full(first.block(), tokens_of({2}, kBlockTokens));
    full(second.block(), tokens_of({3}, kBlockTokens));
  }
  EXPECT_EQ(index_.evictable_count(0), 3u);
  index_.set_orders(Tier::kDevice, 0, std::make_unique<DeepestFirst>(), nullptr);
  EXPECT_EQ(index_.evictable_count(0), 3u);
  index_.check_invariants();
  {
    const BlockPin let_go = std::move(used);
  }
  EXPECT_EQ(index_.evictable_count(0), 4u);
  std::vector<SlotReservation> all;
  while (index_.free_count(0) > 0) all.push_back(*index_.reserve(0));
  const std::uint32_t nodes = index_.block_count();
  all.push_back(*index_.reserve(0));
  EXPECT_EQ(index_.block_count(), nodes - 1) << "the deepest went, and nothing hangs from it";
  const std::uint32_t detached[] = {static_cast<std::uint32_t>(all.size())};
  index_.check_invariants(detached);
}

// Two sequences of three and two blocks, which share the first.
TEST_F(BlockIndexTest, TellsTheMeanStateOfASession) {
  EXPECT_EQ(index_.mean_session_blocks(), 0u);
  BlockPin shared = full(root().block(), tokens_of({1}, kBlockTokens));
  EXPECT_EQ(index_.mean_session_blocks(), 1u);
  {
    BlockPin second = full(shared.block(), tokens_of({2}, kBlockTokens));
    BlockPin third = full(second.block(), tokens_of({3}, kBlockTokens));
    EXPECT_EQ(index_.mean_session_blocks(), 3u);
    BlockPin other = full(shared.block(), tokens_of({4}, kBlockTokens));
    EXPECT_EQ(index_.mean_session_blocks(), 2u) << "four blocks, two ends";
    BlockPin tail_of_it = tail(other.block(), tokens_of({5}));
    EXPECT_EQ(index_.mean_session_blocks(), 2u);
    index_.check_invariants();
  }
}

TEST_F(BlockIndexTest, MatchesByTokenInsideABlock) {
  const BlockPin r = root();
  EXPECT_EQ(index_.match_children(r.block(), tokens_of({1})).run, 0u);
  const BlockPin a = tail(r.block(), tokens_of({1, 2, 3}));
  const BlockPin b = full(r.block(), tokens_of({1, 2, 4, 5}, kBlockTokens));
  const auto match = [&](std::initializer_list<std::uint32_t> q) {
    const ChildMatch m = index_.match_children(r.block(), tokens_of(q));
    return std::pair(m.child, m.run);
  };
  EXPECT_EQ(match({1, 2, 3, 9}), std::pair(a.block(), 3u));
  EXPECT_EQ(match({1, 2, 4, 5, 0}), std::pair(b.block(), 4u));
  EXPECT_EQ(match({1, 2, 9}).second, 2u);
  EXPECT_EQ(match({1}).second, 1u);
  EXPECT_EQ(match({0}).second, 0u);
  EXPECT_EQ(match({2}).second, 0u);
  index_.check_invariants();
}

TEST_F(BlockIndexTest, PrefersATailThatMayBeTakenOver) {
  const BlockPin r = root();
  const BlockPin used = tail(r.block(), tokens_of({1, 2, 3, 4}));
  BlockId unused;
  {
    const BlockPin pin = tail(r.block(), tokens_of({1, 2, 9}));
    unused = pin.block();
  }
  EXPECT_TRUE(index_.can_take_over(unused));
  EXPECT_FALSE(index_.can_take_over(used.block()));
  EXPECT_EQ(index_.match_children(r.block(), tokens_of({1, 2, 9, 5})).child, unused);
  // A run that ends inside all of them may be copied from any, taken over from none.
  EXPECT_EQ(index_.match_children(r.block(), tokens_of({1, 2, 5})).run, 2u);
}

TEST_F(BlockIndexTest, NodesEndWhenNothingNeedsThem) {
  {
    const BlockPin r = root();
    const BlockPin a = full(r.block(), tokens_of({1}, kBlockTokens));
    BlockPin empty = index_.open_tail(a.block());
    ASSERT_TRUE(index_.place(empty, 0));
    EXPECT_EQ(index_.block_count(), 3u);
    EXPECT_EQ(index_.available(0), 6u);
  }
  index_.check_invariants();
  EXPECT_EQ(index_.block_count(), 2u) << "the empty tail ended; root and block have state below or in them";
  EXPECT_EQ(index_.available(0), 8u);
  // Taking every slot evicts the block; then the root ends too.
  const BlockPin other = root("other");
  std::vector<BlockPin> held;
  for (std::uint32_t i = 0; i < 8; ++i) held.push_back(tail(other.block(), tokens_of({i + 50})));
  EXPECT_EQ(index_.find(hasher_.root("g")), kNoBlock);
  EXPECT_EQ(index_.evictions(), 1u);
  BlockPin ninth = index_.open_tail(other.block());
  EXPECT_FALSE(index_.place(ninth, 0)) << "all slots hold what is pinned";
  index_.check_invariants();
}

TEST_F(BlockIndexTest, AHoleStaysWhileItsDescendantsHaveState) {
  const Tokens first = tokens_of({1}, kBlockTokens), second = tokens_of({2}, kBlockTokens);
  ChainKey first_key, second_key;
  {
    const BlockPin r = root();
    BlockPin a = full(r.block(), first);
    first_key = index_.block(a.block()).key;
    std::optional<BlockPin> b = full(a.block(), second);
    second_key = index_.block(b->block()).key;
    {
      const BlockPin first_let_go = std::move(a);
    }  // so it is the first victim
  }
  const BlockPin other = root("other");
  std::vector<BlockPin> held;
  for (std::uint32_t i = 0; i < 7; ++i) held.push_back(tail(other.block(), tokens_of({i + 50})));
  ASSERT_NE(index_.find(first_key), kNoBlock);
  EXPECT_EQ(index_.block(index_.find(first_key)).filled, 0u) << "a hole";
  EXPECT_EQ(index_.block(index_.find(second_key)).filled, kBlockTokens);
  index_.check_invariants();
  held.push_back(tail(other.block(), tokens_of({99})));
  EXPECT_EQ(index_.find(first_key), kNoBlock) << "holes end with their last descendant";
  EXPECT_EQ(index_.block_count(), 9u);
  index_.check_invariants();
}

TEST_F(BlockIndexTest, OneWriterAtATime) {
  const BlockPin r = root();
  BlockPin pin = index_.open_tail(r.block());
  ASSERT_TRUE(index_.place(pin, 0));
  auto first = index_.claim(pin.block());
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(index_.claim(pin.block()).has_value());
  first.reset();
  EXPECT_TRUE(index_.claim(pin.block()).has_value());
}

TEST_F(BlockIndexTest, ATailBecomesAFullNodeOrGivesWayToOne) {
  const BlockPin r = root();
  const Tokens whole = tokens_of({1, 2}, kBlockTokens);
  const ChainKey k = key(r.block(), whole);
  BlockPin a = tail(r.block(), whole);
  BlockPin b = tail(r.block(), whole);
  AppendToken ta = *index_.claim(a.block()), tb = *index_.claim(b.block());
  const BlockId a_id = a.block();
  Completion first = index_.complete(std::move(a), std::move(ta), k);
  EXPECT_EQ(first.pin.block(), a_id);
  EXPECT_EQ(index_.available(0), 6u);
  Completion second = index_.complete(std::move(b), std::move(tb), k);
  EXPECT_EQ(second.pin.block(), a_id);
  EXPECT_FALSE(second.replaced[0].has_value());
  ASSERT_TRUE(second.dropped[0].has_value()) << "somebody may be reading it";
  index_.check_invariants(std::vector<std::uint32_t>{1});
  EXPECT_EQ(index_.available(0), 6u);
  second.dropped[0].reset();
  EXPECT_EQ(index_.available(0), 7u) << "the same bits once";
  index_.check_invariants();
}

TEST_F(BlockIndexTest, ASlotMayBeTakenBeforeItsBlockIsThere) {
  const BlockPin r = root();
  std::vector<SlotReservation> taken;
  while (std::optional<SlotReservation> slot = index_.reserve(0)) taken.push_back(std::move(*slot));
  EXPECT_EQ(taken.size(), 8u);
  index_.check_invariants(std::vector<std::uint32_t>{8});
  BlockPin pin = index_.open_tail(r.block());
  EXPECT_FALSE(index_.place(pin, 0));
  const SlotId slot = taken.back().slot();
  index_.place(pin, 0, std::move(taken.back()));
  taken.clear();
  EXPECT_EQ(index_.block(pin.block()).parts[0]->slot.slot(), slot);
  EXPECT_TRUE(pin.holds(0));
  EXPECT_EQ(index_.available(0), 7u);
  index_.check_invariants();
}

TEST_F(BlockIndexTest, AWholeTailRepairsAFullNodeThatIsFilling) {
  const BlockPin r = root();
  const Tokens whole = tokens_of({1, 2}, kBlockTokens);
  const ChainKey k = key(r.block(), whole);
  BlockPin filling = index_.open_full(r.block(), k, whole);
  ASSERT_TRUE(index_.place(filling, 0));
  const AppendToken writer = *index_.claim(filling.block());
  index_.fill(writer, 5);
  BlockPin a = tail(r.block(), whole);
  const SlotId slot = index_.block(a.block()).parts[0]->slot.slot();
  AppendToken ta = *index_.claim(a.block());
  Completion done = index_.complete(std::move(a), std::move(ta), k);
  ASSERT_TRUE(done.replaced[0].has_value());
  done.replaced[0].reset();
  EXPECT_EQ(done.pin.block(), filling.block());
  EXPECT_EQ(index_.block(filling.block()).parts[0]->slot.slot(), slot);
  EXPECT_EQ(index_.block(filling.block()).filled, kBlockTokens);
  index_.fill(writer, 9);  // what the writer brought meanwhile takes nothing away
  EXPECT_EQ(index_.block(filling.block()).filled, kBlockTokens);
  index_.check_invariants();
}

TEST_F(BlockIndexTest, WhatIsLeftHalfFilledIsFoundByItsTokens) {
  const BlockPin r = root();
  const Tokens whole = tokens_of({1, 2, 3, 4}, kBlockTokens);
  const ChainKey k = key(r.block(), whole);
  {
    BlockPin pin = index_.open_full(r.block(), k, whole);
    ASSERT_TRUE(index_.place(pin, 0));
    const auto token = index_.claim(pin.block());
    index_.fill(*token, 3);
  }
  EXPECT_EQ(index_.find(k), kNoBlock);
  const ChildMatch match = index_.match_children(r.block(), whole);
  EXPECT_EQ(match.run, 3u);
  ASSERT_TRUE(index_.can_take_over(match.child));
  const BlockPin again = index_.promote(index_.pin(match.child), k, whole);
  EXPECT_EQ(index_.find(k), again.block());
  EXPECT_EQ(index_.block(again.block()).filled, 3u);
  index_.check_invariants();
}

TEST_F(BlockIndexTest, AnUnusedTailWhoseStateASiblingHasIsDropped) {
  const BlockPin r = root();
  const BlockPin longer = tail(r.block(), tokens_of({1, 2, 3, 4}));
  {
    const BlockPin shorter = tail(r.block(), tokens_of({1, 2, 3}));
  }
  {
    const BlockPin equal = tail(r.block(), tokens_of({1, 2, 3, 4}));
  }
  EXPECT_EQ(index_.evictable_count(0), 0u);
  EXPECT_EQ(index_.free_count(0), 7u);
  {
    const BlockPin other = tail(r.block(), tokens_of({1, 2, 5}));
  }
  EXPECT_EQ(index_.evictable_count(0), 1u);
  index_.check_invariants();
}

// Two groups: parts are placed, held and evicted apart.
class BlockIndexGroups : public testing::Test {
 protected:
  BlockPin root() { return index_.open_root(hasher_.root("g")); }
  BlockPin full(BlockId parent, const Tokens& tokens) {
    const ChainKey key = hasher_.child(index_.block(parent).key, tokens);
    BlockPin pin = index_.open_full(parent, key, tokens);
    for (std::uint32_t group = 0; group < 2; ++group) EXPECT_TRUE(index_.place(pin, group));
    index_.fill(*index_.claim(pin.block()), kBlockTokens);
    return pin;
  }
  BlockPin tail(BlockId parent, const Tokens& tokens) {
    BlockPin pin = index_.open_tail(parent);
    for (std::uint32_t group = 0; group < 2; ++group) EXPECT_TRUE(index_.place(pin, group));
    index_.append(*index_.claim(pin.block()), tokens);
    return pin;
  }

  ChainKeyHasher hasher_{{}, {}};
  BlockIndex index_{pools({8, 3})};
};

TEST_F(BlockIndexGroups, APartIsLetGoWhileTheOthersAreHeld) {
  const BlockPin r = root();
  BlockPin a = full(r.block(), tokens_of({1}, kBlockTokens));
  BlockPin b = full(a.block(), tokens_of({2}, kBlockTokens));
  EXPECT_EQ(index_.available(1), 1u);
  index_.let_go(a, 1, Release::kBehindWindow);
  EXPECT_TRUE(a.holds(0));
  EXPECT_FALSE(a.holds(1));
  EXPECT_EQ(index_.available(0), 6u);
  EXPECT_EQ(index_.available(1), 2u);
  EXPECT_EQ(index_.block(a.block()).filled, kBlockTokens) << "it is still there";
  const BlockPin c = full(b.block(), tokens_of({3}, kBlockTokens));
  EXPECT_EQ(index_.evictions(), 0u);
  const BlockPin d = full(c.block(), tokens_of({4}, kBlockTokens));
  EXPECT_EQ(index_.evictions(), 1u);
  EXPECT_EQ(index_.block(a.block()).filled, 0u) << "nothing is complete without the part";
  EXPECT_EQ(index_.block(a.block()).filled_in(0), kBlockTokens);
  EXPECT_EQ(index_.match_children(r.block(), tokens_of({1}, kBlockTokens)).run, 0u);
  index_.check_invariants();
  // Its one part comes again and takes the other along.
  index_.let_go(b, 1, Release::kBehindWindow);
  ASSERT_TRUE(index_.place(a, 1));
  index_.fill(*index_.claim(a.block()), 7);
  EXPECT_EQ(index_.block(a.block()).filled, 7u);
  EXPECT_EQ(index_.block(a.block()).filled_in(0), kBlockTokens);
  index_.check_invariants();
}

TEST_F(BlockIndexGroups, ALeafThatLacksAPartEndsAndWhatLedToIt) {
  {
    const BlockPin r = root();
    BlockPin a = full(r.block(), tokens_of({1}, kBlockTokens));
    BlockPin b = full(a.block(), tokens_of({2}, kBlockTokens));
    index_.let_go(a, 1, Release::kBehindWindow);
    index_.let_go(b, 1, Release::kBehindWindow);
    const BlockPin end = tail(b.block(), tokens_of({3, 4}));
  }
  EXPECT_EQ(index_.block_count(), 4u);
  {
    const BlockPin other = index_.open_root(hasher_.root("other"));
    const BlockPin first = tail(other.block(), tokens_of({1}));
    const BlockPin second = tail(other.block(), tokens_of({2}));
    EXPECT_EQ(index_.free_count(0), 3u) << "holes in one group do not end while something leads on";
    const BlockPin third = tail(other.block(), tokens_of({3}));
    EXPECT_EQ(index_.find(hasher_.root("g")), kNoBlock) << "the tail went, and all that led to it alone";
    EXPECT_EQ(index_.free_count(0), 5u);
    index_.check_invariants();
  }
}

TEST_F(BlockIndexGroups, AWholeTailGivesWhatTheFullNodeLacks) {
  const BlockPin r = root();
  const Tokens whole = tokens_of({1, 2}, kBlockTokens);
  BlockPin there = full(r.block(), whole);
  BlockPin copy = tail(r.block(), whole);
  index_.let_go(there, 1, Release::kBehindWindow);
  {
    const BlockPin first = tail(r.block(), tokens_of({8})), second = tail(r.block(), tokens_of({9}));
    EXPECT_EQ(index_.block(there.block()).filled_in(1), 0u);
  }
  const SlotId slot = index_.block(copy.block()).parts[1]->slot.slot();
  AppendToken token = *index_.claim(copy.block());
  const ChainKey key = index_.block(there.block()).key;
  Completion done = index_.complete(std::move(copy), std::move(token), key);
  EXPECT_EQ(done.pin.block(), there.block());
  EXPECT_TRUE(!done.replaced[0] && !done.replaced[1]);
  EXPECT_TRUE(done.dropped[0] && !done.dropped[1]);
  done.dropped[0].reset();
  EXPECT_TRUE(done.pin.holds(0) && done.pin.holds(1));
  EXPECT_EQ(index_.block(there.block()).parts[1]->slot.slot(), slot);
  EXPECT_EQ(index_.block(there.block()).filled, kBlockTokens);
  index_.check_invariants();
}

// Against std::map: each prefix whose state is stored. Sequences of few letters come, are stored, and
// are dropped or kept pinned; nothing is evicted, so a lookup finds all that was ever stored.
TEST(BlockIndexFuzz, AgreesWithAMapOfPrefixes) {
  for (std::uint64_t seed = 0; seed < test_rounds(60); ++seed) {
    Random random(seed);
    const ChainKeyHasher hasher({}, {});
    BlockIndex index(pools({20'000}));
    std::map<Tokens, bool> stored;
    std::vector<Tokens> sequences{{}};
    std::vector<std::vector<BlockPin>> pinned;
    for (int turn = 0; turn < 40; ++turn) {
      Tokens tokens = sequences[random.below(sequences.size())];
      tokens.resize(random.below(tokens.size() + 1));
      for (std::uint64_t more = 1 + random.below(60); more > 0; --more) {
        tokens.push_back(TokenId(static_cast<std::uint32_t>(random.below(2))));
      }
      // Look: whole blocks by key, then a run of tokens.
      std::vector<BlockPin> path;
      path.push_back(index.open_root(hasher.root("g")));
      std::size_t found = 0;
      ChainKey key = hasher.root("g");
      std::size_t i = 0;
      const std::span<const TokenId> all(tokens);
      for (; i + kBlockTokens <= tokens.size(); i += kBlockTokens) {
        const ChainKey next = hasher.child(key, all.subspan(i, kBlockTokens));
        const BlockId block = index.find(next);
        if (block == kNoBlock) break;
        key = next;
        path.push_back(index.pin(block));
        found += index.block(block).filled;
      }
      const auto rest = all.subspan(i, std::min<std::size_t>(kBlockTokens, tokens.size() - i));
      if (!rest.empty()) found += index.match_children(path.back().block(), rest).run;
      std::size_t expected = 0;
      while (expected < tokens.size() &&
             stored.contains(Tokens(tokens.begin(), tokens.begin() + expected + 1))) {
        ++expected;
      }
      ASSERT_EQ(found, expected) << "seed " << seed << ", turn " << turn;
      // Store the rest.
      for (; i < tokens.size(); i += kBlockTokens) {
        const auto block_tokens = all.subspan(i, std::min<std::size_t>(kBlockTokens, tokens.size() - i));
        BlockPin tail = index.open_tail(path.back().block());
        ASSERT_TRUE(index.place(tail, 0));
        AppendToken token = *index.claim(tail.block());
        index.append(token, block_tokens);
        if (block_tokens.size() < kBlockTokens) {
          {
            const AppendToken done = std::move(token);
          }
          path.push_back(std::move(tail));
        } else {
          key = hasher.child(key, block_tokens);
          path.push_back(index.complete(std::move(tail), std::move(token), key).pin);
        }
      }
      for (std::size_t n = 1; n <= tokens.size(); ++n)
        stored[Tokens(tokens.begin(), tokens.begin() + n)] = true;
      sequences.push_back(tokens);
      if (random.below(3) == 0) pinned.push_back(std::move(path));
      if (random.below(3) == 0) pinned.clear();
      path.clear();
      index.check_invariants();
    }
    ASSERT_EQ(index.evictions(), 0u);
  }
}

}  // namespace
}  // namespace loci
