// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/key_map.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>

#include "loci/base/random.h"

namespace loci {
namespace {

ChainKey key_of(std::uint64_t number) {
  ChainKey key;
  const std::uint64_t place = mix64(number);
  std::memcpy(key.bytes.data(), &place, sizeof place);
  return key;
}

TEST(KeyMap, HasAValueForEachKey) {
  KeyMap<std::unique_ptr<int>> map;
  EXPECT_EQ(map.find(key_of(1)), nullptr);
  const auto [one, is_new] = map.insert(key_of(1));
  EXPECT_TRUE(is_new);
  EXPECT_EQ(one, nullptr) << "a new value is an empty one";
  one = std::make_unique<int>(7);
  EXPECT_FALSE(map.insert(key_of(1)).second);
  EXPECT_EQ(**map.find(key_of(1)), 7);
  map.erase(key_of(1));
  EXPECT_EQ(map.find(key_of(1)), nullptr);
  EXPECT_EQ(map.insert(key_of(2)).first, nullptr) << "whatever was in its place before";
  map.check_invariants();
}

TEST(KeyMap, IsAMapWhoseValuesStay) {
  Random random(3);
  KeyMap<std::uint64_t> map;
  std::map<std::uint64_t, const std::uint64_t*> naive;
  for (std::uint32_t i = 0; i < 20'000; ++i) {
    const std::uint64_t number = random.below(2000);
    if (random.below(3) > 0) {
      const auto [value, is_new] = map.insert(key_of(number));
      ASSERT_EQ(is_new, !naive.contains(number));
      value = number;
      naive.emplace(number, &value);
    } else if (naive.erase(number) > 0) {
      map.erase(key_of(number));
    }
    ASSERT_EQ(map.size(), naive.size());
  }
  map.check_invariants();
  for (const auto& [number, value] : naive) {
    ASSERT_EQ(map.find(key_of(number)), value) << "it has stayed where it was";
    ASSERT_EQ(*value, number);
  }
}

}  // namespace
}  // namespace loci
