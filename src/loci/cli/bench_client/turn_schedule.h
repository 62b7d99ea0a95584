// SPDX-License-Identifier: Apache-2.0
// When each turn of each conversation is sent. Pure: it is given the time, reads no clock and does no I/O.
//
// Closed loop: at most `concurrency` are open at once; when one ends the next one is sent.
//   turns     turn 1 of every conversation, then turn 2 of every one ...: a conversation's state must outlive
//             a turn of every other one. Requests in flight count.
//   sessions  a conversation is held to its end, thinking included, before another takes its place.
// Open loop: conversations begin as a Poisson process of `rate` a second, or turns are due at a trace's
// times, however busy the server is. In all but a trace a conversation's turn is sent after the reply to the
// one before and a time of thinking, which is drawn from an exponential distribution.
//
// Thread-compatible. take() and end() cost O(log n) for n conversations, next_at() O(1).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <queue>
#include <utility>
#include <vector>

#include "loci/base/clock.h"

namespace loci {

// A turn is due when both have come: `at`, and `after` the conversation's last reply.
struct TurnTime {
  Nanos at = 0;
  Nanos after = 0;
};

enum class TurnOrder : std::uint8_t { kTurns, kSessions };

struct ScheduleOptions {
  TurnOrder order = TurnOrder::kTurns;
  std::uint32_t concurrency = 1;  // of the closed loop; at least 1
  std::optional<double> rate;     // conversations a second, > 0: open loop
  double think_seconds = 0;       // mean
  // By conversation and turn. Not empty: open loop, without rate and thinking.
  std::vector<std::vector<TurnTime>> times;
  bool is_open_loop() const { return rate.has_value() || !times.empty(); }
  std::uint64_t seed = 1;
};

struct TurnId {
  std::uint32_t conversation = 0;
  std::uint32_t turn = 0;
  bool operator==(const TurnId&) const = default;
};

class TurnSchedule {
 public:
  // `turns` of each conversation. The run begins at time 0.
  TurnSchedule(const ScheduleOptions& options, const std::vector<std::uint32_t>& turns);

  // The next turn to send, if one may be sent now. It is open until end() or abandon(). `now` never
  // decreases.
  std::optional<TurnId> take(Nanos now);
  // When the open turn of this conversation was to be sent. Of the open loop.
  Nanos due(std::uint32_t conversation) const { return conversations_[conversation].ready_at; }
  // When take() might give a turn without an end before; kWaiting: not before one.
  static constexpr Nanos kWaiting = -1;
  Nanos next_at() const;

  // The open turn of this conversation has its reply.
  void end(std::uint32_t conversation, Nanos now);
  // It failed: its conversation cannot go on, and its other turns are skipped.
  void abandon(std::uint32_t conversation);

  bool finished() const { return remaining_ == 0 && in_flight_ == 0; }
  std::uint32_t in_flight() const { return in_flight_; }
  std::uint32_t skipped() const { return skipped_; }

 private:
  struct Conversation {
    std::uint32_t turns = 0;
    std::uint32_t next = 0;  // the turn that is open, or that comes next
    Nanos ready_at = 0;
    bool open = false;   // a turn of it has no reply yet
    bool begun = false;  // and has not ended: of kSessions
  };
  // The first one has the least key; of equal keys, the first conversation.
  template <class Key>
  using Queue = std::priority_queue<std::pair<Key, std::uint32_t>, std::vector<std::pair<Key, std::uint32_t>>,
                                    std::greater<>>;

  // Whether another turn (of `one`) may be open.
  bool has_room(const Conversation& one) const;
  // Of the closed loop, the order of those that are ready: by turns, or as they are.
  std::uint32_t key_of(const Conversation& one) const {
    return options_.order == TurnOrder::kTurns ? one.next : 0;
  }
  TurnId open(std::uint32_t conversation);

  ScheduleOptions options_;
  std::vector<Conversation> conversations_;
  // A conversation with a turn that is not open is in one of them. Of the open loop all are in the first.
  //
  // In the order of sessions, who has not begun is ready from the start, and they begin in their order. So
  // those who have begun stand before them, and only the first who is ready need be asked for room.
  Queue<Nanos> waiting_;         // by when they are ready
  Queue<std::uint32_t> ready_;   // by key_of()
  std::uint64_t remaining_ = 0;  // turns not yet taken or skipped
  std::uint32_t in_flight_ = 0;
  std::uint32_t begun_ = 0;  // conversations that have begun and not ended
  std::uint32_t skipped_ = 0;
};

}  // namespace loci
