// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/giving_way.h"
#include "loci/engine/testing/core_testing.h"

#include <gtest/gtest.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>

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

}  // namespace
}  // namespace loci
