// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/save_wishes.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "loci/engine/testing/transfers_testing.h"

namespace loci {
namespace {

using Line = SaveWishes::Line;

class SaveWishesTest : public TransfersFixture {
 protected:
  SaveWishesTest()
      : TransfersFixture({.window = 0, .block_count = 4, .host_blocks = 0, .disk_blocks = 8}, 4) {}

  void wish(Line line, const BlockPin& pin) {
    wishes_.add(line, pin.block(), SaveScope::kAllGroups, StateForm::kKeysAndValues);
  }
  // kNoBlock: nobody's turn has come.
  BlockId next(Line line) {
    const std::optional<SaveWishes::Wish> wish = wishes_.take(line);
    return wish ? wish->block : kNoBlock;
  }

  SaveWishes wishes_{index_};
};

TEST_F(SaveWishesTest, WhatIsGoneIsPassedOver) {
  const BlockPin b = computed(200);
  std::optional<BlockPin> a = computed(100);
  const BlockId gone = a->block();
  wish(Line::kFromDevice, *a);
  wish(Line::kFromDevice, b);
  a.reset();
  index_.forget(gone);
  EXPECT_EQ(next(Line::kFromDevice), b.block());
  EXPECT_EQ(next(Line::kFromDevice), kNoBlock);
  EXPECT_EQ(wishes_.dropped(), 0u) << "nothing gave way to others";
}

TEST_F(SaveWishesTest, ABlockThatTookItsPlaceIsAnother) {
  std::optional<BlockPin> a = computed(100);
  const BlockId place = a->block();
  wish(Line::kFromDevice, *a);
  a.reset();
  index_.forget(place);
  std::vector<BlockPin> others;
  bool taken = false;
  for (std::uint32_t i = 0; i < 4; ++i) {
    others.push_back(computed(1000 + 100 * i));
    taken = taken || others.back().block() == place;
  }
  ASSERT_TRUE(taken) << "another block has its id";
  EXPECT_EQ(next(Line::kFromDevice), kNoBlock);
}

TEST_F(SaveWishesTest, WhatCannotBeSavedYetKeepsItsTurnAndHoldsUpNoOtherLine) {
  const BlockPin a = computed(100), b = computed(200), c = computed(300);
  wish(Line::kWindows, a);
  wish(Line::kWindows, b);
  wish(Line::kFromDevice, c);
  const std::optional<SaveWishes::Wish> first = wishes_.take(Line::kWindows);
  ASSERT_TRUE(first);
  wishes_.keep_first(Line::kWindows, *first);
  EXPECT_EQ(next(Line::kFromDevice), c.block());
  EXPECT_EQ(next(Line::kWindows), a.block());
  EXPECT_EQ(next(Line::kWindows), b.block());
  EXPECT_EQ(next(Line::kWindows), kNoBlock);
}

TEST_F(SaveWishesTest, LinesHaveTurnsOfTheirOwn) {
  const BlockPin a = computed(100), b = computed(200);
  wish(Line::kFromDevice, a);
  wish(Line::kToShared, b);
  wishes_.add_first(Line::kFromDevice, b.block(), SaveScope::kWithoutWindows);
  EXPECT_EQ(wishes_.waiting(), 3u);
  EXPECT_TRUE(wishes_.empty(Line::kFromHost));
  EXPECT_EQ(next(Line::kFromDevice), b.block());
  EXPECT_EQ(next(Line::kFromDevice), a.block());
  EXPECT_EQ(next(Line::kToShared), b.block());
  EXPECT_EQ(wishes_.waiting(), 0u);
}

TEST_F(SaveWishesTest, TheOldestGiveWayToTooMany) {
  const BlockPin a = computed(100), b = computed(200);
  wish(Line::kFromDevice, a);
  for (int i = 0; i < 4096; ++i) wish(Line::kFromDevice, b);
  wishes_.check_invariants();
  EXPECT_EQ(wishes_.dropped(), 1u);
  wishes_.add_first(Line::kFromDevice, a.block(), SaveScope::kWithoutWindows);  // it would be the oldest
  wishes_.check_invariants();
  EXPECT_EQ(wishes_.dropped(), 2u);
  EXPECT_EQ(next(Line::kFromDevice), b.block());
}

TEST_F(SaveWishesTest, ATailIsThereWhileItIsUnchanged) {
  const BlockPin root = index_.open_root(hasher_.root("t"));
  const BlockPin tail = index_.open_tail(root.block());
  std::optional<AppendToken> token = index_.claim(tail.block());
  BlockPin held = index_.pin(tail.block());
  ASSERT_TRUE(index_.place(held, 0));
  index_.append(*token, run_of(1, 3));
  wishes_.add_tail(tail.block(), hasher_.root("its name"));
  EXPECT_TRUE(wishes_.has_tails());
  std::deque<SaveWishes::TailWish> tails = wishes_.take_tails();
  ASSERT_EQ(tails.size(), 1u);
  EXPECT_TRUE(wishes_.is_there(tails.front()));
  EXPECT_FALSE(wishes_.has_tails());
  index_.append(*token, run_of(4, 1));
  EXPECT_FALSE(wishes_.is_there(tails.front())) << "it goes on";
  wishes_.keep_tails(std::move(tails));
  wishes_.check_invariants();
  EXPECT_EQ(wishes_.waiting(), 1u);
}

}  // namespace
}  // namespace loci
