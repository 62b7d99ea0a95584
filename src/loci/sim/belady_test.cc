// SPDX-License-Identifier: Apache-2.0
// The bound against every placement that there is, and no policy above it.
#include "loci/sim/belady.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "loci/base/random.h"
#include "loci/policy/eviction.h"
#include "loci/sim/world.h"

namespace loci::sim {
namespace {

// The most by trying every choice at each use: what is held after it is any subset of what was held and of
// the block itself that fits. Each use that is found counts as much as it is worth.
std::uint64_t by_trying(const std::vector<BlockUse>& uses, std::size_t slots,
                        const std::vector<double>& worth) {
  std::map<std::set<std::uint64_t>, std::uint64_t> best = {{{}, 0}};
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const BlockUse& use = uses[i];
    const auto brings = static_cast<std::uint64_t>(worth[i]);
    std::map<std::set<std::uint64_t>, std::uint64_t> after;
    const auto reach = [&after](const std::set<std::uint64_t>& held, std::uint64_t found) {
      std::uint64_t& most = after[held];
      most = std::max(most, found);
    };
    for (const auto& [held, before] : best) {
      const std::uint64_t found = before + (use.needed && held.contains(use.block) ? brings : 0);
      reach(held, found);
      std::set<std::uint64_t> with = held;
      with.insert(use.block);
      if (with.size() <= slots) {
        reach(with, found);
        continue;
      }
      for (const std::uint64_t victim : held) {
        std::set<std::uint64_t> instead = with;
        instead.erase(victim);
        if (instead.size() <= slots) reach(instead, found);
      }
    }
    best = std::move(after);
  }
  std::uint64_t most = 0;
  for (const auto& [held, found] : best) most = std::max(most, found);
  return most;
}

TEST(Belady, IsWhatTryingEverythingGives) {
  Random random(5);
  for (int round = 0; round < 400; ++round) {
    std::vector<BlockUse> uses;
    const std::uint64_t blocks = 2 + random.below(5);
    for (std::uint64_t i = 0; i < 14; ++i) uses.push_back({random.below(blocks), random.below(4) != 0});
    const std::size_t slots = random.below(4);
    const std::vector<double> ones(uses.size(), 1.0);
    ASSERT_EQ(most_found(uses, slots), by_trying(uses, slots, ones)) << "round " << round;
    for (const KnowsEnds ends : {KnowsEnds::kNo, KnowsEnds::kYes})
      ASSERT_LE(recent_found(uses, slots, ends), most_found(uses, slots));
  }
}

// The bound by worth is never below what trying everything gives. With a price for each use it is nearly
// that, and with few prices it may be above.
TEST(Belady, BoundsWhatTryingEverythingSaves) {
  Random random(7);
  double fine = 0, coarse = 0, tried = 0;
  for (int round = 0; round < 200; ++round) {
    std::vector<BlockUse> uses;
    std::vector<double> worth;
    const std::uint64_t blocks = 3 + random.below(4);
    for (std::uint64_t i = 0; i < 16; ++i) {
      uses.push_back({random.below(blocks), random.below(5) != 0});
      worth.push_back(static_cast<double>(1 + random.below(9)));
    }
    const std::size_t slots = 1 + random.below(3);
    const auto most = static_cast<double>(by_trying(uses, slots, worth));
    const double bound = most_saved(uses, worth, slots, 16, 2000);
    ASSERT_GE(bound, most - 1e-9) << "round " << round;
    ASSERT_GE(most_saved(uses, worth, slots, 2, 300), most - 1e-9);
    fine += bound;
    coarse += most_saved(uses, worth, slots, 2, 300);
    tried += most;
  }
  EXPECT_LT(fine, tried * 1.01);
  EXPECT_LT(coarse, tried * 1.25);
}

TEST(Belady, WhoKnowsWhatEndedFindsMore) {
  // Two conversations go on; between their turns others come once.
  std::vector<BlockUse> uses;
  for (std::uint64_t turn = 0; turn < 20; ++turn) {
    uses.push_back({turn % 2});
    uses.push_back({100 + turn});
  }
  EXPECT_EQ(recent_found(uses, 2, KnowsEnds::kNo), 0u);
  EXPECT_EQ(recent_found(uses, 2, KnowsEnds::kYes), 18u);
  EXPECT_EQ(most_found(uses, 2), 18u);
}

TEST(Belady, NoPolicyIsAboveIt) {
  Trace trace;
  Random random(11);
  for (std::uint64_t c = 0; c < 40; ++c) {
    Conversation talk;
    for (std::uint64_t t = 0; t < 4; ++t) {
      talk.turns.push_back(
          {.at = t == 0 ? static_cast<Nanos>(c) * kNanosPerSecond : 0,
           .after = static_cast<Nanos>(random.below(40)) * kNanosPerSecond,
           .pieces = {{c % 5 + (t == 0 ? 1 : 100 + c * 10 + t), 200}, {c * 10 + t + 1000, 60}},
           .reply_tokens = 40});
    }
    trace.conversations.push_back(std::move(talk));
  }
  for (const std::string_view eviction : kEvictionPolicies) {
    WorldOptions options;
    options.model.parameters = 1e8;
    options.model.weight_bytes = 2e8;
    options.model.layers = 4;
    options.core.layers = 4;
    options.core.groups = {{.block_count = 120, .host_blocks = 60, .disk_blocks = 80, .block_bytes = 1000}};
    options.core.context_tokens = 4096;
    options.core.eviction = eviction;
    options.core.hole_records = 80;
    options.machine.host_load = options.machine.host_save = {0, 1'000'000'000};
    options.machine.disk_read = options.machine.disk_write = {0, 1'000'000'000};
    options.core.costs = PassModel(options.model, options.machine).curves();
    options.record_uses = true;
    const auto report = run_world(trace, options);
    ASSERT_TRUE(report.ok());
    std::uint64_t found = 0;
    for (const RequestRecord& record : report->requests) {
      found += (record.from[0] + record.from[1] + record.from[2]) / kBlockTokens;
    }
    const std::uint64_t bound = most_found(report->uses, 120 + 60 + 80);
    EXPECT_LE(found, bound) << eviction;
    const std::vector<double> ones(report->uses.size(), 1.0);
    const double dual = most_saved(report->uses, ones, 120 + 60 + 80);
    EXPECT_GE(dual, static_cast<double>(bound) * 0.999999) << eviction;
    EXPECT_LE(dual, static_cast<double>(bound) * 1.1) << eviction;
    EXPECT_GT(found, 0u);
    EXPECT_LT(bound, report->uses.size());
  }
}

}  // namespace
}  // namespace loci::sim
