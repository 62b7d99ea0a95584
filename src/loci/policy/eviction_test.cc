// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "loci/base/random.h"
#include "loci/policy/eviction_testing.h"

namespace loci {
namespace {

std::shared_ptr<const CostModel> default_costs() { return std::make_shared<const CostModel>(CostCurves{}); }

TEST(Eviction, OrdersByTheirTimesThenTheDeepestFirst) {
  const Facts facts = {
      {BlockId(0), {.last_used = 30, .born = 1, .depth = 1}},
      {BlockId(1), {.last_used = 20, .born = 2, .depth = 1}},
      {BlockId(2), {.last_used = 20, .born = 2, .depth = 3}},
      {BlockId(3), {.last_used = 20, .born = 2, .depth = 2}},
      {BlockId(4), {.last_used = 10, .born = 9, .depth = 7}},
      {BlockId(5), {.last_used = 20, .born = 2, .depth = 2}},
  };
  const auto order_of = [&](const char* name) {
    const auto order = make_eviction_order(name, {}, default_costs()).value();
    for (const auto& [block, f] : facts) order->insert(block, f);
    EXPECT_EQ(order->size(), facts.size());
    return drain(*order, facts);
  };
  EXPECT_EQ(order_of("lru"), (std::vector<std::uint32_t>{4, 2, 3, 5, 1, 0}));
  EXPECT_EQ(order_of("fifo"), (std::vector<std::uint32_t>{0, 2, 3, 5, 1, 4}));
}

TEST(Eviction, WhatIsBehindGoesFirst) {
  const Facts facts = {
      {BlockId(0), {.last_used = 1, .born = 1, .depth = 1}},
      {BlockId(1), {.last_used = 9, .born = 9, .depth = 1, .behind_window = true}},
      {BlockId(2), {.last_used = 8, .born = 8, .depth = 1, .behind_window = true}},
      {BlockId(3), {.last_used = 9, .born = 9, .depth = 2}},
  };
  for (const char* name : {"lru", "fifo"}) {
    const auto order = make_eviction_order(name, {}, default_costs()).value();
    for (const auto& [block, f] : facts) order->insert(block, f);
    EXPECT_EQ(drain(*order, facts), (std::vector<std::uint32_t>{2, 1, 0, 3})) << name;
  }
}

TEST(Eviction, RandomIsSeededAndReachesAll) {
  Facts facts;
  for (std::uint32_t i = 0; i < 50; ++i) facts[BlockId(i * 3)] = {};
  const auto order_of = [&](std::uint64_t seed) {
    const auto order = make_eviction_order("random", {.seed = seed}, default_costs()).value();
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
  const Status status = make_eviction_order("lfu", {}, default_costs()).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.field(), "eviction");
  EXPECT_NE(status.message().find("lru, fifo, random, retention, lookahead, value"), std::string::npos)
      << status.message();
  for (const std::string_view name : kEvictionPolicies) {
    EXPECT_TRUE(make_eviction_order(name, {}, default_costs()).ok()) << name;
  }
}

// Of a copy in the tier.
EvictionFacts any_facts(Random& random, Tier tier) {
  EvictionFacts f;
  f.last_used = static_cast<Nanos>(random.next() >> (1 + random.below(63)));
  f.born = static_cast<Nanos>(random.next() >> (1 + random.below(63)));
  f.depth = static_cast<std::uint32_t>(random.next() >> (32 + random.below(32)));
  f.behind_window = random.below(8) == 0;
  f.elsewhere = static_cast<std::uint8_t>(random.below(8) & ~(1u << static_cast<unsigned>(tier)));
  f.wanted = random.below(2) == 0 ? kNotWanted : static_cast<std::uint32_t>(random.below(5));
  return f;
}

// Whatever the facts: what was inserted is chosen once and leaves by the same facts.
TEST(Eviction, EveryPolicyGivesUpEveryBlockOnce) {
  Random random(4);
  for (const std::string_view name : kEvictionPolicies) {
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      const EvictionPlace place{.tier = tier, .block_bytes = 700'000, .holes = random.below(2) == 0};
      const auto order = make_eviction_order(name, place, default_costs()).value();
      Facts facts;
      for (std::uint32_t i = 0; i < 300; ++i) {
        facts[BlockId(i)] = any_facts(random, tier);
        order->insert(BlockId(i), facts[BlockId(i)]);
      }
      // A part of them leaves without having been chosen.
      for (std::uint32_t i = 0; i < 300; i += 3) {
        order->erase(BlockId(i), facts.at(BlockId(i)));
        facts.erase(BlockId(i));
      }
      ASSERT_EQ(order->size(), 200u);
      auto all = drain(*order, facts, static_cast<Nanos>(random.next() >> 2));
      std::sort(all.begin(), all.end());
      EXPECT_EQ(all.size(), 200u);
      EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
      EXPECT_EQ(order->size(), 0u);
    }
  }
}

TEST(Eviction, WhatIsUsedAgainStandsWhereItWouldIfItCameAnew) {
  Random random(5);
  for (const std::string_view name : kEvictionPolicies) {
    for (const Tier tier : {Tier::kDevice, Tier::kHost, Tier::kDisk}) {
      const EvictionPlace place{.tier = tier, .block_bytes = 700'000, .seed = 7};
      const auto used = make_eviction_order(name, place, default_costs()).value();
      const auto anew = make_eviction_order(name, place, default_costs()).value();
      Facts facts;
      for (std::uint32_t i = 0; i < 200; ++i) {
        facts[BlockId(i)] = any_facts(random, tier);
        for (EvictionOrder* order : {used.get(), anew.get()}) order->insert(BlockId(i), facts[BlockId(i)]);
      }
      for (std::uint32_t i = 0; i < 200; i += 2) {
        EvictionFacts& f = facts[BlockId(i)];
        const EvictionFacts before = f;
        f.last_used = static_cast<Nanos>(random.next() >> (1 + random.below(63)));
        used->use(BlockId(i), before, f);
        anew->erase(BlockId(i), before);
        anew->insert(BlockId(i), f);
      }
      const auto now = static_cast<Nanos>(random.next() >> 2);
      EXPECT_EQ(drain(*used, facts, now), drain(*anew, facts, now)) << name;
    }
  }
}

// AttentionStore figure 9: of what is in host memory the jobs 1 to 4 are all in the queue; the one nearest
// its tail, 4, goes first. On disk 9 is the last. Who is not in the queue (0 here) goes before them.
TEST(Lookahead, GivesUpTheWindowFromItsTail) {
  const auto order = make_eviction_order("lookahead", {.tier = Tier::kHost}, default_costs()).value();
  Facts facts;
  const auto job = [&](std::uint32_t id, std::uint32_t wanted, Nanos last_used) {
    facts[BlockId(id)] = {.last_used = last_used, .depth = 1, .wanted = wanted};
    order->insert(BlockId(id), facts[BlockId(id)]);
  };
  job(1, 0, 5);
  job(2, 1, 9);
  job(3, 2, 2);
  job(4, 3, 7);
  job(100, kNotWanted, 100);
  job(50, kNotWanted, 50);
  EXPECT_EQ(drain(*order, facts), (std::vector<std::uint32_t>{50, 100, 4, 3, 2, 1}));
}

// What is wanted and in no slower tier goes last below the device, whatever else decides.
TEST(Eviction, SparesWhatTheQueueNeedsAndNothingSlowerHas) {
  constexpr std::uint8_t kOnDisk = 1u << static_cast<unsigned>(Tier::kDisk);
  for (const std::string_view name : kEvictionPolicies) {
    SCOPED_TRACE(name);
    for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
      const EvictionPlace place{.tier = tier, .block_bytes = 1000};
      const auto order = make_eviction_order(name, place, default_costs()).value();
      Facts facts;
      for (std::uint32_t i = 0; i < 60; ++i) {
        EvictionFacts& f = facts[BlockId(i)];
        f = {.last_used = i, .born = i, .depth = 1, .wanted = i < 20 ? 19 - i : kNotWanted};
        order->insert(BlockId(i), f);
      }
      const auto all = drain(*order, facts, 100);
      ASSERT_EQ(all.size(), 60u);
      for (std::uint32_t i = 0; i < 20; ++i) EXPECT_EQ(all[40 + i], i) << "from the queue's tail";
    }
  }
  // With a copy on the disk nothing is lost, and the order of the policy's own decides.
  const auto lru = make_eviction_order("lru", {.tier = Tier::kHost}, default_costs()).value();
  const Facts facts = {{BlockId(0), {.last_used = 1, .elsewhere = kOnDisk, .wanted = 0}},
                       {BlockId(1), {.last_used = 2, .wanted = 0}},
                       {BlockId(2), {.last_used = 3}}};
  for (const auto& [block, f] : facts) lru->insert(block, f);
  EXPECT_EQ(drain(*lru, facts), (std::vector<std::uint32_t>{0, 2, 1}));
}

TEST(Lookahead, LeavesAPrefixOfASession) {
  const auto order = make_eviction_order("lookahead", {}, default_costs()).value();
  Facts facts;
  for (std::uint32_t i = 0; i < 5; ++i) {
    facts[BlockId(i)] = {.last_used = 3, .depth = i + 1, .wanted = 2};
    order->insert(BlockId(i), facts[BlockId(i)]);
  }
  EXPECT_EQ(drain(*order, facts), (std::vector<std::uint32_t>{4, 3, 2, 1, 0}));
}

}  // namespace
}  // namespace loci
