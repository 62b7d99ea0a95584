// SPDX-License-Identifier: Apache-2.0
// By which time conversations expire, told by a clock that may be wrong: a machine without a battery starts
// in some other year, NTP sets the time minutes after the start, a database moves to a machine whose clock is
// off. To believe a clock that is ahead by a month deletes everything that a month's limit is about.
//
// Example, of a limit of 30 days. The store believed 12:00 when it last looked.
//   12:05            believed: the clock has gone on
//   the year 2036    doubted: it has jumped. Expiry goes by 12:05, so nothing goes that would not have gone
//   12:20            believed: somebody has set it right
//   two months on    doubted (the server was off): believed once the clock has gone steadily for a day
//
// A clock that is set back is believed at once, since that deletes nothing. To come forward again it has to
// be steady, like any that jumps.
#pragma once

#include <cstdint>
#include <optional>

#include "loci/base/clock.h"

namespace loci {

// A value; thread-compatible.
class ExpiryClock {
 public:
  // A jump ahead of more than this, or of a quarter of the age limit if that is less (but never less than
  // kJumpMin, as looks may be minutes apart), is doubted ...
  static constexpr std::int64_t kJumpMax = 86'400, kJumpMin = 900;
  // ... until the clock has gone with the machine's uptime for so long, or for the age limit if that is less.
  static constexpr std::int64_t kSteadyFor = 86'400;
  // Steady: it has come this close to what the uptime says, since the last jump.
  static constexpr std::int64_t kDrift = 300;

  struct Verdict {
    std::int64_t now_seconds = 0;  // what to expire by
    bool is_doubted = false;       // the clock says something else
  };
  // `now_seconds`: what the clock says, since 1970. `uptime`: of a clock that nobody sets. `believed`: what
  // was believed at the last look, before this process too; absent: there was none. A verdict that is not
  // doubted is the next look's `believed`.
  Verdict look(std::int64_t now_seconds, Nanos uptime, std::int64_t age_seconds_max,
               std::optional<std::int64_t> believed);

 private:
  std::optional<std::int64_t> offset_;  // of the clock to the uptime, in seconds
  std::int64_t steady_since_ = 0;       // by the uptime
};

}  // namespace loci
