// SPDX-License-Identifier: Apache-2.0
// By which time conversations expire, told by a clock that may be wrong: a machine without a battery starts
// in some other year, NTP sets the time minutes after the start, a database moves to a machine whose clock is
// off. To believe a clock that is ahead by a month deletes everything that a month's limit is about.
//
// Example, of a limit of 30 days. The store believed 12:00 when it last looked.
//   12:05            believed: the clock has gone on
//   the year 2036    doubted: it has jumped. Expiry goes by 12:05, so nothing goes that would not have gone
//   12:20            believed: somebody has set it right
//   Monday           doubted (the server was off since Friday): believed once the clock has gone steadily for
//                    a day, nights in which the server is off not counted
//   1970             expiry goes by it, since that deletes nothing. What was believed stays in the store, and
//                    so does a doubt: minutes later the clock is set right
//
// A doubt is kept in the store beside what is believed, as servers end before it does. It goes on while the
// clock does, by less than a jump from one look to the next.
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
  // ... until the clock has gone with servers' uptime for so long, or for the age limit if that is less. So
  // is a jump back, which expiry goes by at once.
  static constexpr std::int64_t kSteadyFor = 86'400;
  // Steady: it goes back by no more than this.
  static constexpr std::int64_t kDrift = 300;
  // A doubt comes into the store once it has been steady for so long: what a clock says until NTP has set it
  // ends no doubt that is there.
  static constexpr std::int64_t kKeptAfter = 900;

  // A clock that is not believed yet.
  struct Doubt {
    std::int64_t clock_seconds = 0;   // what it said at the latest look
    std::int64_t steady_seconds = 0;  // for so long it has gone steadily
    friend bool operator==(const Doubt&, const Doubt&) = default;
  };
  // What the store keeps from one look to the next, of all servers that share it.
  struct Kept {
    std::int64_t believed_seconds = 0;
    std::optional<Doubt> doubt;
    friend bool operator==(const Kept&, const Kept&) = default;
  };
  struct Verdict {
    std::int64_t now_seconds = 0;  // what to expire by
    bool is_doubted = false;       // the clock says something later
    Kept kept;                     // for the next look
  };
  // `now_seconds`: what the clock says, since 1970. `uptime`: of a clock that nobody sets. `kept`: absent:
  // nothing has been believed yet.
  Verdict look(std::int64_t now_seconds, Nanos uptime, std::int64_t age_seconds_max,
               const std::optional<Kept>& kept);

 private:
  std::optional<std::int64_t> looked_at_;  // by the uptime
  std::optional<Doubt> doubt_;             // the store's, or one that is too short for it
};

}  // namespace loci
