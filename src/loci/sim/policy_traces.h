// SPDX-License-Identifier: Apache-2.0
// Traces on which policies are compared, from $LOCI_SHARED_DATA or ../shared/data beside the sources (the
// READMEs there say where each is from). Long traces are scaled: one token of the new trace stands for
// `scale` tokens of the original. So long prompts stay long compared with short ones, while a run takes only
// seconds.
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

// mt-bench-101: dialogues. Each begins with a system prompt that all share and a private document of 1,000
// tokens on average. Arrivals are Poisson; the time between turns is exponential with the mean `think`.
std::optional<ScaledTrace> chat_trace(std::uint32_t sessions, Nanos think, std::uint64_t seed);
// mooncake's conversation trace: single requests at their times, with the prefixes that they share; the first
// `requests` of them.
std::optional<ScaledTrace> mooncake_trace(std::uint32_t requests);
// weka-agentic-coding: sessions of a coding agent that ends most turns by a tool call; at most `turns` of
// each.
std::optional<ScaledTrace> agent_trace(std::uint32_t sessions, std::uint32_t turns, std::uint64_t seed);

// The costs of scaled tokens: each stands for `scale` original tokens and has `scale` times as many tokens
// before it. (The cost of a pass of one row stays the same.)
CostCurves scaled(const CostCurves& curves, std::uint32_t scale);

}  // namespace loci::sim
