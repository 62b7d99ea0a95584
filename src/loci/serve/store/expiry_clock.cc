// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/expiry_clock.h"

#include <algorithm>
#include <cstdlib>

namespace loci {

ExpiryClock::Verdict ExpiryClock::look(std::int64_t now_seconds, Nanos uptime, std::int64_t age_seconds_max,
                                       std::optional<std::int64_t> believed) {
  const std::int64_t up = uptime / kNanosPerSecond;
  const std::int64_t offset = now_seconds - up;
  if (!offset_ || std::abs(offset - *offset_) > kDrift) {
    offset_ = offset;
    steady_since_ = up;
  }
  const bool is_steady = up - steady_since_ >= std::min(kSteadyFor, age_seconds_max);
  const std::int64_t jump_max = std::max(kJumpMin, std::min(kJumpMax, age_seconds_max / 4));
  if (!believed || is_steady || now_seconds - *believed <= jump_max) return {.now_seconds = now_seconds};
  return {.now_seconds = *believed, .is_doubted = true};
}

}  // namespace loci
