// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/eviction/rank_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"

namespace loci {
namespace {

struct Rank {
  std::uint32_t time;
  std::uint32_t number;
  friend auto operator<=>(const Rank&, const Rank&) = default;
};

// Whatever comes and goes, against std::set: at any rank, at the last one, and many neighbours at once.
template <std::size_t kMost>
void compare_with_a_plain_set(std::uint64_t seed) {
  Random random(seed);
  RankRuns<Rank, kMost> runs;
  std::set<Rank> plain;
  const std::uint64_t keep = 1 + random.below(400);  // how many there are, about
  for (std::uint32_t step = 0; step < 4000; ++step) {
    const bool inserts = random.below(2 * keep) >= plain.size();
    // Some of a time, as the blocks of a conversation.
    const auto time = static_cast<std::uint32_t>(random.below(4) == 0 ? random.below(step + 1) : step);
    auto from = plain.lower_bound({time, 0});
    // One after the other, in either direction; or anywhere.
    const auto direction = static_cast<std::uint32_t>(random.below(3));
    auto number = static_cast<std::uint32_t>(random.below(1000));
    for (std::uint64_t count = 1 + random.below(random.below(8) == 0 ? 150 : 3); count > 0; --count) {
      if (inserts) {
        const auto away = 1 + static_cast<std::uint32_t>(random.below(3));
        number = direction == 0   ? number + away
                 : direction == 1 ? number - std::min(number, away)
                                  : static_cast<std::uint32_t>(random.below(1000));
        const Rank rank{time, number};
        if (plain.insert(rank).second) runs.insert(rank);
      } else if (!plain.empty()) {
        if (from == plain.end()) from = plain.begin();
        const Rank gone = *from;
        from = direction == 1 && from != plain.begin() ? std::prev(from) : std::next(from);
        runs.erase(gone);
        plain.erase(gone);
      }
    }
    ASSERT_EQ(runs.size(), plain.size()) << "seed " << seed << ", step " << step;
    ASSERT_EQ(runs.empty(), plain.empty());
    if (!plain.empty() && random.below(2) == 0) {
      ASSERT_EQ(runs.first(), *plain.begin()) << "seed " << seed << ", step " << step;
    }
    if (step % 16 == 0) runs.check_invariants();
  }
  while (!plain.empty()) {
    ASSERT_EQ(runs.first(), *plain.begin());
    runs.erase(*plain.begin());
    plain.erase(plain.begin());
  }
  EXPECT_TRUE(runs.empty());
}

TEST(RankRuns, KeepTheOrderOfPlainSets) {
  for (std::uint64_t seed = 0; seed < test_rounds(30); ++seed) {
    compare_with_a_plain_set<4>(seed);
    compare_with_a_plain_set<64>(seed);
  }
}

// Below the first rank again and again.
TEST(RankRuns, GrowAtTheirBegin) {
  RankRuns<Rank, 4> runs;
  for (std::uint32_t i = 1000; i > 0; --i) {
    runs.insert({i, 0});
    ASSERT_EQ(runs.first(), (Rank{i, 0}));
  }
  runs.check_invariants();
  for (std::uint32_t i = 1; i <= 1000; ++i) {
    ASSERT_EQ(runs.first(), (Rank{i, 0}));
    runs.erase({i, 0});
  }
}

// The address sanitizer looks on: an empty run has no last rank to be compared with.
TEST(RankRuns, TakeALeastRankFirst) {
  RankRuns<Rank, 4> runs;
  runs.insert({0, 0});
  EXPECT_EQ(runs.first(), (Rank{0, 0}));
  runs.check_invariants();
}

TEST(RankRunsDeathTest, RefuseWhatIsNotInTheOrder) {
  RankRuns<Rank> runs;
  EXPECT_DEATH(runs.erase({3, 7}), "only what is in the order leaves it");
  runs.insert({3, 7});
  // A row of ranks is looked at when it is merged.
  const auto merge_with = [&runs](auto change) {
    change();
    runs.check_invariants();
  };
  EXPECT_DEATH(merge_with([&] { runs.insert({3, 7}); }), "in the order once");
  EXPECT_DEATH(merge_with([&] { runs.erase({4, 7}); }), "only what is in the order leaves it");
  EXPECT_DEATH(merge_with([&] { runs.erase({2, 7}); }), "only what is in the order leaves it");
}

}  // namespace
}  // namespace loci
