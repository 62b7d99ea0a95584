// SPDX-License-Identifier: Apache-2.0
// Requests as the simulator replays them and `loci bench` sends them, whatever they were read from
// (trace_source.h) or drawn by (workload.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/base/clock.h"
#include "loci/base/status.h"

namespace loci::sim {

inline constexpr std::uint64_t kTraceRequestsMax = 10'000'000;
inline constexpr std::uint32_t kTraceTokensMax = 1u << 24;  // in a prompt or a reply
inline constexpr double kTraceMillisMax = 1e12;             // from the begin: 30 years
inline constexpr double kTraceSecondsMax = kTraceMillisMax / 1000;

// `tokens` tokens of `content`, after its first `skip`. The same content has the same tokens everywhere.
struct Piece {
  std::uint64_t content = 0;
  std::uint32_t tokens = 0;
  std::uint32_t skip = 0;
  friend bool operator==(const Piece&, const Piece&) = default;
};
std::uint64_t tokens_of(const std::vector<Piece>& pieces);

struct Turn {
  // A turn is due when both times have come: `at`, counted from the trace's beginning, and `after`, counted
  // from the conversation's last reply.
  Nanos at = 0;
  Nanos after = 0;
  bool appends = true;  // the prompt is the last prompt with its reply and these pieces; else only the pieces
  std::vector<Piece> pieces;
  std::vector<Piece> reply;  // its reply_tokens tokens; empty: tokens that occur in prompts only through
                             // `appends`
  std::uint32_t reply_tokens = 1;
  Nanos cancel_after = -1;  // from its arrival; negative: never
  // When the turn came while the trace was recorded; negative: unknown. It orders an exported trace; a run
  // does not depend on it.
  Nanos noted = -1;
};

struct Conversation {
  std::vector<Turn> turns;
  // Whose it is; clients share a server fairly. Absent: the trace does not say, so all are one client's.
  std::optional<std::uint32_t> client = std::nullopt;
};

struct Trace {
  std::string name;
  std::vector<Conversation> conversations;
  std::vector<std::string> notes;  // what was fitted or assumed, for people
  std::uint64_t requests() const;
};

// A turn with its `noted` time, or else the time at which it would be due if replies took no time.
struct TurnInTime {
  Nanos at = 0;
  std::uint32_t conversation = 0;
  std::uint32_t turn = 0;
  friend auto operator<=>(const TurnInTime&, const TurnInTime&) = default;
};
// All turns, ordered by these times; turns of one conversation stay in their order.
std::vector<TurnInTime> in_time_order(const Trace& trace);
// By conversation: whether another one has the same first turn.
std::vector<bool> sharing_first_turns(const Trace& trace);
// Drops all but the first `requests` requests.
void keep_first(Trace& trace, std::uint64_t requests);

// Multiplies all times: of turns, of thinking, and until clients leave. Errors: kInvalidArgument if a turn
// would be due more than 10^12 ms after the begin, the most that a trace's times may be, or a client leave so
// long after its request's arrival.
Status scale_times(Trace& trace, double scale);

}  // namespace loci::sim
