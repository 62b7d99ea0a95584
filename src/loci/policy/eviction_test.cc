#include "loci/policy/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "loci/base/random.h"

namespace loci {
namespace {

std::vector<std::uint32_t> drain(EvictionOrder& order, const std::map<BlockId, EvictionFacts>& facts) {
  std::vector<std::uint32_t> victims;
  for (BlockId next = order.choose(0); next != kNoBlock; next = order.choose(0)) {
    victims.push_back(next.value);
    order.erase(next, facts.at(next));
  }
  return victims;
}

TEST(Eviction, OrdersByTheirTimesThenTheDeepestFirst) {
  const std::map<BlockId, EvictionFacts> facts = {
      {BlockId(0), {.last_used = 30, .born = 1, .depth = 1}},
      {BlockId(1), {.last_used = 20, .born = 2, .depth = 1}},
      {BlockId(2), {.last_used = 20, .born = 2, .depth = 3}},
      {BlockId(3), {.last_used = 20, .born = 2, .depth = 2}},
      {BlockId(4), {.last_used = 10, .born = 9, .depth = 7}},
      {BlockId(5), {.last_used = 20, .born = 2, .depth = 2}},
  };
  const auto order_of = [&](const char* name) {
    const auto order = make_eviction_order(name, {}, nullptr).value();
    for (const auto& [block, f] : facts) order->insert(block, f);
    EXPECT_EQ(order->size(), facts.size());
    return drain(*order, facts);
  };
  EXPECT_EQ(order_of("lru"), (std::vector<std::uint32_t>{4, 2, 3, 5, 1, 0}));
  EXPECT_EQ(order_of("fifo"), (std::vector<std::uint32_t>{0, 2, 3, 5, 1, 4}));
}

TEST(Eviction, WhatIsBehindGoesFirst) {
  const std::map<BlockId, EvictionFacts> facts = {
      {BlockId(0), {.last_used = 1, .born = 1, .depth = 1}},
      {BlockId(1), {.last_used = 9, .born = 9, .depth = 1, .behind = true}},
      {BlockId(2), {.last_used = 8, .born = 8, .depth = 1, .behind = true}},
      {BlockId(3), {.last_used = 9, .born = 9, .depth = 2}},
  };
  for (const char* name : {"lru", "fifo"}) {
    const auto order = make_eviction_order(name, {}, nullptr).value();
    for (const auto& [block, f] : facts) order->insert(block, f);
    EXPECT_EQ(drain(*order, facts), (std::vector<std::uint32_t>{2, 1, 0, 3})) << name;
  }
}

TEST(Eviction, RandomIsSeededAndReachesAll) {
  std::map<BlockId, EvictionFacts> facts;
  for (std::uint32_t i = 0; i < 50; ++i) facts[BlockId(i * 3)] = {};
  const auto order_of = [&](std::uint64_t seed) {
    const auto order = make_eviction_order("random", {.seed = seed}, nullptr).value();
    for (const auto& [block, f] : facts) order->insert(block, f);
    order->erase(BlockId(30), {});
    order->insert(BlockId(30), {});
    return drain(*order, facts);
  };
  EXPECT_EQ(order_of(1), order_of(1));
  EXPECT_NE(order_of(1), order_of(2));
  auto all = order_of(3);
  EXPECT_FALSE(std::is_sorted(all.begin(), all.end()));
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all.size(), facts.size());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

TEST(Eviction, NamesThePoliciesItKnows) {
  const Status status = make_eviction_order("lfu", {}, nullptr).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "eviction");
  EXPECT_NE(status.message().find("lru, fifo or random"), std::string::npos);
}

}  // namespace
}  // namespace loci
