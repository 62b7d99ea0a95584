// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/link_times.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr Nanos kRelaxedMost = 40;  // after so many halvings nothing is left to forget

}  // namespace

void LinkTimes::advance(Nanos now) {
  for (Link& link : links_) {
    if (!link.bookings.empty()) continue;
    // An idle server takes no steps: after a night one step stands for many quiet minutes.
    const Nanos times = (now - link.quiet_since) / kQuiet;
    for (Nanos i = 0; i < std::min(times, kRelaxedMost); ++i) link.correction.relax();
    link.quiet_since += times * kQuiet;
    if (times > 0) link.known.reset();
  }
}

LoadTime LinkTimes::model(Tier from, std::uint64_t bytes) const {
  const Nanos latency = costs_.load(from, 0);
  return {latency, costs_.load(from, bytes) - latency};
}

Nanos LinkTimes::load(Tier from, std::uint64_t bytes) const {
  return from == Tier::kDevice ? 0 : links_[index_of(from)].correction.apply(model(from, bytes));
}

Nanos LinkTimes::moving(Tier from, std::uint64_t bytes) const {
  if (from == Tier::kDevice) return 0;
  std::optional<Link::Known>& known = links_[index_of(from)].known;
  if (!known || known->bytes != bytes) known = {bytes, load(from, bytes) - load(from, 0)};
  return known->moving;
}

Nanos LinkTimes::book(Tier from, std::uint64_t bytes, Moves moves, std::uint32_t count, Nanos now) {
  Link& link = links_[index_of(from)];
  link.bookings.push_back({moves, count, bytes, now});
  link.free_at = std::max(now, link.free_at) + load(from, bytes);
  return link.free_at;
}

void LinkTimes::end(Tier from, OperationId move, MoveResult result, Nanos now) {
  Link& link = links_[index_of(from)];
  const auto booking = std::find_if(link.bookings.begin(), link.bookings.end(), [&](const Booking& b) {
    return b.moves.first.value <= move.value && move.value <= b.moves.last.value;
  });
  LOCI_CHECK(booking != link.bookings.end(), "a load that ends was booked");
  booking->failed = booking->failed || result == MoveResult::kDamaged || result == MoveResult::kFailed ||
                    result == MoveResult::kGone;
  booking->given_up = booking->given_up || result == MoveResult::kTooSlow;
  if (--booking->left > 0) return;
  learn(from, *booking, now);
  link.ended_at = link.quiet_since = now;
  link.bookings.erase(booking);
  expect_anew(from, now);
}

void LinkTimes::expect_anew(Tier from, Nanos now) {
  Link& link = links_[index_of(from)];
  link.free_at = now;
  for (const Booking& b : link.bookings) link.free_at += load(from, b.bytes);
}

void LinkTimes::costs_changed(Nanos now) {
  for (Link& link : links_) link.known.reset();
  for (const Tier from : {Tier::kHost, Tier::kDisk}) {
    Link& link = links_[index_of(from)];
    link.correction = {};
    link.quiet_since = now;
    if (!link.bookings.empty()) expect_anew(from, now);
  }
}

void LinkTimes::check_invariants(const std::array<std::uint32_t, kTiers>& moves) const {
  for (std::size_t tier = 1; tier < kTiers; ++tier) {  // nothing is booked from the device
    std::uint64_t left = 0, last = 0;
    for (const Booking& booking : links_[tier].bookings) {
      const Moves& of = booking.moves;
      LOCI_CHECK(booking.left > 0 && booking.left <= of.last.value - of.first.value + 1,
                 "invariant 7: a booking waits for some of its moves");
      LOCI_CHECK(last < of.first.value, "invariant 10: a move is in one booking");
      last = of.last.value;
      left += booking.left;
    }
    LOCI_CHECK(left == moves[tier], "invariant 10: what is booked is in flight");
  }
}

void LinkTimes::learn(Tier from, const Booking& ended, Nanos now) {
  if (ended.failed) return;
  Link& link = links_[index_of(from)];
  Nanos took = now - std::max(ended.booked_at, link.ended_at);
  if (ended.given_up) {
    const Nanos predicted = load(from, ended.bytes);
    if (took <= predicted) return;
    took = std::min(took, kGivenUpTimes * std::min(predicted, kCostMax / kGivenUpTimes));
  }
  link.correction.observe(model(from, ended.bytes), took);
  link.known.reset();
}

}  // namespace loci
