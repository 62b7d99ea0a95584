// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>
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

TEST(PromptTree, ForgetsWhatAnInstanceDoesNotHave) {
  PromptTree tree(100, 10);
  tree.insert(Keys{1, 2, 3}, 7, 0);
  tree.insert(Keys{1, 2, 3}, 8, 0);
  tree.forget(3, 7);
  tree.forget(99, 7);
  EXPECT_EQ(tree.match(Keys{1, 2, 3}, Counts{7, 8}, 1), (Counts{2, 3}));
  EXPECT_EQ(tree.entries(), 5u);
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
  all[0].bytes_sent = 5'000;
  all[0].bytes_before = 2'000;
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, request, all), 0u);
  all[0].bytes_before = 8'000;
  EXPECT_NE(route(RoutingPolicy::kFirstToken, request, all), 0u);
  // A busy instance is left for an idle one when little is lost.
  all = three();
  all[1].bytes_sent = 300;
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, request, all), 1u);
  all[0].requests = all[2].requests = 4;
  all[1].requests = 8;
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, request, all), 1u)
      << "four replies more delay a prompt by 256 bytes";
  all[1].requests = 9;
  EXPECT_NE(route(RoutingPolicy::kFirstToken, request, all), 1u);
}

// What it says of itself makes none of its replies cheaper than others'.
TEST(Routing, AnInstanceThatTellsTooLowCostsIsSeenToBeBusy) {
  auto all = three();
  const RoutedRequest request{.bytes = 6'400, .session = 5};
  for (RoutedTo& one : all) one.usual_compute = one.costs.compute = 8;
  all[0].costs.compute = 1;
  // 6,400 bytes computed for 1 there and for 8 elsewhere differ by 5,600 that cost 8; 20 replies delay a
  // prompt by as many times 64 that cost 8, and 16 of them its reply by as many times 2,048 that cost 1.
  all[0].requests = 20;
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, request, all), 0u);
  all[0].requests = 21;
  EXPECT_NE(route(RoutingPolicy::kFirstToken, request, all), 0u);
  // One that computes slowly is believed that its replies delay more.
  all = three();
  for (RoutedTo& one : all) one.usual_compute = one.costs.compute = 1;
  all[0].costs.compute = 8;
  all[0].requests = 1;
  EXPECT_DOUBLE_EQ(predicted_first_token(request, all[0]), 8 * (6'400 + 64));
}

// An instance loads what takes longer to bring than to compute, where computing would hold others up.
TEST(Routing, WhatABusyInstanceBringsIsPredictedAsItDoesIt) {
  const RoutedRequest request{.bytes = 6'000, .session = 5};
  RoutedTo one{.bytes_disk = 4'000, .costs = {.compute = 100, .host = 1, .disk = 250, .peer = 250}};
  EXPECT_DOUBLE_EQ(predicted_work(request, one), 600'000) << "computed, as nobody waits";
  one.requests = 2;
  EXPECT_DOUBLE_EQ(predicted_work(request, one), 1'000'000 + 200'000 / 8);
  one.bytes_peer = std::exchange(one.bytes_disk, 0);
  EXPECT_DOUBLE_EQ(predicted_work(request, one), 1'000'000 + 200'000 / 8);
  one.costs.ask_peers = 300'000;
  EXPECT_DOUBLE_EQ(predicted_work(request, one), 600'000) << "asking takes what loading saves the others";
}

// Costs of a machine that computes a microsecond a byte.
constexpr RoutedCosts kMeasured{.compute = 1'000, .host = 20, .disk = 100, .peer = 400};

TEST(Routing, FirstTokenKnowsTiers) {
  auto all = three();
  for (RoutedTo& one : all) one.costs = kMeasured;
  const RoutedRequest request{.bytes = 6'000, .session = 5};
  all[0].bytes_disk = 5'000;
  all[1].bytes_device = 4'800;
  all[2].bytes_host = 4'900;
  // 1,000 bytes to compute, and meanwhile 0.5 ms of the disk: 1.06 ms. 1,200: 1.2 ms. 1,100: 1.11 ms.
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, request, all), 0u) << "bringing hides behind computing";
  EXPECT_DOUBLE_EQ(predicted_work(request, all[0]), 1'062'500);
  all[0].costs.disk = 300;
  EXPECT_DOUBLE_EQ(predicted_work(request, all[0]), 1'625'000);
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, request, all), 2u);
  all[0].costs.disk = 5'000;
  EXPECT_DOUBLE_EQ(predicted_work(request, all[0]), 6'000'000) << "a slow disk's is computed";
  all[2].bytes_before = 200;
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, request, all), 1u) << "its queue weighs";
  // Where somebody has the prompt another one may bring it from there.
  all = three();
  for (RoutedTo& one : all) one.costs = kMeasured;
  all[0].bytes_device = 6'000;
  all[0].requests = 40;
  all[1].bytes_peer = all[2].bytes_peer = 6'000;
  EXPECT_DOUBLE_EQ(predicted_work(request, all[1]), 2'400'000);
  const std::size_t moved = route(RoutingPolicy::kFirstToken, request, all).value();
  EXPECT_NE(moved, 0u);
  EXPECT_EQ(why_chosen(all, moved), RoutedWhy::kPeer);
  // Who has it is better than who would bring it behind what both compute.
  for (RoutedTo& one : all) one.costs.peer = 0.01;
  all[0].requests = 0;
  EXPECT_EQ(route(RoutingPolicy::kFirstToken, {.bytes = 6'500, .session = 5}, all), 0u);
  for (RoutedTo& one : all) one.costs.ask_peers = 300;
  EXPECT_DOUBLE_EQ(predicted_work(request, all[1]), 300 + 60);
  for (RoutedTo& one : all) one.costs.ask_peers = 1e9;
  EXPECT_DOUBLE_EQ(predicted_work(request, all[1]), 6'000'000) << "who has to ask for long computes";
}

// 6,000 bytes that all prompts share. A has them and writes replies; the others have nothing and are idle.
TEST(Routing, WhatAllPromptsShareDoesNotKeepThemAtOneInstance) {
  const auto chosen = [](std::uint32_t replies, std::uint32_t of_least) {
    const RoutedTo crowded{.instance = 1, .requests = replies, .bytes_device = 6'000};
    const RoutedTo other{.instance = 2, .requests = of_least};
    return route(RoutingPolicy::kFirstToken, {.bytes = 6'600}, std::vector<RoutedTo>{crowded, other}).value();
  };
  EXPECT_EQ(chosen(4, 0), 0u);
  EXPECT_EQ(chosen(6, 0), 0u) << "(6 - 4) * 2,048 and 6 * 64 are less than the 6,000";
  EXPECT_EQ(chosen(7, 0), 1u) << "3 * 2,048 and 7 * 64 are more";
  EXPECT_EQ(chosen(40, 18), 0u) << "others are busy too";
}

TEST(Routing, UsualCostsAreThoseOfTheMiddleOne) {
  const std::vector<RoutedCosts> told = {{.compute = 30, .host = 9, .disk = 1, .peer = 4},
                                         {.compute = 1e12, .host = 1, .disk = 2, .peer = 4},
                                         {.compute = 20, .host = 2, .disk = 1e12, .peer = 4}};
  const RoutedCosts usual = usual_costs(told);
  EXPECT_EQ(usual.compute, 30);
  EXPECT_EQ(usual.host, 2);
  EXPECT_EQ(usual.disk, 2);
  EXPECT_EQ(usual.peer, 4);
  EXPECT_EQ(usual_costs(std::span(told).first(2)).compute, 30) << "the smaller one of two";
  EXPECT_EQ(usual_costs({}).compute, 1);
  const RoutedCosts high = believed_costs({.compute = 1e12, .host = 0, .disk = 3, .peer = 4}, usual);
  EXPECT_EQ(high.compute, 240);
  EXPECT_EQ(high.host, 0.25);
  EXPECT_EQ(high.disk, 3);
}

TEST(Routing, WorkIsANumberWhateverCostsAre) {
  const RoutedRequest request{.bytes = 6'000, .session = 5};
  RoutedTo one{.costs = kMeasured};
  EXPECT_EQ(predicted_work_bytes(request, one), 6'000u);
  one.bytes_device = 5'000;
  EXPECT_EQ(predicted_work_bytes(request, one), 1'000u);
  one.costs = {.compute = 0, .host = 0, .disk = 0, .peer = 0};
  EXPECT_EQ(predicted_work_bytes(request, one), 6'000u);
  one.costs.compute = std::numeric_limits<double>::infinity();
  EXPECT_EQ(predicted_work_bytes(request, one), 6'000u);
  one.costs = {.compute = -1, .host = -5};
  EXPECT_LE(predicted_work_bytes(request, one), 12'000u);
}

TEST(Routing, SaysWhyOneWasChosen) {
  auto all = three();
  EXPECT_EQ(why_chosen(all, 1), RoutedWhy::kNothing);
  all[1].bytes_disk = 10;
  EXPECT_EQ(why_chosen(all, 1), RoutedWhy::kDisk);
  all[1].bytes_device = 11;
  EXPECT_EQ(why_chosen(all, 1), RoutedWhy::kDevice);
  EXPECT_EQ(why_chosen(all, 0), RoutedWhy::kElsewhere);
  all[0].bytes_sent = 30;
  EXPECT_EQ(why_chosen(all, 0), RoutedWhy::kSent);
  EXPECT_EQ(routed_why_name(RoutedWhy::kElsewhere), "elsewhere");
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
  all[2].bytes_sent = 1'000'000;
  EXPECT_EQ(route(RoutingPolicy::kLeastLoad, {.bytes = 9, .session = 1}, all), 1u);
}

TEST(Routing, WithoutInstancesThereIsNoChoice) {
  for (const char* name : {"first-token", "prompt-tree", "session", "least-load"})
    EXPECT_FALSE(route(parse_routing_policy(name).value(), {}, {}).has_value());
  EXPECT_FALSE(parse_routing_policy("random").has_value());
}

}  // namespace
}  // namespace loci
