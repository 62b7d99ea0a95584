// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/giving_way.h"

#include "loci/base/random.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace loci {
namespace {

constexpr TokenId kSample(7);

// A core whose requests have tenants, and which of them have begun.
class Tenants {
 public:
  explicit Tenants(std::uint32_t blocks, std::uint32_t places = 32)
      : core_(Core::make(config_with(blocks, places)).value()) {}

  void arrive(std::uint64_t id, const std::string& tenant, std::size_t tokens, std::uint32_t max_new) {
    Arrival arrival{RequestId(id), "group", run_of(static_cast<std::uint32_t>(1'000 * id), tokens),
                    max_new,       0,       {},
                    kNever};
    arrival.tenant = tenant;
    step(arrival);
  }
  void cancel(std::uint64_t id) { step(Cancel{RequestId(id)}); }
  // Ends passes, at most so many.
  void pass(int times) {
    while (times-- > 0 && in_flight_) step(pass_done(*std::exchange(in_flight_, {}), kSample));
  }
  bool has_begun(std::uint64_t id) const { return begun_.contains(id); }
  bool has_ended(std::uint64_t id) const { return ended_.contains(id); }
  std::uint64_t suspensions() const { return core_.stats().suspensions_total; }

 private:
  static CoreConfig config_with(std::uint32_t blocks, std::uint32_t places) {
    CoreConfig config = config_of(blocks);
    config.max_running = places;
    config.decode_reserve_percent = 0;
    return config;
  }
  void step(const Event& event) {
    const Plan plan = core_.step(0, event);
    core_.check_invariants();
    if (plan.pass) in_flight_ = plan;
    for (const Output& output : plan.outputs) {
      if (const auto* started = std::get_if<Started>(&output)) begun_.insert(started->request.value);
      if (const auto* finished = std::get_if<Finished>(&output)) ended_.insert(finished->request.value);
    }
  }

  Core core_;
  std::optional<Plan> in_flight_;
  std::set<std::uint64_t> begun_, ended_;
};

// a and b hold their shares of twelve blocks for long; c asks for ten, which nobody has to give up for it.
Tenants with_a_long_prompt_first() {
  Tenants tenants(12);
  tenants.arrive(1, "a", 100, 28);  // four blocks, to the reply's end
  tenants.arrive(2, "b", 100, 28);
  tenants.pass(2);
  tenants.arrive(3, "c", 310, 1);
  tenants.pass(1);
  return tenants;
}

TEST(GivingWay, OthersPassWhoWaitsForMoreThanItsShare) {
  Tenants tenants = with_a_long_prompt_first();
  tenants.arrive(4, "d", 40, 1);
  tenants.pass(2);
  EXPECT_FALSE(tenants.has_begun(3));
  EXPECT_TRUE(tenants.has_ended(4));
  EXPECT_EQ(tenants.suspensions(), 0u);
}

TEST(GivingWay, NoMorePassesItThanItWaitsFor) {
  Tenants tenants = with_a_long_prompt_first();
  std::uint64_t passed = 0;
  for (std::uint64_t id = 4; id < 20; ++id) {
    tenants.arrive(id, "d", 60, 1);
    tenants.pass(1);
    passed += tenants.has_begun(id) ? 60 : 0;
  }
  EXPECT_FALSE(tenants.has_begun(3));
  EXPECT_GT(passed, 200u);
  EXPECT_LE(passed, 310u);
  tenants.pass(60);
  EXPECT_TRUE(tenants.has_ended(3)) << "it was next";
  EXPECT_TRUE(tenants.has_ended(19));
}

// Its reply counts: else a prompt of one token and a reply of thousands would pass for one.
TEST(GivingWay, RepliesCountForWhatPasses) {
  Tenants tenants(12);
  tenants.arrive(1, "a", 97, 32);
  tenants.arrive(2, "b", 97, 32);
  tenants.pass(2);
  tenants.arrive(3, "c", 150, 1);  // a block more than is free
  tenants.pass(1);
  for (std::uint64_t id = 4; id < 7; ++id) tenants.arrive(id, "d" + std::to_string(id), 5, 20);
  tenants.pass(22);
  for (std::uint64_t id = 4; id < 7; ++id) EXPECT_TRUE(tenants.has_ended(id));
  tenants.arrive(7, "e", 90, 1);
  tenants.arrive(8, "f", 60, 1);
  tenants.pass(2);
  EXPECT_FALSE(tenants.has_begun(3));
  EXPECT_FALSE(tenants.has_begun(7)) << "with 15 tokens of prompts and 60 of replies 90 are more than 150";
  EXPECT_TRUE(tenants.has_begun(8));
  tenants.pass(60);
  EXPECT_TRUE(tenants.has_ended(3));
  EXPECT_TRUE(tenants.has_ended(7));
}

// Who gives way for it does not come back before it, to give way again.
TEST(GivingWay, WhoGaveWayDoesNotPass) {
  Tenants tenants(12);
  tenants.arrive(1, "a", 100, 300);
  tenants.arrive(2, "a", 100, 28);
  tenants.pass(4);
  tenants.arrive(3, "b", 310, 1);
  tenants.pass(120);
  EXPECT_LE(tenants.suspensions(), 1u);
  tenants.pass(400);
  EXPECT_TRUE(tenants.has_ended(3));
}

// c is within its share of the places and of the memory, which both are all taken.
TEST(GivingWay, WhoIsEntitledGetsAPlaceAndItsMemory) {
  Tenants tenants(16, 4);
  for (std::uint64_t id = 1; id < 4; ++id) tenants.arrive(id, "a", 100, 60);
  tenants.arrive(4, "e", 5, 60);
  tenants.pass(3);
  tenants.arrive(5, "c", 120, 1);
  tenants.pass(3);
  EXPECT_TRUE(tenants.has_begun(5));
  EXPECT_EQ(tenants.suspensions(), 1u);
}

TEST(GivingWay, WhoWaitsForItsShareIsPassedByNobody) {
  Tenants tenants(12);
  tenants.arrive(1, "a", 100, 28);
  tenants.arrive(2, "b", 220, 4);
  tenants.pass(2);
  tenants.arrive(3, "c", 90, 1);  // three blocks of the four that are its share, and one is free
  tenants.pass(1);
  tenants.arrive(4, "d", 20, 1);
  tenants.pass(1);
  EXPECT_FALSE(tenants.has_begun(3));
  EXPECT_FALSE(tenants.has_begun(4));
  tenants.pass(40);
  EXPECT_TRUE(tenants.has_ended(3));
  EXPECT_TRUE(tenants.has_ended(4));
}

// Within a tenant requests are in their order, and who is alone waits for its own.
TEST(GivingWay, ATenantsOwnDoNotPass) {
  Tenants tenants(12);
  tenants.arrive(1, "a", 100, 28);
  tenants.arrive(2, "a", 310, 1);
  tenants.arrive(3, "a", 20, 1);
  tenants.pass(3);
  EXPECT_FALSE(tenants.has_begun(2));
  EXPECT_FALSE(tenants.has_begun(3));
  tenants.pass(60);
  EXPECT_TRUE(tenants.has_ended(3));
}

TEST(GivingWay, SeveralThatLackRoomArePassed) {
  Tenants tenants = with_a_long_prompt_first();
  tenants.arrive(4, "d", 300, 1);
  tenants.arrive(5, "e", 40, 1);
  tenants.pass(2);
  EXPECT_FALSE(tenants.has_begun(3));
  EXPECT_FALSE(tenants.has_begun(4));
  EXPECT_TRUE(tenants.has_ended(5));
  tenants.cancel(3);
  tenants.cancel(4);
  tenants.pass(60);
  EXPECT_TRUE(tenants.has_ended(1));
  EXPECT_TRUE(tenants.has_ended(2));
}

// Who goes on with what it has said long ago pays for its new tokens alone. What it holds comes back from the
// disk, so it holds it for nobody's cost. True: it has given way to another tenant's request.
bool gives_way_with_history_on_disk(const CoreConfig& config) {
  TierDriver d(config);
  const Tokens history = run_of(0, 9 * kBlockTokens + 10);
  d.run(1, history, "a");
  d.arrive(2, history + run_of(5000, 20), 60, "a");  // eleven of the twelve blocks
  d.end_moves();
  EXPECT_EQ(d.starts.size(), 2u);
  EXPECT_GE(d.starts.back().cached_tokens, 9 * kBlockTokens);
  d.arrive(3, run_of(9000, 150), 1, "b");  // five blocks of the six that are its share
  for (int pass = 0; pass < 50 && d.in_flight && d.starts.size() == 2; ++pass) {
    d.done();
    d.end_moves();
  }
  EXPECT_EQ(d.ends.size(), 1u) << "a's reply has not ended";
  return d.core.stats().suspensions_total == 1;
}

TEST(GivingWay, WhatTheDiskHasNeedNotBePaidFor) {
  EXPECT_TRUE(gives_way_with_history_on_disk(tier_config(12, 0, 64)));
}

// With layers that see 64 tokens what is seen where it goes on is saved when it gives way. Where nothing is
// saved it has all of its tokens to pay for.
TEST(GivingWay, BehindAWindowWhatIsSeenThereIsAllThatComesBack) {
  for (const std::string save : {"through", "off"}) {
    CoreConfig config = tier_config(12, 0, 64);
    config.groups.push_back(config.groups.front());
    config.groups.back().window = 64;
    config.save = save;
    EXPECT_EQ(gives_way_with_history_on_disk(config), save == "through") << save;
  }
}

// A tenant goes on with a long conversation that the disk has, and fills the device. Another one sends one
// short prompt after the other.
class LongBesideShort {
 public:
  static constexpr std::uint32_t kHistory = 32, kRoom = 20;  // blocks
  static constexpr std::uint32_t kReply = 600;

  // The device has room for the reply, and for no short prompt beside it. Loading a block takes that part of
  // the time of computing it.
  static CoreConfig config(std::uint32_t part) {
    CoreConfig config = tier_config(kHistory + kRoom, 0, 8 * kHistory);
    config.costs.attention = {0};
    const auto bytes = config.groups[0].block_bytes;
    config.costs.disk_read = {1000, bytes * kNanosPerSecond * part / (kBlockTokens * config.costs.token)};
    return config;
  }

  explicit LongBesideShort(const CoreConfig& config)
      : d_(config), load_time_(d_.costs.load(Tier::kDisk, config.groups[0].block_bytes)) {
    const Tokens history = run_of(0, kHistory * kBlockTokens + 10);
    d_.run(1, history, "long");
    d_.run(2, run_of(100'000, (kHistory + kRoom - 1) * kBlockTokens),
           "other");  // the device has the history no more
    d_.arrive(3, history + run_of(5000, 20), kReply, "long");
  }

  std::size_t loads() const { return d_.count(Tier::kDisk, Tier::kDevice); }
  void end_moves(MoveResult result) {
    const Nanos took =
        result == MoveResult::kDone ? load_time_ * static_cast<Nanos>(loads()) : kNanosPerSecond;
    d_.now += took;
    MovesEnded ended;  // (what begins then takes its time, too)
    for (const Move& move : std::exchange(d_.moves, {})) ended.moves.push_back({move.id, result, took});
    if (!ended.moves.empty()) d_.step(ended);
  }
  // How often anybody is suspended until the long one's reply has ended.
  std::uint64_t suspensions() {
    std::uint64_t id = 3;
    while ((d_.in_flight || !d_.moves.empty()) && !has_ended(3)) {
      if (id == 3 || has_ended(id)) {
        ++id;
        const Tokens prompt =
            run_of(static_cast<std::uint32_t>(200'000 + 1000 * id), kRoom * kBlockTokens + 2);
        d_.step(Arrival{RequestId(id), "short", prompt, 1, 0, {}, kNever, 32});
      }
      if (d_.in_flight) d_.done();
      end_moves(MoveResult::kDone);
    }
    return d_.core.stats().suspensions_total;
  }
  bool has_ended(std::uint64_t id) const {
    return std::ranges::any_of(d_.ends, [id](const Finished& end) { return end.request == RequestId(id); });
  }

 private:
  TierDriver d_;
  Nanos load_time_;
};

// Each time what they took is loaded again. So they wait for as many tokens of the long one's reply as are
// computed in that time.
TEST(GivingWay, ShortPromptsDoNotHaveALongContextLoadedEachTime) {
  std::vector<std::uint64_t> suspensions;
  for (const std::uint32_t part : {8u, 50'000u}) {
    LongBesideShort tenants(LongBesideShort::config(part));
    ASSERT_GE(tenants.loads(), 16u);
    tenants.end_moves(MoveResult::kDone);
    suspensions.push_back(tenants.suspensions());
    EXPECT_TRUE(tenants.has_ended(3));
  }
  EXPECT_GE(suspensions[0], 1u) << "it has not paid for all of it";
  EXPECT_LE(2 * suspensions[0], suspensions[1]) << "loads that take no time";
}

TEST(GivingWay, WhatWouldNotBeLoadedIsPaidFor) {
  CoreConfig recomputes = LongBesideShort::config(32);
  recomputes.restore = "recompute";
  for (const CoreConfig& config : {LongBesideShort::config(1), recomputes}) {
    LongBesideShort tenants(config);
    EXPECT_EQ(tenants.suspensions(), 0u);
    EXPECT_TRUE(tenants.has_ended(3));
  }
}

// What prompts and replies need, and what was computed in all, of four tenants that send at random: one long
// prompts, the others up to `small` tokens each. Prompts have nothing in common, and nothing but the device
// keeps state.
struct Work {
  std::size_t own = 0, computed = 0;
  std::uint64_t suspensions = 0;
};
Work work_of_random_arrivals(std::uint64_t seed, std::uint32_t small) {
  Random random(seed);
  CoreConfig config = tier_config(24, 0, 0);
  config.max_running = 6;
  TierDriver d(config);
  constexpr std::uint64_t kRequests = 150;
  std::map<std::uint64_t, std::uint32_t> tenant_of;
  std::array<std::uint32_t, 4> waiting{};
  std::array<std::uint32_t, 4> weights{};
  for (std::uint32_t& weight : weights) weight = 1 + static_cast<std::uint32_t>(random.below(3));
  Work work;
  std::size_t ended = 0;
  while (tenant_of.size() < kRequests || d.in_flight) {
    for (std::uint32_t tenant = 0; tenant < 4 && tenant_of.size() < kRequests; ++tenant) {
      if (waiting[tenant] > (tenant == 0 ? 1u : 0u) || random.below(3) == 0) continue;
      const std::uint64_t id = tenant_of.size() + 1;
      const std::uint64_t prompt = tenant == 0 ? 100 + random.below(400) : 1 + random.below(small);
      const std::uint64_t reply = tenant == 0 ? 1 + random.below(80) : 1 + random.below(4);
      tenant_of[id] = tenant;
      ++waiting[tenant];
      d.step(Arrival{RequestId(id),
                     std::string(1, static_cast<char>('a' + tenant)),
                     run_of(static_cast<std::uint32_t>(10'000 * id), prompt),
                     static_cast<std::uint32_t>(reply),
                     0,
                     {},
                     kNever,
                     weights[tenant]});
    }
    if (d.in_flight) d.done();
    for (; ended < d.ends.size(); ++ended) {
      const Finished& end = d.ends[ended];
      --waiting[tenant_of.at(end.request.value)];
      work.own += end.usage.prompt_tokens + end.usage.completion_tokens - 1;
    }
  }
  work.computed = d.rows;
  work.suspensions = d.core.stats().suspensions_total;
  return work;
}

TEST(GivingWay, TwoThirdsOfWhatIsComputedAreKept) {
  std::uint64_t suspensions = 0;
  double worst = 0;
  for (const std::uint32_t small : {4u, 40u, 150u}) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Work work = work_of_random_arrivals(seed, small);
      EXPECT_LE(2 * work.computed, 3 * work.own) << small << ", seed " << seed;
      worst = std::max(worst, static_cast<double>(work.computed) / static_cast<double>(work.own));
      suspensions += work.suspensions;
    }
  }
  std::cout << "computed at most " << worst << " times what was needed\n";
  EXPECT_GT(suspensions, 100u);
}

// The disk has given up what it was to bring, and would do so again.
TEST(GivingWay, ADiskThatGivesMovesUpSavesNothing) {
  LongBesideShort tenants(LongBesideShort::config(32));
  ASSERT_GE(tenants.loads(), 32u);
  tenants.end_moves(MoveResult::kTooSlow);
  EXPECT_EQ(tenants.suspensions(), 0u);
  EXPECT_TRUE(tenants.has_ended(3));
}

}  // namespace
}  // namespace loci
