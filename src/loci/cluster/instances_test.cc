// SPDX-License-Identifier: Apache-2.0
// Who may get requests, as lists of members come.
#include "loci/cluster/instances.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace loci {
namespace {

TEST(Instances, ListsAfterATimeWithoutAnyAreBelievedWhenMembersHadTimeToComeBack) {
  constexpr Nanos kSecond = kNanosPerSecond;
  Instances instances({});
  const Member member{.id = "0000000000000001", .host = "a", .port = 1, .models = {"tiny"}};
  instances.update({member}, 0);
  const std::shared_ptr<Instance> one = instances.all().begin()->second;
  instances.update({}, kSecond);
  EXPECT_FALSE(instances.is_member(*one, kSecond));
  EXPECT_EQ(instances.choose({}, {}, kSecond).instance, nullptr);
  instances.update({member}, 2 * kSecond);
  EXPECT_TRUE(instances.is_member(*one, 2 * kSecond));
  // The database was away, and all rows are too old when it is back.
  instances.update({}, 20 * kSecond);
  EXPECT_EQ(instances.choose({}, {}, 20 * kSecond).instance, one);
  instances.update({}, 21 * kSecond);
  EXPECT_TRUE(instances.is_member(*one, 24 * kSecond));
  EXPECT_FALSE(instances.is_member(*one, 25 * kSecond));
}

// A standby that is gone, a disk that is full: lists come each second, and renewals fail.
TEST(Instances, WhoseRowsAllGrowOldAtOnceLive) {
  constexpr Nanos kSecond = kNanosPerSecond;
  std::vector<Member> members;
  std::vector<std::string> ids;
  for (std::uint16_t i = 1; i <= 4; ++i) {
    ids.push_back(fmt::format("{:016x}", i));
    members.push_back({.id = ids.back(), .host = "a", .port = i, .models = {"tiny"}});
  }
  Instances instances({});
  Nanos now = 0;
  instances.update(members, now);
  const auto serving = [&] {
    return std::ranges::count_if(instances.all(),
                                 [&](const auto& one) { return instances.is_member(*one.second, now); });
  };
  // One whose row alone grows old, or two of four, may be dead: requests are for those that renew theirs.
  now += kSecond;
  instances.update({members.begin() + 2, members.end()}, now, std::span(ids).first(2));
  EXPECT_EQ(serving(), 2);
  now += kSecond;
  instances.update(members, now);
  for (int second = 0; second < 600; ++second) {  // for as long as it lasts
    now += kSecond;
    instances.update({}, now, ids);
    ASSERT_EQ(serving(), 4) << second;
    ASSERT_NE(instances.choose({}, {}, now).instance, nullptr) << second;
  }
  // Who does not answer is removed, and the others stay.
  instances.remove(1);
  now += kSecond;
  instances.update({}, now, ids);
  EXPECT_EQ(serving(), 3);
  // They come back one after the other, each within a second.
  now += kSecond;
  instances.update({members[1]}, now, std::vector<std::string>{ids[0], ids[2], ids[3]});
  EXPECT_EQ(serving(), 3);
  now += kSecond;
  instances.update({members[1], members[2]}, now, std::vector<std::string>{ids[0], ids[3]});
  EXPECT_EQ(serving(), 3);
  // Then a single one is left that does not.
  now += kMemberLifetime;
  instances.update({members[1], members[2]}, now, std::vector<std::string>{ids[0], ids[3]});
  EXPECT_EQ(serving(), 3) << "after a time without lists";
  for (int second = 0; second < 5; ++second) {
    now += kSecond;
    instances.update({members[1], members[2]}, now, std::vector<std::string>{ids[0], ids[3]});
  }
  EXPECT_EQ(serving(), 2);
}

TEST(Instances, WhoLeftIsNoMemberBesideOthersThatLive) {
  constexpr Nanos kSecond = kNanosPerSecond;
  const Member one{.id = "0000000000000001", .host = "a", .port = 1, .models = {"tiny"}};
  const Member two{.id = "0000000000000002", .host = "a", .port = 2, .models = {"tiny"}};
  Instances instances({});
  instances.update({one, two}, 0);
  // Rows of others, long dead, which this front never knew.
  const std::vector<std::string> dead = {"0000000000000003", "0000000000000004", "0000000000000005"};
  instances.update({two}, kSecond, dead);
  EXPECT_FALSE(instances.is_member(*instances.all().at(1), kSecond));
  instances.update({}, 2 * kSecond, dead);
  EXPECT_EQ(instances.choose({}, {}, 2 * kSecond).instance, nullptr);
}

Member member_of(int number, std::uint32_t queued) {
  return {.id = fmt::format("{:016x}", number),
          .host = "a",
          .port = static_cast<std::uint16_t>(number),
          .models = {"tiny"},
          .queued = queued};
}

// Instances 1 to n with these queues.
class Cluster {
 public:
  explicit Cluster(const std::vector<std::uint32_t>& queued) {
    std::vector<Member> members;
    for (const std::uint32_t one : queued)
      members.push_back(member_of(static_cast<int>(members.size()) + 1, one));
    instances.update(members, 0);
    instances.update(members, 0);  // what others sent counts from the second list on
  }
  void tells(std::uint32_t number, const FeedCosts& costs) { instances.all().at(number)->costs = costs; }
  Instances::Choice choose(const RoutedPrompt& prompt) { return instances.choose(prompt, {}, 0); }

  Instances instances{{}};
};

constexpr FeedCosts kUsual{.compute_us = 1'000, .host_us = 10, .disk_us = 100, .peer_us = 200};
const RoutedPrompt kPrompt{.model = "tiny", .keys = {4, 8, 12, 16}, .bytes = 1'100, .is_generated = true};

TEST(Instances, WhoHasTheNameGoesBeforeWhoTakesAny) {
  Instances instances({.policy = RoutingPolicy::kLeastLoad});
  Member named = member_of(1, 100), any = member_of(2, 0);
  named.models = {"tiny"};
  any.models = {"other"};
  any.any_model = true;
  instances.update({named, any}, 0);
  const auto chosen = [&](const char* model) {
    RoutedPrompt prompt;
    prompt.model = model;
    return instances.choose(prompt, {}, 0).instance->member.id;
  };
  EXPECT_EQ(chosen("tiny"), named.id);
  EXPECT_EQ(chosen("other"), any.id);
  EXPECT_EQ(chosen("nobody's"), any.id);
  named.draining = true;
  instances.update({named, any}, 0);
  EXPECT_EQ(chosen("tiny"), any.id) << "nobody else takes it";
}

// A response in the background may run for an hour, and who asks after it must reach the one that runs it.
TEST(Instances, WhatIsAskedAfterIsNotForgotten) {
  constexpr Nanos kMinute = 60 * kNanosPerSecond;
  Cluster two({0, 0});
  const RoutedPrompt begun{
      .model = "tiny", .keys = {4}, .bytes = 100, .is_generated = true, .begins_response = true};
  const Instance& home = *two.instances.all().at(1);
  two.instances.remember_session(77, begun, {home}, 0);
  const RoutedPrompt asks{.model = "tiny", .continues = 77};
  Nanos now = 0;
  for (int i = 0; i < 20; ++i) {
    now += 10 * kMinute;
    std::vector<Member> members = {member_of(1, 9), member_of(2, 0)};
    two.instances.update(members, now);
    two.instances.renew(asks, *two.instances.all().at(2), now - 5 * kMinute);
    two.instances.renew(asks, home, now);
    EXPECT_EQ(two.instances.choose(asks, {}, now).instance->number, 1u) << i;
  }
}

TEST(Instances, OneThatTellsOutrageousCostsStarvesNobody) {
  Cluster high({50, 50, 50, 50, 0});
  for (std::uint32_t one = 1; one <= 3; ++one) high.tells(one, kUsual);
  high.tells(4,
             {.compute_us = UINT32_MAX, .host_us = UINT32_MAX, .disk_us = UINT32_MAX, .peer_us = UINT32_MAX});
  EXPECT_EQ(high.choose(kPrompt).instance->number, 5u) << "which tells nothing, and has no queue";

  Cluster low({0, 0, 50});
  low.tells(1, kUsual);
  low.tells(2, kUsual);
  low.tells(3, {.compute_us = 1, .host_us = 1, .disk_us = 1, .peer_us = 1});
  EXPECT_NE(low.choose(kPrompt).instance->number, 3u) << "nobody computes a thousand times faster";
}

TEST(Instances, WorkIsThePromptWhereAMemberTellsThatItTakesNoTime) {
  Cluster one({0});
  one.tells(1, {.compute_us = 0, .host_us = 0, .disk_us = 0, .peer_us = 0});
  const Instances::Choice choice = one.choose(kPrompt);
  EXPECT_EQ(choice.work_bytes, kPrompt.bytes);
  EXPECT_GT(choice.predicted.value(), 0);
}

// A process that has just ended is listed for as long as its row is young, beside the one that has its
// address now.
TEST(Instances, WhoHasTheAddressOfAnotherReplacesItAtOnce) {
  Member dead = member_of(2, 0), born = member_of(1, 0);  // lists are in the order of the ids
  born.port = dead.port;
  for (const bool is_first : {true, false}) {
    if (!is_first) std::swap(dead.id, born.id);
    const std::vector<Member> both =
        is_first ? std::vector<Member>{born, dead} : std::vector<Member>{dead, born};
    Instances instances({});
    instances.update({dead}, 0);
    const std::uint32_t number = instances.all().begin()->first;
    int ended = 0;
    instances.all().at(number)->enders.emplace(1, [&] { ++ended; });
    EXPECT_EQ(instances.update(both, 0), std::vector<std::uint32_t>{number});
    EXPECT_EQ(ended, 1) << "what ran there was the dead process's";
    ASSERT_EQ(instances.all().size(), 1u);
    const std::uint32_t next = instances.all().begin()->first;
    EXPECT_EQ(instances.all().at(next)->member.id, born.id);
    for (const std::vector<Member>& list : {both, both, {born}}) {
      EXPECT_TRUE(instances.update(list, 0).empty());
      ASSERT_EQ(instances.all().size(), 1u);
      EXPECT_EQ(instances.all().begin()->first, next) << "it is the same as before";
      EXPECT_TRUE(instances.all().at(next)->is_listed);
    }
  }
}

// A front that has just begun can't tell which of them is the dead one. Its row ends.
TEST(Instances, OfTwoOfOneAddressInAFirstListTheOneWhoseRowGoesOnStays) {
  Member one = member_of(1, 0), two = member_of(2, 0);
  one.port = two.port;
  for (const Member& living : {one, two}) {
    Instances instances({});
    instances.update({one, two}, 0);
    EXPECT_EQ(instances.all().size(), 1u);
    instances.update({one, two}, 0);
    EXPECT_EQ(instances.all().size(), 1u);
    instances.update({living}, 0);
    ASSERT_EQ(instances.all().size(), 1u);
    EXPECT_EQ(instances.all().begin()->second->member.id, living.id);
    EXPECT_TRUE(instances.all().begin()->second->is_listed);
  }
}

TEST(Instances, PeersHaveWhatTheOneWithMostHas) {
  Cluster three({200, 100, 0});
  for (std::uint32_t one = 1; one <= 3; ++one) three.tells(one, {.compute_us = 100'000, .peer_us = 1});
  Instance& first = *three.instances.all().at(1);
  Instance& second = *three.instances.all().at(2);
  for (const std::uint64_t key : kPrompt.keys)
    three.instances.publish(first, FeedEntry::of(key, Tier::kDevice));
  three.instances.publish(second, FeedEntry::of(4, Tier::kDevice));
  const Instances::Choice choice = three.choose(kPrompt);
  EXPECT_EQ(choice.instance->number, 3u);
  EXPECT_EQ(choice.why, RoutedWhy::kPeer);
  // 4 of its chunks are the first one's; the rest, and asking for them, counts as this much text.
  EXPECT_LT(choice.work_bytes, 200u);
  three.instances.unpublish(first);
  EXPECT_GT(three.choose(kPrompt).work_bytes, 800u) << "a chunk is the second one's";
}

}  // namespace
}  // namespace loci
