// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/pass_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "loci/base/random.h"
#include "loci/policy/cost_model.h"

namespace loci {
namespace {

constexpr Nanos kMilli = kNanosPerMilli;

CostCurves curves_of(Nanos token, Nanos attention_at_1024, Nanos pass) {
  CostCurves curves;
  curves.token = token;
  curves.attention.clear();
  for (int power = 0; power <= 10; ++power) curves.attention.push_back(attention_at_1024 >> (10 - power));
  curves.pass = pass;
  return curves;
}

PassPrediction predicted_by(const CostModel& costs) {
  return [&costs](const PassRows& rows) { return costs.pass(rows.rows, rows.context); };
}

TEST(PassRows, SumTheTokensBeforeEach) {
  PassRows rows;
  rows.add(10, 3);  // 10, 11, 12
  rows.add(7, 0);
  EXPECT_EQ(rows.rows, 3u);
  EXPECT_EQ(rows.context, 33u);
}

TEST(PassBudget, IsAsItsExampleSays) {
  const CostModel costs(curves_of(kMilli, kMilli / 5 * 1024 / 1000, 10 * kMilli));
  PassRows decodes;
  for (int i = 0; i < 4; ++i) decodes.add(1'000, 1);
  const PromptRun prompt{300, 100};
  EXPECT_EQ(fitting_tokens(predicted_by(costs), 100 * kMilli, decodes, {&prompt, 1}, 508), 60u);
  EXPECT_EQ(fitting_tokens(predicted_by(costs), 200 * kMilli, decodes, {&prompt, 1}, 508), 100u)
      << "all of it, however many rows that makes";
  EXPECT_EQ(fitting_tokens(predicted_by(costs), 200 * kMilli, decodes, {&prompt, 1}, 70), 70u);
  EXPECT_EQ(fitting_tokens(predicted_by(costs), 1, decodes, {&prompt, 1}, 508), 32u) << "no prompt starves";
  EXPECT_EQ(fitting_tokens(predicted_by(costs), 1, decodes, {&prompt, 1}, 5), 5u);
  EXPECT_EQ(fitting_tokens(predicted_by(costs), 100 * kMilli, decodes, {}, 508), 0u);
}

// Against adding one token after another.
TEST(PassBudget, TakesAsManyAsFit) {
  Random random(7);
  for (int world = 0; world < 300; ++world) {
    const CostModel costs(curves_of(1 + static_cast<Nanos>(random.below(2 * kMilli)),
                                    static_cast<Nanos>(random.below(4 * kMilli)),
                                    static_cast<Nanos>(random.below(40 * kMilli))));
    const PassPrediction predict = predicted_by(costs);
    PassRows decodes;
    for (std::uint64_t i = random.below(20); i > 0; --i)
      decodes.add(static_cast<std::uint32_t>(random.below(4'000)), 1);
    // Contexts that grow, so that one more token never makes a pass shorter.
    std::vector<PromptRun> prompts;
    std::uint32_t begin = 0;
    for (std::uint64_t i = random.below(4); i > 0; --i) {
      const auto count = static_cast<std::uint32_t>(1 + random.below(300));
      prompts.push_back({begin, count});
      begin += count;
    }
    const auto most = static_cast<std::uint32_t>(random.below(600));
    const Nanos time = static_cast<Nanos>(random.below(300 * kMilli));
    std::uint32_t fit = 0, wanted = 0;
    PassRows pass = decodes;
    bool full = false;
    for (const PromptRun& run : prompts) {
      for (std::uint32_t i = 0; i < run.count && wanted < most; ++i, ++wanted) {
        pass.add(run.begin + i, 1);
        full = full || predict(pass) > time;
        fit += !full;
      }
    }
    std::uint32_t expected = fit;
    if (full) {
      expected = (decodes.rows + fit) / kPassRowsStep * kPassRowsStep;
      expected = expected > decodes.rows ? expected - decodes.rows : 0;
      expected = std::min(std::max(expected, kPassRowsStep), most);
    }
    EXPECT_EQ(fitting_tokens(predict, time, decodes, prompts, most), expected) << "world " << world;
  }
}

}  // namespace
}  // namespace loci
