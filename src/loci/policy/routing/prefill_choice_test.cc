// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/routing/prefill_choice.h"

#include <gtest/gtest.h>

#include <vector>

namespace loci {
namespace {

constexpr RoutedCosts kCosts{.compute = 10, .host = 0.1, .disk = 0.5, .peer = 1, .ask_peers = 20'000};
constexpr RoutedRequest kRequest{.bytes = 60'000};

RoutedTo one_with(std::uint32_t requests, std::uint64_t bytes_before = 0) {
  return {
      .requests = requests, .bytes_before = bytes_before, .costs = kCosts, .usual_compute = kCosts.compute};
}

// The header's example.
TEST(PrefillChoice, APromptGoesToAMemberThatHoldsUpNobody) {
  const std::vector<RoutedTo> idle = {one_with(0)}, busy = {one_with(0, 120'000)};
  const auto choice = choose_prefill(kRequest, one_with(2), idle);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->computed, 600'000);
  EXPECT_NEAR(choice->first_token, 680'000, 1);
  EXPECT_EQ(choice->decode.bytes_peer, 60'000u);
  EXPECT_FALSE(choose_prefill(kRequest, one_with(2), busy));
  EXPECT_TRUE(choose_prefill(kRequest, one_with(3), busy)) << "the more replies, the more it is worth";
  EXPECT_TRUE(choose_prefill(kRequest, one_with(0), idle)) << "a reply may come meanwhile";
  EXPECT_FALSE(choose_prefill(kRequest, one_with(2), {})) << "there is no prefill member";
}

TEST(PrefillChoice, TheMemberThatIsDoneFirstIsChosen) {
  RoutedTo has_most = one_with(0, 30'000);
  has_most.bytes_host = 40'000;
  const std::vector<RoutedTo> members = {one_with(0, 20'000), has_most, one_with(0, 10'000)};
  const auto choice = choose_prefill(kRequest, one_with(4), members);
  ASSERT_TRUE(choice);
  EXPECT_EQ(choice->place, 1u) << "30,000 and 20,000 bytes, where others take 80,000 and 70,000";
}

TEST(PrefillChoice, WhatTheDecodeMemberHasOrIsSentOrFindsAtPeersIsNotComputed) {
  // The prefill member brings what others have.
  const auto is_handed = [&](const RoutedTo& decode) {
    std::vector<RoutedTo> idle = {one_with(0)};
    idle[0].bytes_peer = decode.bytes_seen() + decode.bytes_peer;
    return choose_prefill(kRequest, decode, idle).has_value();
  };
  for (std::uint64_t RoutedTo::* const place :
       {&RoutedTo::bytes_device, &RoutedTo::bytes_host, &RoutedTo::bytes_disk, &RoutedTo::bytes_sent,
        &RoutedTo::bytes_peer}) {
    RoutedTo decode = one_with(4);
    decode.*place = kRequest.bytes - kHandedBytesMin + 1;
    EXPECT_FALSE(is_handed(decode));
    decode.*place = kRequest.bytes - 2 * kHandedBytesMin;
    EXPECT_TRUE(is_handed(decode));
  }
  EXPECT_FALSE(choose_prefill({.bytes = kHandedBytesMin - 1}, one_with(60), {{one_with(0)}}))
      << "a short prompt";
}

TEST(PrefillChoice, StateThatIsSlowerToBringThanToComputeIsNotBrought) {
  const std::vector<RoutedTo> idle = {one_with(0)};
  RoutedTo slow = one_with(4);
  slow.costs.peer = 10;
  EXPECT_FALSE(choose_prefill(kRequest, slow, idle));
}

TEST(PrefillChoice, AlwaysGoesWhereThePolicyWould) {
  RoutedTo home = one_with(3, 1'000'000);
  home.is_home = true;
  const std::vector<RoutedTo> members = {one_with(4, 10'000), home, one_with(1, 500'000)};
  const auto place = [&](RoutingPolicy policy) {
    return always_prefill(policy, kRequest, one_with(0), members).value().place;
  };
  EXPECT_EQ(place(RoutingPolicy::kFirstToken), 0u);
  EXPECT_EQ(place(RoutingPolicy::kPromptTree), 0u);
  EXPECT_EQ(place(RoutingPolicy::kSession), 1u);
  EXPECT_EQ(place(RoutingPolicy::kLeastLoad), 2u);
  EXPECT_FALSE(always_prefill(RoutingPolicy::kFirstToken, kRequest, one_with(0), {}));
  RoutedTo decode = one_with(0);
  decode.bytes_disk = kRequest.bytes - 1;
  EXPECT_TRUE(always_prefill(RoutingPolicy::kFirstToken, kRequest, decode, members));
  decode.bytes_disk = kRequest.bytes;
  EXPECT_FALSE(always_prefill(RoutingPolicy::kFirstToken, kRequest, decode, members)) << "it lacks nothing";
}

TEST(PrefillChoice, RulesHaveNames) {
  EXPECT_EQ(parse_handover("predicted"), Handover::kPredicted);
  EXPECT_EQ(parse_handover("always"), Handover::kAlways);
  EXPECT_FALSE(parse_handover("never"));
}

}  // namespace
}  // namespace loci
