// SPDX-License-Identifier: Apache-2.0
// Traces on which policies are compared, from $LOCI_SHARED_DATA or ../shared/data beside the sources (the
// READMEs there say where each is from). Long ones are scaled: one token of the trace that is made stands for
// `scale` of the original, so that what is long stays long beside what is short while a run takes seconds.
#pragma once

#include <cstdint>
#include <optional>

#include "loci/policy/cost_model.h"
#include "loci/sim/trace.h"

namespace loci::sim {

struct ScaledTrace {
  Trace trace;
  std::uint32_t scale = 1;
};

// mt-bench-101: dialogues, each behind a system prompt that all share and a private document of 1,000 tokens
// in the mean; Poisson arrivals, `think` between turns in the mean (exponential).
std::optional<ScaledTrace> chat_trace(std::uint32_t sessions, Nanos think, std::uint64_t seed);
// mooncake's conversation trace: single requests at their times, with the prefixes that they share; the first
// `requests` of them.
std::optional<ScaledTrace> mooncake_trace(std::uint32_t requests);
// weka-agentic-coding: sessions of a coding agent that ends most turns by a tool call; at most `turns` of
// each.
std::optional<ScaledTrace> agent_trace(std::uint32_t sessions, std::uint32_t turns, std::uint64_t seed);

// What a scaled token costs: `scale` of the original's, each with `scale` times as many before it. (A pass of
// one row stays as it is.)
CostCurves scaled(const CostCurves& curves, std::uint32_t scale);

}  // namespace loci::sim
