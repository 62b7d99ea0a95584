// SPDX-License-Identifier: Apache-2.0
// Runs clients of unequal load on the production core in virtual time, and tells how long each request waits
// for its first token. A pass takes a fixed time and a further time for each of its tokens. For the test and
// the benchmark of fairness. Deterministic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/engine/core/core.h"

namespace loci {

struct LoadRequest {
  Nanos at = 0;
  std::uint32_t client = 0;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t output_tokens = 0;
};

struct ClientLoadOptions {
  CoreConfig core;
  Nanos pass_fixed = 20 * kNanosPerMilli;
  Nanos pass_per_token = 400'000;
  bool one_tenant = false;  // all clients are one tenant: first come, first served
  // The longest that a pass may take.
  Nanos longest_pass() const { return pass_fixed + pass_per_token * core.max_batch_tokens; }
};
ClientLoadOptions default_load_options();

struct LoadReport {
  // For each request, in order, the time from its arrival to its first token; kNever: it was refused.
  std::vector<Nanos> first_token;
  std::uint64_t suspensions = 0;
  Nanos duration = 0;
};
// `requests` are ordered by time.
LoadReport run_load(const std::vector<LoadRequest>& requests, const ClientLoadOptions& options);

// The clients of the arena trace (described in its README), from $LOCI_SHARED_DATA or ../shared/data beside
// the sources. Absent: the file is not there.
std::optional<std::vector<LoadRequest>> arena_clients();
// Clients as unequal as those, drawn from a seed. The first sends a fifth of all requests, and each one sends
// fewer than the one before it.
std::vector<LoadRequest> drawn_clients(std::uint64_t seed);

inline constexpr std::uint32_t kHeavyClient = 1000;
// `requests`, and those of a heavy client that sends `times` times as many as the busiest one.
std::vector<LoadRequest> with_heavy_client(const std::vector<LoadRequest>& requests, std::uint32_t times);

// The time within which `percent` of the requests of all clients but the heavy one had their first token.
Nanos percentile_of_others(const std::vector<LoadRequest>& requests, const LoadReport& report,
                           std::uint32_t percent);

}  // namespace loci
