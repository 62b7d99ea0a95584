// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/objective.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

TEST(Objective, ReadsLimits) {
  const Result<Objective> one = parse_objective("ttft=2s");
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->ttft_ms, 2000);
  EXPECT_FALSE(one->tbt_ms || one->latency_ms);
  const Result<Objective> all = parse_objective("latency=10s,ttft=500ms,tbt=50ms");
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(describe(*all),
            "TTFT of at most 500 ms and mean TBT of at most 50 ms and latency of at most 10000 ms");
  EXPECT_FALSE(Objective().asks());
}

TEST(Objective, RefusesWhatIsNone) {
  for (const char* text : {"", "ttft", "ttft=", "ttft=0s", "ttft=-1s", "ttft=2s,", "ttft=2s,ttft=3s",
                           "e2e=2s", "ttft=2x", "=2s", ",ttft=2s"}) {
    const Result<Objective> wrong = parse_objective(text);
    ASSERT_FALSE(wrong.ok()) << text;
    EXPECT_NE(wrong.status().message().find("as in ttft=500ms,tbt=50ms, found '" + std::string(text)),
              std::string::npos);
  }
}

}  // namespace
}  // namespace loci
