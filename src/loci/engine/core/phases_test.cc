// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/phases.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

constexpr RequestPhase kRequestPhases[] = {RequestPhase::kQueued, RequestPhase::kSuspended,
                                           RequestPhase::kPrompt, RequestPhase::kDecode,
                                           RequestPhase::kEnding};
constexpr LoadPhase kLoadPhases[] = {LoadPhase::kNone,   LoadPhase::kWaits,    LoadPhase::kJoined,
                                     LoadPhase::kMissed, LoadPhase::kHeldBack, LoadPhase::kLost};

TEST(Phases, ARequestNeverWaitsAsNewAgainAndLeavesItsEndNever) {
  for (const RequestPhase from : kRequestPhases) {
    EXPECT_FALSE(may_become(from, RequestPhase::kQueued));
    EXPECT_FALSE(may_become(from, from));
    EXPECT_FALSE(may_become(RequestPhase::kEnding, from));
  }
  PhaseOf<RequestPhase> phase;
  for (const RequestPhase next : {RequestPhase::kPrompt, RequestPhase::kDecode, RequestPhase::kSuspended,
                                  RequestPhase::kPrompt, RequestPhase::kEnding}) {
    phase.become(next);
    EXPECT_TRUE(phase.is(next));
  }
}

TEST(Phases, WhatIsLostLooksForAnotherPlaceFirst) {
  for (const LoadPhase to : kLoadPhases) {
    EXPECT_EQ(may_become(LoadPhase::kLost, to), to == LoadPhase::kNone);
    EXPECT_EQ(may_become(LoadPhase::kNone, to), to == LoadPhase::kWaits || to == LoadPhase::kHeldBack);
  }
  PhaseOf<LoadPhase> phase;
  for (const LoadPhase next :
       {LoadPhase::kWaits, LoadPhase::kJoined, LoadPhase::kMissed, LoadPhase::kHeldBack, LoadPhase::kNone}) {
    phase.become(next);
    EXPECT_TRUE(phase.is(next));
  }
}

TEST(Phases, AWrongOneAborts) {
  PhaseOf<RequestPhase> request;
  EXPECT_DEATH(request.become(RequestPhase::kDecode), "one phase follows another");
  PhaseOf<LoadPhase> load;
  EXPECT_DEATH(load.become(LoadPhase::kMissed), "one phase follows another");
  EXPECT_DEATH(load.become(LoadPhase::kNone), "one phase follows another");
  load.settle(LoadPhase::kNone);
}

}  // namespace
}  // namespace loci
