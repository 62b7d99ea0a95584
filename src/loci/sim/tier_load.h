// SPDX-License-Identifier: Apache-2.0
// Conversations on the production core with modelled hardware, in virtual time: what policies of eviction and
// admission make of a trace when memory is short. A pass takes what the cost model says, and waits for the
// layers of what is still being loaded; transfers take their turns on four links (host and disk, each way).
// Deterministic.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/engine/core/core.h"

namespace loci {

// So many tokens that belong to `content`: the same content has the same tokens everywhere.
struct TracePiece {
  std::uint64_t content = 0;
  std::uint32_t tokens = 0;
};

struct TraceTurn {
  Nanos after = 0;      // from the end of the session's last reply, or of the session's begin
  bool appends = true;  // the prompt is the last one with its reply and these pieces; else the pieces alone
  std::vector<TracePiece> pieces;
  std::uint32_t output_tokens = 1;
};

struct TraceSession {
  Nanos at = 0;
  std::vector<TraceTurn> turns;
};

struct Trace {
  std::string name;
  std::vector<TraceSession> sessions;
};

// A trace's size, if all state were kept: for choosing capacities and a time scale.
struct TraceSize {
  std::uint64_t requests = 0;
  std::uint64_t prompt_tokens = 0;
  std::uint64_t output_tokens = 0;
  std::uint64_t reusable_tokens = 0;  // of prompts: in whole blocks that an earlier request ended with
  std::uint64_t distinct_blocks = 0;
  std::uint32_t longest_tokens = 0;
  Nanos compute = 0;  // of what cannot be reused, and of the output
  Nanos lasts = 0;    // from the first arrival to the last, where nobody waits
};
TraceSize size_of(const Trace& trace, const CostModel& costs);

// Times are multiplied.
Trace stretched(Trace trace, double times);

struct TierLoadReport {
  std::vector<Nanos> first_token;  // of each request from its arrival, in the order of arrival
  std::uint64_t prompt_tokens = 0;
  std::array<std::uint64_t, kTiers> from{};  // prompt tokens by source
  std::uint64_t reusable_tokens = 0;         // that were there once, in whole blocks
  std::uint64_t refused = 0;
  Nanos duration = 0;
  CoreStats stats;

  std::uint64_t cached_tokens() const { return from[0] + from[1] + from[2]; }
  Nanos mean_first_token() const;
  Nanos first_token_percentile(std::uint32_t percent) const;
};

// `config.costs` are both what the core believes and what things cost.
TierLoadReport run_tier_load(const Trace& trace, const CoreConfig& config);

}  // namespace loci
