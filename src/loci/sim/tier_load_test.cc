// SPDX-License-Identifier: Apache-2.0
// The production core with modelled hardware: what tiers, eviction and admission do to the time to the first
// token.
#include "loci/sim/tier_load.h"

#include <gtest/gtest.h>

#include <string>

#include "loci/policy/admission_order.h"
#include "loci/policy/eviction.h"

namespace loci {
namespace {

// Sessions of three turns, each with a prompt of its own: 30 to 40 blocks when all is said.
Trace conversations(std::uint64_t sessions) {
  Trace trace{.name = "test", .sessions = {}};
  for (std::uint64_t s = 0; s < sessions; ++s) {
    TraceSession session{.at = static_cast<Nanos>(s) * kNanosPerSecond, .turns = {}};
    for (std::uint64_t t = 0; t < 3; ++t) {
      session.turns.push_back({.after = 5 * kNanosPerSecond,
                               .appends = true,
                               .pieces = {{s * 10 + t + 1, 300 + static_cast<std::uint32_t>(s * 7 % 90)}},
                               .output_tokens = 20});
    }
    trace.sessions.push_back(std::move(session));
  }
  return trace;
}

CoreConfig config_of(std::uint32_t device, std::uint32_t host, std::uint32_t disk) {
  CoreConfig config;
  config.groups = {{.block_count = device, .host_blocks = host, .disk_blocks = disk, .block_bytes = 700'000}};
  config.layers = 10;
  config.context_tokens = 2048;
  config.max_running = 8;
  config.max_queued = 1000;
  config.hole_records = disk;
  return config;
}

TEST(TierLoad, ReusesAllThatIsKept) {
  const Trace trace = conversations(12);
  const TierLoadReport all = run_tier_load(trace, config_of(1000, 0, 0));
  EXPECT_EQ(all.first_token.size(), 36u);
  EXPECT_EQ(all.refused, 0u);
  EXPECT_GE(all.from[0], all.reusable_tokens) << "and parts of blocks";
  EXPECT_EQ(all.from[1] + all.from[2], 0u);

  // Memory for two conversations, and tiers for all of them.
  const TierLoadReport host = run_tier_load(trace, config_of(100, 1000, 0));
  const TierLoadReport disk = run_tier_load(trace, config_of(100, 0, 1000));
  const TierLoadReport none = run_tier_load(trace, config_of(100, 0, 0));
  EXPECT_GT(host.from[1], host.from[0]);
  EXPECT_GT(disk.from[2], disk.from[0]);
  EXPECT_GE(host.cached_tokens() * 10, host.reusable_tokens * 9);
  EXPECT_GE(disk.cached_tokens() * 10, disk.reusable_tokens * 9);
  EXPECT_LT(none.cached_tokens() * 2, none.reusable_tokens);
  EXPECT_LT(host.mean_first_token(), none.mean_first_token());
  EXPECT_LT(disk.mean_first_token(), none.mean_first_token());
}

TEST(TierLoad, EveryPolicyServesAllAndAgainTheSame) {
  const Trace trace = conversations(6);
  for (const std::string_view eviction : kEvictionPolicies) {
    for (const std::string_view admission : kAdmissionOrders) {
      CoreConfig config = config_of(90, 60, 100);
      config.eviction = eviction;
      config.admission = admission;
      const TierLoadReport first = run_tier_load(trace, config);
      const TierLoadReport again = run_tier_load(trace, config);
      EXPECT_EQ(first.first_token, again.first_token) << eviction << " " << admission;
      EXPECT_EQ(first.from, again.from);
      EXPECT_EQ(first.first_token.size(), 18u);
      EXPECT_LT(first.first_token_percentile(100), kNever) << eviction << " " << admission;
    }
  }
}

// One place in the batch, which is taken; a request that nothing is known of waits, then one whose state is
// on the device. Requests by arrival: 0 leaves state, 1 runs, 2 is far, 3 is near.
TEST(TierLoad, AdmitsTheNearestWhereThatIsTheOrder) {
  const auto one = [](Nanos at, std::uint64_t content, std::uint32_t output) {
    return TraceSession{
        .at = at,
        .turns = {{.after = 0, .appends = true, .pieces = {{content, 320}}, .output_tokens = output}}};
  };
  Trace trace{.name = "test",
              .sessions = {one(0, 1, 1), one(10 * kNanosPerSecond, 2, 1000),
                           one(11 * kNanosPerSecond, 3, 1000), one(12 * kNanosPerSecond, 1, 1)}};
  const auto waits_of = [&](const char* admission) {
    CoreConfig config = config_of(1000, 0, 0);
    config.max_running = 1;
    config.admission = admission;
    return run_tier_load(trace, config).first_token;
  };
  const std::vector<Nanos> fcfs = waits_of("fcfs"), fpf = waits_of("fpf"), relaxed = waits_of("relaxed-fpf");
  EXPECT_LT(fcfs[2] + 11 * kNanosPerSecond, fcfs[3] + 12 * kNanosPerSecond);
  EXPECT_GT(fpf[2] + 11 * kNanosPerSecond, fpf[3] + 12 * kNanosPerSecond);
  // It has waited nearly as long, and counts four times.
  EXPECT_EQ(relaxed, fpf);
  EXPECT_LT(fpf[3], fcfs[3]);
}

}  // namespace
}  // namespace loci
