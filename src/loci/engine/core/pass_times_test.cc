// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/pass_times.h"

#include <gtest/gtest.h>

#include <vector>

namespace loci {
namespace {

// A pass of decodes and prompts takes as long as predicted three times in five, and twice as long otherwise.
TEST(PassTimes, ThreePassesOfFourKeepTheLimit) {
  CostCurves curves;
  curves.token = kNanosPerMilli;
  curves.attention = {0};
  curves.pass = kNanosPerMilli;
  const CostModel costs(curves);
  PassTimes times(costs, 200 * kNanosPerMilli);
  PassRows decodes;
  for (std::uint32_t i = 0; i < 4; ++i) decodes.add(0, 1);
  const std::vector<PromptRun> prompts = {{.begin = 0, .count = 1'000}};
  EXPECT_EQ(times.fitting(decodes, prompts, 512) + 4, 192u) << "whole tiles within 200 ms";
  const PassWork work{PassKind::kBoth, {.rows = 64, .context = 0}};
  for (const Nanos by : {1, 2, 1, 1, 2, 1, 2, 1, 2}) {
    times.begin(work, false, 0);
    times.end({.layers = 1}, by * costs.pass(64, 0));
  }
  EXPECT_EQ(times.predict(work), costs.pass(64, 0)) << "the median";
  EXPECT_EQ(times.fitting(decodes, prompts, 512) + 4, 96u) << "192 rows would last 384 ms in four of nine";
}

}  // namespace
}  // namespace loci
