// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "loci/policy/routing/prompt_tree.h"

namespace loci {
namespace {

using Keys = std::vector<std::uint64_t>;
using Counts = std::vector<std::uint32_t>;

TEST(PromptTree, MatchesTheLongestBeginningThatEachWasSent) {
  PromptTree tree(100, 10);
  const Counts instances = {1, 2, 3};
  EXPECT_EQ(tree.match(Keys{10, 11}, instances, 0), (Counts{0, 0, 0}));
  tree.insert(Keys{10, 11, 12}, 1, 0);
  tree.insert(Keys{10, 11, 13}, 1, 0);
  tree.insert(Keys{10, 11, 12}, 2, 0);
  EXPECT_EQ(tree.match(Keys{10, 11, 12, 14}, instances, 0), (Counts{3, 3, 0}));
  EXPECT_EQ(tree.match(Keys{10, 11, 13}, instances, 0), (Counts{3, 2, 0}));
  EXPECT_EQ(tree.match(Keys{99, 991, 992}, instances, 0), (Counts{0, 0, 0})) << "another beginning";
  EXPECT_EQ(tree.match(Keys{10, 11}, Counts{2}, 0), (Counts{2})) << "of those asked for alone";
  EXPECT_EQ(tree.entries(), 7u);
}

TEST(PromptTree, ForgetsAfterItsTimeToLive) {
  PromptTree tree(100, 10);
  tree.insert(Keys{1, 2}, 7, 0);
  EXPECT_EQ(tree.match(Keys{1, 2}, Counts{7}, 10), (Counts{2}));
  EXPECT_EQ(tree.match(Keys{1, 2}, Counts{7}, 11), (Counts{0}));
  tree.insert(Keys{1}, 7, 11);
  EXPECT_EQ(tree.match(Keys{1, 2}, Counts{7}, 11), (Counts{1})) << "its use begins anew";
}

TEST(PromptTree, BeyondItsBoundTheLongestUnusedGoesTheEndFirst) {
  PromptTree tree(4, 100);
  tree.insert(Keys{1, 2, 3}, 7, 0);
  tree.insert(Keys{8, 9}, 7, 1);
  EXPECT_EQ(tree.entries(), 4u);
  EXPECT_EQ(tree.match(Keys{1, 2, 3}, Counts{7}, 1), (Counts{2}));
  EXPECT_EQ(tree.match(Keys{8, 9}, Counts{7}, 1), (Counts{2}));
  tree.insert(Keys{1, 2, 3, 4, 5, 6}, 7, 2);
  EXPECT_EQ(tree.entries(), 4u);
  EXPECT_EQ(tree.match(Keys{1, 2, 3, 4, 5, 6}, Counts{7}, 2), (Counts{4}));
}

// Beside a map of all insertions, on random prompts that share beginnings.
TEST(PromptTree, AgreesWithANaiveOne) {
  std::mt19937 random(5);
  PromptTree tree(1'000'000, 50);
  std::map<std::pair<std::uint64_t, std::uint32_t>, Nanos> naive;
  for (Nanos now = 0; now < 2'000; ++now) {
    Keys keys;
    std::uint64_t key = 1;
    for (std::uint32_t i = random() % 8; i > 0; --i) keys.push_back(key = key * 3 + random() % 3);
    const std::uint32_t instance = random() % 3;
    if (random() % 2 == 0) {
      tree.insert(keys, instance, now);
      for (const std::uint64_t one : keys) naive[{one, instance}] = now;
      continue;
    }
    std::uint32_t wanted = 0;
    while (wanted < keys.size()) {
      const auto found = naive.find({keys[wanted], instance});
      if (found == naive.end() || now - found->second > 50) break;
      ++wanted;
    }
    ASSERT_EQ(tree.match(keys, Counts{instance}, now), (Counts{wanted})) << now;
  }
}

std::vector<RoutedTo> three() {
  return {{.instance = 1, .rank = 11}, {.instance = 2, .rank = 22}, {.instance = 3, .rank = 33}};
}

TEST(Routing, FirstTokenWeighsWhatWasSeenAgainstTheQueue) {
  auto all = three();
  const RoutedRequest request{.bytes = 6'000, .session = 5};
  all[0].bytes_seen = 5'000;
  all[0].bytes_before = 2'000;
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, request, all), 0u);
  all[0].bytes_before = 8'000;
  EXPECT_NE(route(RoutingPolicy::kFirstToken, request, all), 0u);
  // A busy instance is left for an idle one when little is lost.
  all = three();
  all[1].bytes_seen = 300;
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, request, all), 1u);
  all[1].requests = 2;
  EXPECT_NE(route(RoutingPolicy::kFirstToken, request, all), 1u);
}

TEST(Routing, ASessionStaysHomeAndANewOneHasARank) {
  auto all = three();
  std::set<std::size_t> chosen;
  for (std::uint64_t session = 0; session < 100; ++session) {
    const RoutedRequest request{.bytes = 1, .session = session};
    const std::size_t first = route(RoutingPolicy::kSession, request, all).value();
    chosen.insert(first);
    auto fewer = all;
    fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>((first + 1) % 3));
    const std::size_t again = route(RoutingPolicy::kSession, request, fewer).value();
    EXPECT_EQ(fewer[again].instance, all[first].instance) << "another's end moves it nowhere";
    auto with_home = all;
    with_home[2].is_home = true;
    with_home[2].requests = 1'000;
    EXPECT_EQ(route(RoutingPolicy::kSession, request, with_home), 2u);
  }
  EXPECT_EQ(chosen.size(), 3u);
}

TEST(Routing, LeastLoadTakesWhoHasFewest) {
  auto all = three();
  all[0].requests = 2;
  all[1].requests = 1;
  all[2].requests = 3;
  all[2].bytes_seen = 1'000'000;
  EXPECT_EQ(route(RoutingPolicy::kLeastLoad, {.bytes = 9, .session = 1}, all), 1u);
}

TEST(Routing, WithoutInstancesThereIsNoChoice) {
  for (const char* name : {"first-token", "session", "least-load"})
    EXPECT_FALSE(route(parse_routing_policy(name).value(), {}, {}).has_value());
  EXPECT_FALSE(parse_routing_policy("random").has_value());
}

}  // namespace
}  // namespace loci
