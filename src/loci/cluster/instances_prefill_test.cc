// SPDX-License-Identifier: Apache-2.0
// Members of different roles: who gets requests, and who computes their prompts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "loci/cluster/instances.h"

namespace loci {
namespace {

constexpr FeedCosts kTold{.compute_us = 1'000, .host_us = 10, .disk_us = 100, .peer_us = 100};
// Nobody has anything of it.
const RoutedPrompt kLongPrompt{.model = "tiny", .keys = {}, .bytes = 64 << 10, .is_generated = true};

// Instances 1 to n of these roles, which tell what they have.
class Roles {
 public:
  explicit Roles(const std::vector<MemberRole>& roles, Nanos now = 0) {
    for (const MemberRole role : roles) {
      const auto number = static_cast<int>(members.size()) + 1;
      members.push_back({.id = fmt::format("{:016x}", number),
                         .host = "a",
                         .port = static_cast<std::uint16_t>(number),
                         .models = {"tiny"},
                         .peer_port = static_cast<std::uint16_t>(100 + number),
                         .role = role});
    }
    list(now);
    for (const auto& [number, one] : instances.all()) one->costs = kTold;
  }
  void list(Nanos now = 0) { instances.update(members, now); }
  Instance& one(std::uint32_t number) { return *instances.all().at(number); }
  // The numbers of who gets the request and of who computes its prompt; 0: nobody.
  std::pair<std::uint32_t, std::uint32_t> choose(const RoutedPrompt& prompt = kLongPrompt,
                                                 std::vector<std::uint32_t> tried = {}) {
    const Instances::Choice choice = instances.choose(prompt, tried, 0);
    return {choice.instance ? choice.instance->number : 0,
            choice.prefill ? choice.prefill->instance->number : 0};
  }

  std::vector<Member> members;
  Instances instances{{}};
};

using Chosen = std::pair<std::uint32_t, std::uint32_t>;
constexpr MemberRole kBoth = MemberRole::kBoth, kPrefill = MemberRole::kPrefill,
                     kDecode = MemberRole::kDecode;

TEST(Roles, APrefillMemberGetsRequestsOnlyWhereNobodyElseLives) {
  Roles three({kPrefill, kDecode, kBoth});
  three.one(2).bytes_before = three.one(3).bytes_before = 1 << 20;
  EXPECT_NE(three.choose().first, 1u) << "though it is idle";
  EXPECT_EQ(three.choose(kLongPrompt, {2, 3}), Chosen(1, 0));
  three.one(2).avoided_until = three.one(3).avoided_until = kNanosPerSecond;
  EXPECT_EQ(three.choose().first, 1u) << "who does not answer does not live";
}

TEST(Roles, APrefillMemberComputesAPromptAndTheOtherBringsIt) {
  Roles two({kPrefill, kDecode});
  const Instances::Choice choice = two.instances.choose(kLongPrompt, {}, 0);
  ASSERT_TRUE(choice.prefill);
  EXPECT_EQ(choice.instance->number, 2u);
  EXPECT_EQ(choice.prefill->instance->number, 1u);
  EXPECT_EQ(choice.prefill->work_bytes, kLongPrompt.bytes);
  EXPECT_LT(choice.work_bytes, kLongPrompt.bytes / 4) << "it brings a tenth of the time, and asks";
  constexpr Nanos kComputed = 256 * kNanosPerMilli;
  EXPECT_GT(choice.predicted.value(), kComputed);
  EXPECT_EQ(choice.prefill->begin_limit, kNanosPerSecond + 2 * kComputed);
  EXPECT_EQ(choice.prefill->silence_limit, kPrefillSilenceMin);
  RoutedPrompt longer = kLongPrompt;
  longer.bytes *= 10;
  EXPECT_EQ(two.instances.choose(longer, {}, 0).prefill.value().silence_limit, 5 * kComputed);
  Roles both({kPrefill, kBoth});
  EXPECT_EQ(both.choose(), Chosen(2, 1));
}

TEST(Roles, TheOneThatIsDoneFirstComputes) {
  Roles three({kPrefill, kDecode, kPrefill});
  three.one(1).bytes_before = 32 << 10;
  EXPECT_EQ(three.choose(), Chosen(2, 3));
  three.one(3).bytes_before = 64 << 10;
  three.one(2).sent = 3;
  EXPECT_EQ(three.choose(), Chosen(2, 1));
}

TEST(Roles, WhoCannotComputeIsNotAsked) {
  const auto changed = [](auto change) {
    Roles two({kPrefill, kDecode});
    change(two);
    two.list();
    return two.choose();
  };
  ASSERT_EQ(changed([](Roles&) {}), Chosen(2, 1));
  EXPECT_EQ(changed([](Roles& two) { two.members[0].draining = true; }), Chosen(2, 0));
  EXPECT_EQ(changed([](Roles& two) { two.members[0].peer_port = 0; }), Chosen(2, 0));
  EXPECT_EQ(changed([](Roles& two) { two.members[1].peer_port = 0; }), Chosen(2, 0));
  EXPECT_EQ(changed([](Roles& two) { two.members[0].fingerprint = "other"; }), Chosen(2, 0));
  EXPECT_EQ(changed([](Roles& two) { two.one(1).avoided_until = 1; }), Chosen(2, 0));
  EXPECT_EQ(changed([](Roles& two) { two.one(1).costs.reset(); }), Chosen(2, 0));
  EXPECT_EQ(changed([](Roles& two) { two.one(2).costs.reset(); }), Chosen(2, 0));
  EXPECT_EQ(changed([](Roles& two) { two.members[0].role = kBoth; }).second, 0u);
  EXPECT_EQ(Roles({kDecode, kBoth}).choose().second, 0u);
}

TEST(Roles, OnlyRepliesWithMuchToComputeAreHandedOver) {
  Roles two({kPrefill, kDecode});
  RoutedPrompt prompt = kLongPrompt;
  prompt.bytes = 4'000;
  EXPECT_EQ(two.choose(prompt), Chosen(2, 0)) << "short";
  prompt = kLongPrompt;
  prompt.is_generated = false;
  EXPECT_EQ(two.choose(prompt), Chosen(2, 0)) << "nothing is computed";
  prompt = kLongPrompt;
  prompt.may_be_repeated = false;
  EXPECT_EQ(two.choose(prompt), Chosen(2, 1)) << "in the background";
  // The prefill member has all of it: the other one reads it by itself.
  prompt = kLongPrompt;
  prompt.bytes = 8 << 10;
  for (std::uint64_t key = 4; key <= 4 * 32; key += 4) prompt.keys.push_back(key);
  ASSERT_EQ(two.choose(prompt), Chosen(2, 1));
  for (const std::uint64_t key : prompt.keys)
    two.instances.publish(two.one(1), FeedEntry::of(key, Tier::kDevice));
  EXPECT_EQ(two.choose(prompt), Chosen(2, 0));
}

TEST(Roles, OtherPoliciesHandNothingOver) {
  Roles two({kPrefill, kDecode});
  for (const RoutingPolicy policy :
       {RoutingPolicy::kPromptTree, RoutingPolicy::kSession, RoutingPolicy::kLeastLoad}) {
    Instances other({.policy = policy});
    other.update(two.members, 0);
    for (const auto& [number, one] : other.all()) one->costs = kTold;
    const Instances::Choice choice = other.choose(kLongPrompt, {}, 0);
    EXPECT_EQ(choice.instance->number, 2u);
    EXPECT_FALSE(choice.prefill);
  }
}

TEST(Roles, EachPromptIsHandedOverWhereAlwaysIsWanted) {
  Roles four({kPrefill, kDecode, kPrefill, kPrefill});
  RoutedPrompt prompt = kLongPrompt;
  prompt.keys = {4, 8, 12};
  prompt.beginning = 77;
  prompt.bytes = 3 * kPromptChunkBytes + 10;
  for (int round = 0; round < 8; ++round) {
    const RoutingPolicy policy =
        std::array{RoutingPolicy::kFirstToken, RoutingPolicy::kPromptTree, RoutingPolicy::kSession,
                   RoutingPolicy::kLeastLoad}[static_cast<std::size_t>(round / 2)];
    Instances always({.policy = policy, .handover = Handover::kAlways});
    always.update(four.members, 0);
    const auto choose = [&] { return always.choose(prompt, {}, 0); };
    const Instances::Choice first = choose();
    EXPECT_EQ(first.instance->number, 2u);
    ASSERT_TRUE(first.prefill) << "though it is short, and nobody publishes anything";
    EXPECT_EQ(first.prefill->begin_limit, 600 * kNanosPerSecond) << "nothing is predicted";
    EXPECT_EQ(first.prefill->silence_limit, kPrefillSilenceMax);
    // The next turn is computed where the last one was, if the policy asks for that.
    const bool remembers = policy != RoutingPolicy::kLeastLoad;
    std::uint32_t other = 1;
    while (other == first.prefill->instance->number || other == 2) ++other;
    const Instances::Answering by{*first.instance, always.all().at(other).get()};
    const bool is_told_later = round % 2 == 1;
    always.remember(prompt, is_told_later ? Instances::Answering{by.instance} : by, 0);
    if (is_told_later) always.remember_prefill(prompt, by, 0);
    prompt.bytes += 100;
    const std::uint32_t then = choose().prefill->instance->number;
    EXPECT_EQ(then, remembers ? other : first.prefill->instance->number);
    prompt.bytes -= 100;
    // Nothing to compute.
    prompt.bytes = 3 * kPromptChunkBytes;
    EXPECT_EQ(choose().prefill.has_value(), false) << "it has been sent all of it";
    prompt.bytes += 10;
    always.all().at(1)->avoided_until = always.all().at(3)->avoided_until =
        always.all().at(4)->avoided_until = 1;
    EXPECT_FALSE(choose().prefill) << "nobody can";
  }
}

}  // namespace
}  // namespace loci
