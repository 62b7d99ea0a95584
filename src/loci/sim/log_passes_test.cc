// SPDX-License-Identifier: Apache-2.0
// The passes of a log that the simulator wrote, beside models that are right and wrong by a known time.
#include "loci/sim/log_passes.h"

#include <gtest/gtest.h>

#include <string>

#include "loci/base/folder_testing.h"
#include "loci/sim/world_testing.h"

namespace loci::sim {
namespace {

class LogPassesTest : public testing::Test {
 protected:
  LogPassesTest() {
    options_.machine.fixed = kFixed;
    options_.core.costs = PassModel(options_.model, options_.machine).curves();
    options_.event_log = log_;
    Trace trace;
    for (std::uint64_t c = 0; c < 8; ++c) {
      Conversation talk;
      for (std::uint64_t t = 0; t < 3; ++t) {
        talk.turns.push_back({.at = t == 0 ? static_cast<Nanos>(c) * 70'000'000 : 0,
                              .after = t == 0 ? 0 : kNanosPerSecond,
                              .pieces = {{c * 10 + t + 1, 150}},
                              .reply_tokens = 30});
      }
      trace.conversations.push_back(std::move(talk));
    }
    logged_ = run(trace, options_);
  }

  LogPasses passes(Nanos fixed) {
    options_.machine.fixed = fixed;
    const Result<LogPasses> passes = passes_of_log(log_, PassModel(options_.model, options_.machine));
    EXPECT_TRUE(passes.ok()) << passes.status().message();
    return *passes;
  }

  static constexpr Nanos kFixed = 3 * kNanosPerMilli;
  const TestFolder folder_;
  const std::string log_ = folder_.file("events");
  WorldOptions options_ = small_world_with_host(60, 400);
  WorldReport logged_;
};

TEST_F(LogPassesTest, TookWhatTheModelOfTheirMachineSays) {
  const LogPasses found = passes(kFixed);
  EXPECT_EQ(found.beside_model, 0);
  EXPECT_EQ(found.decodes.took, found.decodes.modelled);
  EXPECT_EQ(found.prompts.took, found.prompts.modelled);
  EXPECT_GT(found.decodes.passes, 100u);
  EXPECT_GT(found.prompts.passes, 10u);
  EXPECT_LT(found.decodes.passes + found.prompts.passes, logged_.passes) << "some wait for loads";
}

TEST_F(LogPassesTest, WhatAModelLacksIsFound) {
  EXPECT_EQ(passes(0).beside_model, kFixed);
  const LogPasses found = passes(2 * kFixed);
  EXPECT_EQ(found.beside_model, -kFixed);
  EXPECT_EQ(found.decodes.modelled - found.decodes.took, static_cast<Nanos>(found.decodes.passes) * kFixed);
}

TEST_F(LogPassesTest, AFileThatIsNoLogIsNamed) {
  const Result<LogPasses> found = passes_of_log("/nowhere", PassModel(options_.model, options_.machine));
  ASSERT_FALSE(found.ok());
  EXPECT_TRUE(found.status().message().starts_with("/nowhere")) << found.status().message();
}

}  // namespace
}  // namespace loci::sim
