// SPDX-License-Identifier: Apache-2.0
// Predicts when loads will have arrived, for each link by which state is loaded (load_link.h). The cost model
// predicts, and the times that loads really took correct it (policy/link_correction.h).
//
// Moves that begin at once over one link are a *booking*: their blocks arrive together, because their layers
// take turns. Bookings over one link arrive one after another.
//
//     t = 0    book(disk), 3 moves, 30 MB at 1 GB/s    predicted: the first until 30 ms,
//     t = 10   book(disk), 1 move, 10 MB               the second until 40 ms
//     t = 60   the third move of the first has ended   it took 60 ms instead of 30: from now on 3 ms and
//                                                      1.9 times what the model says of the bytes, so the
//                                                      second is expected at 82 ms
//     t = 83   the move of the second has ended        it took 23 ms, from the end of the first
//
// A booking in which a move failed tells nothing about the link's speed. One that was given up tells that the
// link is slower than predicted, and counts as kGivenUpTimes the prediction at most: a disk that hung for
// long is no measure of the next load (link_breaker.h leaves it alone for a while).
//
// It owns the bookings and the corrections. It requires that moves are booked in the order of their numbers,
// and that each ends once. It calls nobody. Invariants, which check_invariants() tests (core.h has all):
//   7. A booking waits for moves that will end.
//   10. The moves of bookings are those in flight, and each is in one booking of its link.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/engine/core/load_link.h"
#include "loci/engine/core/plan.h"
#include "loci/policy/cost_model.h"
#include "loci/policy/link_correction.h"

namespace loci {

// What reads from peers cost, until some were measured: a network of 10 Gbit/s, and memory at its other end.
// If it is assumed to be slow, much is computed at first that would have come sooner.
inline constexpr LinkCost kPeersAssumed{1'000'000, std::uint64_t{1} << 30};

// Thread-compatible; used by whoever steps the core. Calls cost O(bookings of the link).
class LinkTimes {
 public:
  // `costs` must outlive it. They have no link to peers beside a store: kPeersAssumed is its.
  explicit LinkTimes(const CostModel& costs);

  static constexpr Nanos kGivenUpTimes = 8;
  // A link from which nothing has come for kQuiet is believed to get faster again, step by step: loads that
  // were declined because the link was slow teach nothing.
  static constexpr Nanos kQuiet = 60 * kNanosPerSecond;
  void advance(Nanos now);

  // The time to bring `bytes` to the device, alone on the link.
  Nanos load(LoadLink from, std::uint64_t bytes) const;
  // What `bytes` take of that beside the latency. Asked for each block of a prompt, whose bytes are mostly
  // the same; so the last answer is kept.
  Nanos moving(LoadLink from, std::uint64_t bytes) const;
  // When the last booking is predicted to have arrived. A time that is not after now: nothing is booked, or
  // it is late.
  Nanos free_at(LoadLink from) const { return links_[index_of(from)].free_at; }

  // The first and the last of the moves that began at once; some between them may come over other links.
  struct Moves {
    OperationId first, last;
  };
  // Books `count` of `moves`, which bring `bytes` over the link. Returns when they are predicted to have
  // ended.
  Nanos book(LoadLink from, std::uint64_t bytes, Moves moves, std::uint32_t count, Nanos now);
  // Says that a move has ended.
  void end(LoadLink from, OperationId move, MoveResult result, Nanos now);
  // Says that the costs have changed: corrections of the old ones are forgotten, and bookings are predicted
  // again.
  void costs_changed(Nanos now);

  // `moves`: how many are in flight to the device, by the link that they come over. Aborts on a broken
  // invariant. O(bookings).
  void check_invariants(const std::array<std::uint32_t, kLoadLinks>& moves) const;

 private:
  struct Booking {
    Moves moves;
    std::uint32_t left = 0;  // moves that have not ended
    std::uint64_t bytes = 0;
    Nanos booked_at = 0;
    bool failed = false, given_up = false;  // a move of it failed, or was given up
  };
  struct Link {
    std::deque<Booking> bookings;
    LinkCorrection correction;
    Nanos free_at = 0;
    Nanos ended_at = 0;     // the last booking that ended
    Nanos quiet_since = 0;  // ended_at, or when the link was last believed to get faster
    struct Known {
      std::uint64_t bytes = 0;
      Nanos moving = 0;
    };
    mutable std::optional<Known> known;  // moving() said last, under this correction
  };
  LoadTime model(LoadLink from, std::uint64_t bytes) const;
  void learn(LoadLink from, const Booking& ended, Nanos now);
  void expect_anew(LoadLink from, Nanos now);

  const CostModel& costs_;
  const CostModel peers_;  // of whose links only that of the shared tier is asked
  std::array<Link, kLoadLinks> links_;
};

}  // namespace loci
