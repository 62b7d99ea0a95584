// SPDX-License-Identifier: Apache-2.0
#include "loci/sim/tier_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "loci/base/random.h"

namespace loci::sim {
namespace {

TierCosts linear_costs(std::size_t hosts, std::size_t disks, double host, double disk) {
  TierCosts costs;
  for (std::size_t i = 0; i < hosts; ++i) costs.host.push_back(host * static_cast<double>(i));
  for (std::size_t i = 0; i < disks; ++i) costs.disk.push_back(disk * static_cast<double>(i));
  return costs;
}

// The least disk that meets the target beside each size of host memory: fewer or as many for more of it.
using Frontier = std::vector<std::size_t>;

Frontier random_frontier(Random& random, std::size_t hosts, std::size_t disks) {
  Frontier least(hosts);
  for (std::size_t& one : least) one = random.below(disks + 2);  // disks and above: none is enough
  std::sort(least.rbegin(), least.rend());
  return least;
}

bool meets(const Frontier& least, TierSizes sizes) { return sizes.disk >= least[sizes.host]; }

std::optional<TierSizes> brute_force(const TierCosts& costs, const Frontier& least) {
  std::optional<std::tuple<double, TierSizes>> best;
  for (std::size_t host = 0; host < costs.host.size(); ++host) {
    for (std::size_t disk = 0; disk < costs.disk.size(); ++disk) {
      const TierSizes sizes{host, disk};
      const std::tuple one(costs.of(sizes), sizes);
      if (meets(least, sizes) && (!best || one < *best)) best = one;
    }
  }
  return best ? std::optional(std::get<1>(*best)) : std::nullopt;
}

TEST(TierSearch, FindsWhatBruteForceFindsInFewTrials) {
  Random random(7);
  std::size_t trials = 0, pairs = 0;
  for (int round = 0; round < 500; ++round) {
    const std::size_t hosts = 1 + random.below(9), disks = 1 + random.below(9);
    TierCosts costs = linear_costs(hosts, disks, 0, 0);
    for (std::vector<double>* side : {&costs.host, &costs.disk}) {
      for (double& one : *side) one = static_cast<double>(random.below(20));
      std::sort(side->begin(), side->end());
    }
    const Frontier least = random_frontier(random, hosts, disks);
    std::set<TierSizes> tried;
    const TierSearch found = find_cheapest(costs, [&](TierSizes sizes, std::size_t open) {
      EXPECT_TRUE(tried.insert(sizes).second) << "no pair is tried twice";
      EXPECT_LE(open, hosts * disks);
      return std::optional(meets(least, sizes));
    });
    ASSERT_EQ(found.cheapest, brute_force(costs, least)) << "round " << round;
    EXPECT_EQ(found.open, 0u);
    if (found.cheapest && found.cheapest->host > 0) {
      EXPECT_TRUE(tried.contains({found.cheapest->host - 1, found.cheapest->disk}));
    }
    if (found.cheapest && found.cheapest->disk > 0) {
      EXPECT_TRUE(tried.contains({found.cheapest->host, found.cheapest->disk - 1}));
    }
    trials += tried.size();
    pairs += hosts * disks;
  }
  EXPECT_LT(trials * 3, pairs);
}

TEST(TierSearch, OneTrialWhereTheLargestMisses) {
  int trials = 0;
  const TierSearch found = find_cheapest(linear_costs(8, 8, 1, 1), [&](TierSizes sizes, std::size_t) {
    ++trials;
    EXPECT_EQ(sizes, (TierSizes{7, 7}));
    return std::optional(false);
  });
  EXPECT_EQ(trials, 1);
  EXPECT_FALSE(found.cheapest);
  EXPECT_EQ(found.open, 0u);
}

// Real runs are not quite monotone: a little more of a tier may serve a little worse.
TEST(TierSearch, NoStepBelowTheAnswerMeetsWhateverTheTrialsSay) {
  Random random(11);
  int found_any = 0;
  for (int round = 0; round < 500; ++round) {
    const std::size_t hosts = 1 + random.below(6), disks = 1 + random.below(6);
    std::vector<bool> truth(hosts * disks);
    for (std::size_t i = 0; i < truth.size(); ++i) truth[i] = random.below(2) == 0;
    const auto is_met = [&](TierSizes sizes) -> bool { return truth[sizes.host * disks + sizes.disk]; };
    const TierSearch found =
        find_cheapest(linear_costs(hosts, disks, 3, 2),
                      [&](TierSizes sizes, std::size_t) { return std::optional(is_met(sizes)); });
    EXPECT_EQ(found.cheapest.has_value(), is_met({hosts - 1, disks - 1}));
    if (!found.cheapest) continue;
    ++found_any;
    const auto [host, disk] = *found.cheapest;
    EXPECT_TRUE(is_met({host, disk}));
    if (host > 0) {
      EXPECT_FALSE(is_met({host - 1, disk}));
    }
    if (disk > 0) {
      EXPECT_FALSE(is_met({host, disk - 1}));
    }
  }
  EXPECT_GT(found_any, 100);
}

TEST(TierSearch, SaysHowManyAreOpenWhereATrialEndsIt) {
  const TierCosts costs = linear_costs(6, 6, 2, 1);
  const Frontier least = {6, 5, 3, 2, 2, 0};
  for (int most = 0; most < 12; ++most) {
    int trials = 0;
    const TierSearch found = find_cheapest(costs, [&](TierSizes sizes, std::size_t) {
      return trials++ == most ? std::nullopt : std::optional(meets(least, sizes));
    });
    if (trials <= most) {  // it was complete before
      EXPECT_EQ(found.cheapest, brute_force(costs, least));
      continue;
    }
    EXPECT_EQ(found.cheapest.has_value(), most > 0);
    if (most == 0) {
      EXPECT_EQ(found.open, 36u);
    }
    if (found.cheapest) {
      EXPECT_TRUE(meets(least, *found.cheapest));
    }
    const std::optional<TierSizes> best = brute_force(costs, least);
    EXPECT_TRUE(found.open > 0 || found.cheapest == best);
  }
}

}  // namespace
}  // namespace loci::sim
