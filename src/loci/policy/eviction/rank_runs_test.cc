// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/eviction/rank_runs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
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

// What waits is asked for between all changes, or never, or now and then; so each kind of row meets each
// other one. Rows are longer than what waits at most, leave each run in part, and go on in the next runs and
// far behind them.
template <std::size_t kMost>
void compare_rows(std::uint64_t seed) {
  Random random(seed);
  RankRuns<Rank, kMost> runs;
  std::set<Rank> plain;
  const std::uint64_t asks = std::array<std::uint64_t, 4>{1, 2, 20, 1'000'000}[seed % 4];
  const auto ask = [&] {
    ASSERT_EQ(runs.size(), plain.size());
    if (random.below(asks) != 0 || plain.empty()) return;
    ASSERT_EQ(runs.first(), *plain.begin()) << "seed " << seed;
    const Rank soon = runs.soon();  // it may have gone since; nobody may crash who asks
    ASSERT_LT(soon.number, 1'000'000u);
  };
  for (std::uint32_t step = 0; step < 300; ++step) {
    const auto begin = static_cast<std::uint32_t>(random.below(2000));
    const auto apart = 1 + static_cast<std::uint32_t>(random.below(random.below(3) == 0 ? 40 : 3));
    const auto many = static_cast<std::uint32_t>(random.below(300));
    const bool descends = random.below(2) == 0;
    const std::uint64_t kind = random.below(4);
    if (kind == 0) {  // the least ones are taken
      for (std::uint32_t i = 0; i < many && !plain.empty(); ++i) {
        ASSERT_EQ(runs.first(), *plain.begin()) << "seed " << seed << ", step " << step;
        runs.erase(*plain.begin());
        plain.erase(plain.begin());
      }
      continue;
    }
    for (std::uint32_t i = 0; i < many; ++i) {
      const Rank rank{0, begin + (descends ? many - i : i) * apart};
      const bool is_there = plain.contains(rank);
      if (kind == 1 && is_there) {
        runs.erase(rank);
        plain.erase(rank);
      } else if (kind == 2 && !is_there) {
        runs.insert(rank);
        plain.insert(rank);
      } else if (kind == 3 && is_there) {  // as what is used: it goes, and comes further behind
        const Rank used{1 + step, rank.number};
        runs.erase(rank);
        plain.erase(rank);
        runs.insert(used);
        plain.insert(used);
        if (random.below(8) != 0) continue;
        runs.erase(used);  // it has only just come
        plain.erase(used);
        runs.insert(rank);  // it has only just gone
        plain.insert(rank);
      }
      ask();
    }
    if (step % 32 == 0) runs.check_invariants();
  }
  runs.check_invariants();
  for (; !plain.empty(); plain.erase(plain.begin())) {
    ASSERT_EQ(runs.first(), *plain.begin()) << "seed " << seed;
    runs.erase(*plain.begin());
  }
  EXPECT_TRUE(runs.empty());
}

TEST(RankRuns, MergeRowsWheneverTheyAreAskedFor) {
  for (std::uint64_t seed = 0; seed < test_rounds(40); ++seed) {
    compare_rows<4>(seed);
    compare_rows<16>(seed);
    compare_rows<64>(seed);
  }
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
  // Nothing of it is in a run yet.
  RankRuns<Rank> fresh;
  fresh.insert({3, 7});
  fresh.erase({4, 7});
  fresh.insert({5, 7});
  EXPECT_DEATH(fresh.first(), "only what is in the order leaves it");
}

}  // namespace
}  // namespace loci
