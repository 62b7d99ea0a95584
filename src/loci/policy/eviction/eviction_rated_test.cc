// SPDX-License-Identifier: Apache-2.0
// The policies that weigh cost against idle time: retention and value.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "loci/base/random.h"
#include "loci/compute/backend.h"
#include "loci/policy/eviction.h"
#include "loci/policy/eviction/idle_cost_queue.h"
#include "loci/policy/eviction/retention_order.h"
#include "loci/policy/eviction/value_order.h"
#include "loci/policy/eviction_testing.h"

namespace loci {
namespace {

constexpr std::uint8_t kOnHost = 1 << static_cast<int>(Tier::kHost);
constexpr std::uint8_t kOnDisk = 1 << static_cast<int>(Tier::kDisk);
constexpr std::uint8_t kOnDevice = 1 << static_cast<int>(Tier::kDevice);
constexpr std::uint64_t kBytes = 700'000;

// Computing a block costs 3.2 ms and 32 times 10 ns for each token before it; loading one 0.2 ms from the
// host, 1 ms from disk.
std::shared_ptr<const CostModel> costs() {
  CostCurves curves;
  curves.token = 100'000;
  curves.attention = {10};
  curves.host_load = {0, kBytes * 5'000};
  curves.disk_read = {0, kBytes * 1'000};
  return std::make_shared<const CostModel>(curves);
}

std::vector<std::uint32_t> order_of(std::string_view name, const EvictionPlace& place, const Facts& facts,
                                    Nanos now) {
  const auto order = make_eviction_order(name, place, costs()).value();
  for (const auto& [block, f] : facts) order->insert(block, f);
  return drain(*order, facts, now);
}

TEST(CostBucket, HoldsAQuarterOfAPowerOfTwo) {
  EXPECT_EQ(cost_bucket(0), -1);
  EXPECT_EQ(cost_bucket(1), 0);
  EXPECT_EQ(cost_bucket(2), 4);
  EXPECT_EQ(cost_bucket(3), 6);
  EXPECT_EQ(cost_bucket(INT64_MAX), 4 * 62 + 3);
  Random random(3);
  for (int i = 0; i < 10'000; ++i) {
    const auto cost = static_cast<Nanos>(std::max<std::uint64_t>(random.next() >> (1 + random.below(63)), 1));
    const double exact = 4 * std::log2(static_cast<double>(cost));
    EXPECT_NEAR(cost_bucket(cost) + 0.5, exact, 0.5 + 1e-9) << cost;
  }
}

// Against a naive argmin over all blocks, whatever the costs and times, while blocks come and go.
TEST(IdleCostQueue, ChoosesTheLeastUpToTheQuantisation) {
  struct Item {
    Nanos cost, last_used;
    std::uint32_t depth;
  };
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    Random random(seed);
    IdleCostQueue queue;
    std::map<BlockId, Item> items;
    Nanos now = 0;
    const std::uint64_t cost_bits = 1 + random.below(62), time_bits = 1 + random.below(50);
    for (std::uint32_t i = 0; i < 600; ++i) {
      now += static_cast<Nanos>(random.below(std::uint64_t{1} << time_bits));
      const BlockId block(i);
      const Item item{static_cast<Nanos>(random.below(std::uint64_t{1} << (1 + random.below(cost_bits)))),
                      now, static_cast<std::uint32_t>(random.below(9))};
      items[block] = item;
      queue.insert(block, item.cost, item.last_used, item.depth);
      if (random.below(3) == 0) {
        const auto gone = std::next(items.begin(), static_cast<std::ptrdiff_t>(random.below(items.size())));
        queue.erase(gone->first, gone->second.cost, gone->second.last_used, gone->second.depth);
        items.erase(gone);
      }
      ASSERT_EQ(queue.size(), items.size());
      const auto value = [&](const Item& of) {
        return static_cast<long double>(of.cost) /
               static_cast<long double>(std::max<Nanos>(now - of.last_used, 1));
      };
      if (items.empty()) continue;
      long double least = HUGE_VALL;
      for (const auto& [id, of] : items) least = std::min(least, value(of));
      const BlockId chosen = queue.least(now);
      ASSERT_TRUE(items.contains(chosen));
      EXPECT_LE(value(items.at(chosen)), least * std::pow(2.0L, 0.25L) * (1 + 1e-15L));
    }
  }
}

TEST(IdleCostQueue, IsExactWhereAllHaveBeenIdleEquallyLong) {
  Random random(5);
  IdleCostQueue queue;
  std::vector<std::pair<Nanos, BlockId>> sorted;
  for (std::uint32_t i = 0; i < 500; ++i) {
    const auto cost = static_cast<Nanos>(1'000 + random.below(5'000));
    queue.insert(BlockId(i), cost, 77, 1);
    sorted.emplace_back(cost, BlockId(i));
  }
  std::sort(sorted.begin(), sorted.end());
  for (const auto& [cost, block] : sorted) {
    EXPECT_EQ(queue.least(1'000), block);
    queue.erase(block, cost, 77, 1);
  }
  EXPECT_EQ(queue.least(1'000), kNoBlock);
}

Facts conversation(std::uint32_t first, std::uint32_t blocks, Nanos last_used, std::uint8_t elsewhere = 0) {
  Facts facts;
  for (std::uint32_t i = 0; i < blocks; ++i) {
    facts[BlockId(first + i)] = {.last_used = last_used, .depth = i + 1, .elsewhere = elsewhere};
  }
  return facts;
}

TEST(Retention, GivesUpTheLeadingBlocksOfOneConversation) {
  EXPECT_EQ(order_of("retention", {}, conversation(0, 6, 10), 1'000),
            (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
}

TEST(Retention, WeighsIdleTimeAgainstCost) {
  // Blocks 1 and 1,001 of two sequences: 3.2 ms against 13.4 ms to compute. The deep one goes first once it
  // has been idle more than 4.2 times as long.
  Facts facts;
  facts[BlockId(0)] = {.last_used = 1'000, .depth = 1};
  facts[BlockId(1)] = {.last_used = 0, .depth = 1'001};
  EXPECT_EQ(order_of("retention", {}, facts, 1'200).front(), 1u) << "idle 200 and 1,200";
  EXPECT_EQ(order_of("retention", {}, facts, 1'400).front(), 0u) << "idle 400 and 1,400";
  EXPECT_EQ(order_of("retention", {.holes = false}, facts, 1'400).front(), 1u) << "it has been idle longer";
}

TEST(Retention, MakesNoHolesWhereTheyCannotBeFilled) {
  EXPECT_EQ(order_of("retention", {.holes = false}, conversation(0, 5, 10), 1'000),
            (std::vector<std::uint32_t>{4, 3, 2, 1, 0}));
}

TEST(Value, GivesUpTheLeadingBlocksOfOneConversation) {
  EXPECT_EQ(order_of("value", {.block_bytes = kBytes}, conversation(0, 6, 10), 1'000),
            (std::vector<std::uint32_t>{0, 1, 2, 3, 4, 5}));
  // On the host too: what loading saves grows with depth.
  EXPECT_EQ(order_of("value", {.tier = Tier::kHost, .block_bytes = kBytes}, conversation(0, 4, 10), 1'000),
            (std::vector<std::uint32_t>{0, 1, 2, 3}));
}

TEST(Value, LeavesAPrefixWhereAllBlocksCostTheSame) {
  EXPECT_EQ(order_of("value", {.block_bytes = kBytes}, conversation(0, 4, 10, kOnHost), 1'000),
            (std::vector<std::uint32_t>{3, 2, 1, 0}));
  EXPECT_EQ(order_of("value", {.block_bytes = kBytes, .holes = false}, conversation(0, 4, 10), 1'000),
            (std::vector<std::uint32_t>{3, 2, 1, 0}));
}

TEST(Value, LosesLeastTimeFirst) {
  Facts facts;
  facts[BlockId(0)] = {.last_used = 0, .depth = 1};                                  // 3.2 ms
  facts[BlockId(1)] = {.last_used = 0, .depth = 1, .elsewhere = kOnDisk};            // 1 ms
  facts[BlockId(2)] = {.last_used = 0, .depth = 1, .elsewhere = kOnHost};            // 0.2 ms
  facts[BlockId(3)] = {.last_used = 0, .depth = 9, .elsewhere = kOnHost | kOnDisk};  // 0.2 ms
  // Its time and kAway are a tenth as long.
  facts[BlockId(4)] = {.last_used = 9 * kAway, .depth = 1, .elsewhere = kOnHost};
  facts[BlockId(5)] = {.last_used = 9 * kAway, .depth = 1, .behind_window = true};
  EXPECT_EQ(order_of("value", {.block_bytes = kBytes}, facts, 9 * kAway),
            (std::vector<std::uint32_t>{5, 3, 2, 1, 4, 0}));
}

// Blocks 1 and 1,001 of two sequences: 3.2 ms against 13.4 ms to compute.
TEST(Value, WhatWasUsedAMomentAgoIsNotNeededSoonerThanWhatWasUsedAMinuteAgo) {
  Facts facts;
  facts[BlockId(1)] = {.last_used = 0, .depth = 1'001};
  const auto first_at = [&](Nanos now) {
    facts[BlockId(0)] = {.last_used = now, .depth = 1};
    return order_of("value", {.block_bytes = kBytes}, facts, now).front();
  };
  EXPECT_EQ(first_at(60 * kNanosPerSecond), 0u);
  EXPECT_EQ(first_at(3 * kAway), 0u);
  EXPECT_EQ(first_at(4 * kAway), 1u) << "but after twelve minutes nobody may come";
}

TEST(Value, ACopyThatSavesNothingGoesFirst) {
  // On disk: what the host has too is worth nothing there; then by what loading from disk saves.
  Facts facts;
  facts[BlockId(0)] = {.last_used = 0, .depth = 1};
  facts[BlockId(1)] = {.last_used = 900, .depth = 50, .elsewhere = kOnHost};
  facts[BlockId(2)] = {.last_used = 0, .depth = 50};
  facts[BlockId(3)] = {.last_used = 800, .depth = 50, .elsewhere = kOnDevice};
  EXPECT_EQ(order_of("value", {.tier = Tier::kDisk, .block_bytes = kBytes}, facts, 1'000),
            (std::vector<std::uint32_t>{3, 1, 0, 2}));
  // A disk so slow that computing the block is faster.
  const EvictionPlace slow{.tier = Tier::kDisk, .block_bytes = kBytes * 10};
  EXPECT_EQ(ValueOrder(slow, costs()).lost(facts[BlockId(2)]), 0);
}

// Of the smaller form four have the room of one: what they save together is what counts.
TEST(Value, WeighsFormsByTheirBytes) {
  const EvictionPlace place{.tier = Tier::kDisk, .block_bytes = kBytes, .hidden_bytes = kBytes / 4};
  const auto lost = [&](Nanos projection, StateForm form) {
    CostCurves curves = costs()->curves();
    curves.projection = projection;
    return ValueOrder(place, std::make_shared<const CostModel>(curves)).lost({.depth = 1'001, .form = form});
  };
  // 1 ms to load, or a quarter of one and 3.2 to project.
  const Nanos computed = costs()->compute(1'000 * kBlockTokens, kBlockTokens);
  EXPECT_EQ(lost(100'000, StateForm::kKeysAndValues), computed - 1'000'000);
  EXPECT_EQ(lost(100'000, StateForm::kHidden), 4 * (computed - 250'000 - 3'200'000));
  EXPECT_EQ(lost(1'000'000, StateForm::kHidden), 0) << "computing is faster than projecting";
}

TEST(Value, WhatTheQueueNeedsGoesLastFromItsTail) {
  Facts facts;
  facts[BlockId(0)] = {.last_used = 0, .depth = 1, .wanted = 0};
  facts[BlockId(1)] = {.last_used = 0, .depth = 1, .wanted = 7};
  facts[BlockId(2)] = {.last_used = 0, .depth = 900, .wanted = 7};
  facts[BlockId(3)] = {.last_used = 0, .depth = 900, .elsewhere = kOnHost, .wanted = 7};
  facts[BlockId(4)] = {.last_used = 999, .depth = 90'000};
  EXPECT_EQ(order_of("value", {.block_bytes = kBytes}, facts, 1'000),
            (std::vector<std::uint32_t>{4, 3, 1, 2, 0}));
}

// The order of the whole, against the definition, over random facts of three tiers.
TEST(Value, IsTheDefinitionUpToTheQuantisation) {
  Random random(11);
  const auto model = costs();
  for (int round = 0; round < 60; ++round) {
    const EvictionPlace place{.tier = static_cast<Tier>(random.below(3)), .block_bytes = kBytes};
    const auto here = static_cast<unsigned>(place.tier);
    ValueOrder order(place, model);
    Facts facts;
    for (std::uint32_t i = 0; i < 80; ++i) {
      EvictionFacts& f = facts[BlockId(i)];
      f.last_used = static_cast<Nanos>(random.below(9 * kAway));
      f.depth = 1 + static_cast<std::uint32_t>(random.below(3'000));
      f.elsewhere = static_cast<std::uint8_t>(random.below(8) & ~(1u << here));
      order.insert(BlockId(i), f);
    }
    const Nanos now = 9 * kAway + static_cast<Nanos>(random.below(9 * kAway));
    const auto value = [&](const EvictionFacts& f) {
      Nanos restore = model->compute((f.depth - 1) * kBlockTokens, kBlockTokens);
      if (f.elsewhere & kOnDevice) restore = 0;
      if (f.elsewhere & kOnHost) restore = std::min(restore, model->load(Tier::kHost, kBytes));
      if (f.elsewhere & kOnDisk) restore = std::min(restore, model->load(Tier::kDisk, kBytes));
      const Nanos saved = std::max<Nanos>(0, restore - model->load(place.tier, kBytes));
      return static_cast<double>(saved) / static_cast<double>(now - f.last_used + kAway);
    };
    while (!facts.empty()) {
      double least = HUGE_VAL;
      for (const auto& [id, f] : facts) least = std::min(least, value(f));
      const BlockId victim = order.choose(now);
      ASSERT_LE(value(facts.at(victim)), least * 1.1892072);
      order.erase(victim, facts.at(victim));
      facts.erase(victim);
    }
  }
}

}  // namespace
}  // namespace loci
