// SPDX-License-Identifier: Apache-2.0
// When what is being loaded has come: as the cost model predicts and what loads took corrects
// (policy/correction.h), for each tier that state is loaded from.
//
// What is asked of a tier at once is a *booking*: its blocks arrive together, as their layers take turns.
// Bookings over one link come one after another.
//
//     t = 0    book(disk), 3 moves, 30 MB at 1 GB/s    predicted: the first until 30 ms,
//     t = 10   book(disk), 1 move, 10 MB               the second until 40 ms
//     t = 60   the third move of the first has ended   it took 60 ms instead of 30: from now on twice what
//                                                      the model says, so the second is expected at 80 ms
//     t = 82   the move of the second has ended        it took 22 ms, from the end of the first
//
// A booking of which something failed tells nothing of the link's speed; one that was given up, that the link
// is slower than predicted at the least. It owns what is booked and the corrections; it calls nobody.
#pragma once

#include <array>
#include <cstdint>
#include <deque>

#include "loci/base/clock.h"
#include "loci/base/ids.h"
#include "loci/engine/core/plan.h"
#include "loci/memory/tier.h"
#include "loci/policy/correction.h"
#include "loci/policy/cost_model.h"

namespace loci {

// Thread-compatible: the core's thread has it. Calls cost O(bookings of the tier).
class LinkTimes {
 public:
  // `costs` outlives it.
  explicit LinkTimes(const CostModel& costs) : costs_(costs) {}

  // Links from which nothing has come for kQuiet are believed to be faster again, step by step: a load that
  // was declined because the link was slow teaches nothing.
  static constexpr Nanos kQuiet = 60 * kNanosPerSecond;
  void advance(Nanos now);

  // Bringing `bytes` to the device, alone on the link; 0 from the device.
  Nanos load(Tier from, std::uint64_t bytes) const;
  // What is booked has come then, as predicted; not after `now`: nothing is booked, or it is late.
  Nanos free_at(Tier from) const { return links_[index_of(from)].free_at; }

  // The first and the last of moves that began at once; some among them may be from other tiers.
  struct Moves {
    OperationId first, last;
  };
  // So many of `moves` bring `bytes` from the tier. Returns when they have ended, as predicted.
  Nanos book(Tier from, std::uint64_t bytes, Moves moves, std::uint32_t count, Nanos now);
  // One of them has ended.
  void end(Tier from, OperationId move, MoveResult result, Nanos now);
  // The costs are others from now on, so corrections of the former ones are forgotten, and what is booked
  // is expected anew.
  void costs_changed(Nanos now);

 private:
  struct Booking {
    Moves moves;
    std::uint32_t left = 0;  // moves that have not ended
    std::uint64_t bytes = 0;
    Nanos booked_at = 0;
    bool failed = false, given_up = false;  // some of it
  };
  struct Link {
    std::deque<Booking> bookings;
    Correction correction;
    Nanos free_at = 0;
    Nanos ended_at = 0;     // the last booking that ended
    Nanos quiet_since = 0;  // that, or when it was last believed to be faster
  };
  Nanos model(Tier from, const Booking& booking) const { return costs_.load(from, booking.bytes); }
  void learn(Tier from, const Booking& ended, Nanos now);
  void expect_anew(Tier from, Nanos now);
  static constexpr std::size_t index_of(Tier tier) { return static_cast<std::size_t>(tier); }

  const CostModel& costs_;
  std::array<Link, kTiers> links_;
};

}  // namespace loci
