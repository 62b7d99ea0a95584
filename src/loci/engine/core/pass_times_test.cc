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

// What has come before the pass waits for nothing, and is projected all the same.
TEST(PassTimes, ProjectingIsNotTakenForComputing) {
  CostCurves curves;
  curves.token = kNanosPerMilli;
  curves.attention = {0};
  curves.projection = 10'000;
  const CostModel costs(curves);
  PassTimes times(costs, kNever);
  const PassWork work{PassKind::kPrompts, {.rows = 50, .context = 0}};
  for (int i = 0; i < 9; ++i) {
    times.begin(work, false, 0);
    times.end({.projected = {.slices = 64, .took = 950 * kNanosPerMilli}, .layers = 1}, kNanosPerSecond);
  }
  EXPECT_EQ(times.predict(work), 50 * kNanosPerMilli);
  times.begin(work, false, 0);
  times.end({.projected = {.slices = 64, .took = 60 * kNanosPerMilli}, .layers = 1}, 50 * kNanosPerMilli);
  EXPECT_EQ(times.predict(work), 50 * kNanosPerMilli) << "it said that it projected for longer than it ran";
}

// Where replies are always being written, prompts are only ever computed beside them.
TEST(PassTimes, ComputingIsCorrectedByTheLastPassesWithPrompts) {
  CostCurves curves;
  curves.token = kNanosPerMilli;
  curves.attention = {0};
  const CostModel costs(curves);
  PassTimes times(costs, kNever);
  const auto pass = [&](PassKind kind, Nanos took) {
    times.begin({kind, {.rows = 100, .context = 0}}, false, 0);
    times.end({.layers = 1}, took * kNanosPerMilli);
    return times.compute(0, 100) / kNanosPerMilli;
  };
  EXPECT_EQ(pass(PassKind::kPrompts, 200), 200);
  for (const Nanos expected : {200, 200, 300}) EXPECT_EQ(pass(PassKind::kBoth, 300), expected);
  EXPECT_EQ(pass(PassKind::kDecodes, 900), 300) << "it had none";
  EXPECT_EQ(pass(PassKind::kPrompts, 200), 200);
  times.costs_changed();
  EXPECT_EQ(times.compute(0, 100) / kNanosPerMilli, 100);
}

}  // namespace
}  // namespace loci
