// SPDX-License-Identifier: Apache-2.0
// What the store that servers share is asked for a request, with the core around it.
#include "loci/engine/core/shared_questions.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/testing/core_testing.h"
#include "loci/engine/testing/tier_driver_testing.h"

namespace loci {
namespace {

std::size_t keys_asked(const TierDriver& d) { return d.plan.asks.empty() ? 0 : d.plan.asks[0].keys.size(); }

// The blocks behind which it goes on lack their windows' state, which it does not read.
TEST(SharedQuestions, NothingIsAskedOfWhatWindowsHaveMovedPast) {
  CoreConfig config = tier_config(16, 0, 0);
  config.groups.front().shared_blocks = 64;
  config.groups.push_back(config.groups.front());
  config.groups.back().window = 64;
  config.groups.back().block_count = 4;
  TierDriver d(config);
  d.arrive(1, run_of(0, 256));
  ASSERT_EQ(keys_asked(d), 7u) << "nothing is here";
  d.step(SharedAnswer{RequestId(1), std::vector<std::uint8_t>(7, 0)});
  d.finish();
  d.arrive(2, run_of(0, 261));
  EXPECT_EQ(keys_asked(d), 0u);
  EXPECT_EQ(d.spans(), "2:256+5") << "nor does it wait for an answer";
  d.finish();
  d.arrive(3, run_of(0, 330));
  EXPECT_EQ(keys_asked(d), 2u) << "of what follows nothing is here";
}

// Another server may have computed it. (In models with windows it needs state that others have let go.)
TEST(SharedQuestions, APublicPrefixIsAskedForToo) {
  CoreConfig config = tier_config(16, 0, 0);
  config.groups.front().shared_blocks = 64;
  Arrival arrival{RequestId(1), "operator", run_of(0, 140), 1, 0, {}, kNever};
  arrival.scope = SharingScope::kPublic;
  TierDriver d(config);
  d.step(arrival);
  ASSERT_EQ(keys_asked(d), 4u);
  d.step(SharedAnswer{RequestId(1), {1, 1, 1, 0}});
  EXPECT_EQ(d.count(Tier::kShared, Tier::kDevice), 3u);
  d.finish();
  EXPECT_EQ(d.rows, 44u);
  d.arrive(2, run_of(0, 150));
  EXPECT_EQ(d.starts.back().cached_tokens, 140u) << "and it is public";
  d.finish();
  config.groups.push_back(config.groups.front());
  config.groups.back().window = 64;
  TierDriver windows(config);
  windows.step(arrival);
  EXPECT_EQ(keys_asked(windows), 0u);
  windows.finish();
}

}  // namespace
}  // namespace loci
