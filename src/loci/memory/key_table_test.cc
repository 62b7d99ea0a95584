// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/key_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <vector>

#include "loci/base/random.h"
#include "loci/base/rounds_testing.h"
#include "loci/memory/eviction_order.h"

namespace loci {
namespace {

ChainKey key_of(std::uint64_t place, std::uint64_t rest) {
  ChainKey key;
  std::memcpy(key.bytes.data(), &place, sizeof place);
  std::memcpy(key.bytes.data() + sizeof place, &rest, sizeof rest);
  return key;
}

TEST(KeyTable, FindsWhatWasInsertedAndNothingElse) {
  KeyTable<BlockId> table;
  EXPECT_EQ(table.find(key_of(1, 1)), kNoBlock);
  EXPECT_FALSE(table.erase(key_of(1, 1)));
  EXPECT_TRUE(table.insert(key_of(1, 1), BlockId(7)));
  EXPECT_FALSE(table.insert(key_of(1, 1), BlockId(8))) << "a key has one node";
  EXPECT_EQ(table.find(key_of(1, 1)), BlockId(7));
  EXPECT_EQ(table.find(key_of(1, 2)), kNoBlock) << "the same place, another key";
  EXPECT_TRUE(table.erase(key_of(1, 1)));
  EXPECT_EQ(table.find(key_of(1, 1)), kNoBlock);
  EXPECT_EQ(table.size(), 0u);
}

// Against std::map, with keys that crowd a few places: those at the table's end go on at its begin.
TEST(KeyTable, IsAMapThatIsNotOrdered) {
  Random random(5);
  for (const std::uint64_t crowd : {1u, 3u, 40u, 1u << 20}) {
    KeyTable<BlockId> table;
    std::map<ChainKey, BlockId> naive;
    for (std::uint32_t i = 0; i < 6000; ++i) {
      // (The last places of a table of any size.)
      const ChainKey key = key_of(~random.below(crowd), random.below(300));
      const bool insert = random.below(5) < (i < 3000 ? 3u : 2u);
      if (insert)
        EXPECT_EQ(table.insert(key, BlockId(i)), naive.emplace(key, BlockId(i)).second);
      else
        EXPECT_EQ(table.erase(key), naive.erase(key) == 1);
      ASSERT_EQ(table.size(), naive.size());
      if (i % (kSlowed ? 512 : 64) == 0) table.check_invariants();
      const auto found = naive.find(key);
      ASSERT_EQ(table.find(key), found == naive.end() ? kNoBlock : found->second);
    }
    for (const auto& [key, block] : naive) EXPECT_EQ(table.find(key), block);
  }
}

TEST(KeyTable, KeepsItsKeysAsItGrows) {
  KeyTable<BlockId> table;
  table.reserve(100);
  for (std::uint32_t i = 0; i < 5000; ++i) EXPECT_TRUE(table.insert(key_of(i * 977, i), BlockId(i)));
  table.check_invariants();
  for (std::uint32_t i = 0; i < 5000; ++i) EXPECT_EQ(table.find(key_of(i * 977, i)), BlockId(i));
  table.reserve(100'000);
  table.check_invariants();
  for (std::uint32_t i = 0; i < 5000; ++i) EXPECT_EQ(table.find(key_of(i * 977, i)), BlockId(i));
}

// In a table that is about to move: keys that have, that have not, and that have gone meanwhile.
TEST(KeyTable, IsWholeWhileItsKeysMove) {
  constexpr std::uint32_t kKeys = 1024;  // half of the places
  const auto key = [](std::uint32_t i) { return key_of(mix64(i), i); };
  KeyTable<BlockId> table;
  table.reserve(kKeys);
  for (std::uint32_t i = 0; i < kKeys; ++i) ASSERT_TRUE(table.insert(key(i), BlockId(i)));
  for (std::uint32_t more = 0; more < 400; ++more) {
    ASSERT_TRUE(table.insert(key(kKeys + more), BlockId(kKeys + more)));
    ASSERT_FALSE(table.insert(key(more * 2 + 1), BlockId(0))) << "it is there, in whichever table";
    ASSERT_TRUE(table.erase(key(more * 2)));
    ASSERT_FALSE(table.erase(key(more * 2)));
    ASSERT_EQ(table.size(), kKeys);
    table.check_invariants();
    for (std::uint32_t i = 0; i <= kKeys + more; ++i)
      ASSERT_EQ(table.find(key(i)), i % 2 == 0 && i <= more * 2 ? kNoBlock : BlockId(i))
          << i << " at " << more;
  }
}

// 600,000 keys, as of 100,000 conversations on a disk. Moving all keys at once took tens of milliseconds.
TEST(KeyTable, NoInsertMovesMany) {
  KeyTable<BlockId> table;
  std::uint32_t grown = 0;
  for (std::uint32_t i = 0; i < 600'000; ++i) {
    const std::size_t before = table.unmoved();
    ASSERT_TRUE(table.insert(key_of(mix64(i), i), BlockId(i)));
    if (table.unmoved() > before) {
      ++grown;
      ASSERT_EQ(before, 0u) << "a table has moved before the next one";
    } else {
      ASSERT_LE(before - table.unmoved(), KeyTable<BlockId>::kPlacesMoved);
    }
  }
  EXPECT_EQ(grown, 17u) << "doublings from 16 places to 2 million";
}

}  // namespace
}  // namespace loci
