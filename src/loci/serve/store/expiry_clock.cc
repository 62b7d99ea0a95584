// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/expiry_clock.h"

#include <algorithm>
#include <cstdlib>

namespace loci {
namespace {

using Doubt = ExpiryClock::Doubt;

// Absent: the clock has jumped since. `elapsed`: of the uptime, since this process looked; it is 0 at its
// first look, so that no time counts in which nobody looked.
std::optional<Doubt> go_on(const std::optional<Doubt>& doubt, std::int64_t now, std::int64_t elapsed,
                           std::int64_t jump_max) {
  if (!doubt) return std::nullopt;
  const std::int64_t went = now - doubt->clock_seconds;
  if (went < -ExpiryClock::kDrift || went - elapsed > jump_max) return std::nullopt;
  return Doubt{.clock_seconds = now,
               .steady_seconds = doubt->steady_seconds + std::max<std::int64_t>(std::min(went, elapsed), 0)};
}

}  // namespace

ExpiryClock::Verdict ExpiryClock::look(std::int64_t now_seconds, Nanos uptime, std::int64_t age_seconds_max,
                                       const std::optional<Kept>& kept) {
  const std::int64_t up = uptime / kNanosPerSecond;
  const std::int64_t elapsed = up - looked_at_.value_or(up);
  looked_at_ = up;
  const std::int64_t jump_max = std::max(kJumpMin, std::min(kJumpMax, age_seconds_max / 4));
  if (!kept || std::abs(now_seconds - kept->believed_seconds) <= jump_max) {
    doubt_.reset();
    const std::int64_t latest = kept ? std::max(now_seconds, kept->believed_seconds) : now_seconds;
    return {.now_seconds = now_seconds, .kept = {.believed_seconds = latest, .doubt = {}}};
  }
  const std::optional<Doubt> stored = go_on(kept->doubt, now_seconds, elapsed, jump_max);
  doubt_ = stored ? stored : go_on(doubt_, now_seconds, elapsed, jump_max);
  if (!doubt_) doubt_ = Doubt{.clock_seconds = now_seconds};
  if (doubt_->steady_seconds >= std::min(kSteadyFor, age_seconds_max)) {
    doubt_.reset();
    return {.now_seconds = now_seconds, .kept = {.believed_seconds = now_seconds, .doubt = {}}};
  }
  Verdict out{.now_seconds = std::min(now_seconds, kept->believed_seconds),
              .is_doubted = now_seconds > kept->believed_seconds,
              .kept = *kept};
  if (stored || doubt_->steady_seconds >= kKeptAfter) out.kept.doubt = doubt_;
  return out;
}

}  // namespace loci
