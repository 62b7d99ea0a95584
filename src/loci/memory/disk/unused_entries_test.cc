// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/disk/unused_entries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "loci/memory/disk/disk_recovery.h"
#include "loci/memory/disk/disk_testing.h"

namespace loci {
namespace {

bool never() { return false; }

RecoveredEntry entry_of(std::uint64_t key, std::uint64_t parent, std::uint32_t depth, std::int64_t used_at) {
  RecoveredEntry one{.entry = test_entry(key, depth), .slot = SlotId(static_cast<std::uint32_t>(key))};
  one.entry.parent = test_key(parent);
  one.entry.parent_kind = depth == 1 ? ParentKind::kRoot : ParentKind::kBlock;
  one.entry.above = {};
  one.entry.used_at = used_at;
  return one;
}

using Slots = std::set<std::tuple<std::uint32_t, std::uint32_t>>;  // of groups

Slots unused(const std::vector<RecoveredEntry>& entries, std::int64_t before) {
  UnusedEntries all(before);
  for (const RecoveredEntry& one : entries) all.add(one, 0);
  Slots slots;
  const std::vector<std::vector<UnusedEntry>> found = all.take(1, never);
  for (const UnusedEntry& one : found[0]) slots.emplace(one.group, one.slot.value);
  return slots;
}

TEST(UnusedEntries, WhatLeadsToSomethingYoungStays) {
  std::vector<RecoveredEntry> entries = {
      entry_of(1, 900, 1, 90), entry_of(2, 1, 2, 120), entry_of(3, 900, 1, 90),  entry_of(4, 3, 2, 80),
      entry_of(5, 900, 1, 90), entry_of(6, 5, 2, 110), entry_of(7, 900, 1, 100), entry_of(8, 999, 7, 10)};
  entries[4].hole = true;
  EXPECT_EQ(unused(entries, 100), (Slots{{0, 3}, {0, 4}, {0, 8}}));
  EXPECT_EQ(unused(entries, 0), Slots{});
  EXPECT_EQ(unused(entries, 121).size(), entries.size());
  EXPECT_TRUE(unused(entries, 121).contains({kHoleGroup, 5}));
}

TEST(UnusedEntries, AStopEndsIt) {
  UnusedEntries all(100);
  for (std::uint64_t i = 0; i < 100'000; ++i) all.add(entry_of(i, 900'000, 1, 1), 0);
  EXPECT_LT(all.take(1, [] { return true; })[0].size(), 2000u);
}

// Trees with gates, holes, several groups, and entries whose parents are missing: it keeps what a start of
// the model's own server would, and nothing else.
TEST(UnusedEntries, JudgesAsAStartDoes) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    std::vector<RecoveredEntry> entries;
    std::vector<std::tuple<std::uint64_t, std::uint32_t>> blocks = {{1'000'000, 0}};
    for (std::uint64_t key = 0; key < 60; ++key) {
      const auto [parent, depth] = blocks[random.below(blocks.size())];
      blocks.emplace_back(key, depth + 1);
      if (random.below(10) == 0) continue;  // its record is lost
      RecoveredEntry one = entry_of(key, parent, depth + 1, static_cast<std::int64_t>(random.below(200)));
      if (depth > 0 && random.below(5) == 0) {
        one.entry.parent_kind = ParentKind::kGate;
        one.entry.above = test_key(parent);
        one.entry.parent = test_key(parent + 5'000'000);
      }
      one.hole = random.below(6) == 0;
      entries.push_back(one);
      if (one.hole || random.below(2) == 0) continue;
      one.group = 1;
      one.entry.used_at = static_cast<std::int64_t>(random.below(200));
      entries.push_back(one);
    }
    std::vector<RecoveredEntry> dated = entries;
    date_by_youngest(dated, recovery_order(dated));
    for (const std::int64_t before : {1, 50, 100, 150, 199, 200}) {
      Slots expected;
      for (const RecoveredEntry& one : dated) {
        if (one.entry.used_at < before) expected.emplace(one.hole ? kHoleGroup : one.group, one.slot.value);
      }
      ASSERT_EQ(unused(entries, before), expected) << seed << " " << before;
    }
  }
}

}  // namespace
}  // namespace loci
