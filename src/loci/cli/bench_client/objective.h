// SPDX-License-Identifier: Apache-2.0
// What a request must keep to be a good one: the objective that goodput counts by. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "loci/base/status.h"

namespace loci {

// The most that each may be; nothing: as long as it likes. Of TBT a request's mean.
struct Objective {
  std::optional<double> ttft_ms, tbt_ms, latency_ms;
  bool asks() const { return ttft_ms || tbt_ms || latency_ms; }
};

// "ttft=2s", "ttft=500ms,tbt=50ms,latency=10s". Errors: kInvalidArgument, which says how it is written.
Result<Objective> parse_objective(std::string_view text);
std::string describe(const Objective& objective);  // "TTFT of at most 500 ms and mean TBT of at most 50 ms"

}  // namespace loci
