// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/link_times.h"

#include <algorithm>

#include "loci/base/check.h"

namespace loci {
namespace {

constexpr Nanos kRelaxedMost = 40;  // after so many halvings nothing is left to forget

CostCurves curves_of_peers() {
  CostCurves curves;
  curves.shared_read = kPeersAssumed;
  return curves;
}

}  // namespace

LinkTimes::LinkTimes(const CostModel& costs) : costs_(costs), peers_(curves_of_peers()) {}

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

LoadTime LinkTimes::model(LoadLink from, std::uint64_t bytes) const {
  const CostModel& costs = from == LoadLink::kPeers ? peers_ : costs_;
  const Nanos latency = costs.load(tier_of(from), 0);
  return {latency, costs.load(tier_of(from), bytes) - latency};
}

Nanos LinkTimes::load(LoadLink from, std::uint64_t bytes) const {
  return links_[index_of(from)].correction.apply(model(from, bytes));
}

Nanos LinkTimes::moving(LoadLink from, std::uint64_t bytes) const {
  std::optional<Link::Known>& known = links_[index_of(from)].known;
  if (!known || known->bytes != bytes) known = {bytes, load(from, bytes) - load(from, 0)};
  return known->moving;
}

Nanos LinkTimes::book(LoadLink from, std::uint64_t bytes, Moves moves, std::uint32_t count, Nanos now) {
  Link& link = links_[index_of(from)];
  link.bookings.push_back({moves, count, bytes, now});
  link.free_at = std::max(now, link.free_at) + load(from, bytes);
  return link.free_at;
}

void LinkTimes::end(LoadLink from, OperationId move, MoveResult result, Nanos now) {
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

void LinkTimes::expect_anew(LoadLink from, Nanos now) {
  Link& link = links_[index_of(from)];
  link.free_at = now;
  for (const Booking& b : link.bookings) link.free_at += load(from, b.bytes);
}

void LinkTimes::costs_changed(Nanos now) {
  for (Link& link : links_) link.known.reset();
  for (const LoadLink from : {LoadLink::kHost, LoadLink::kDisk}) {
    Link& link = links_[index_of(from)];
    link.correction = {};
    link.quiet_since = now;
    if (!link.bookings.empty()) expect_anew(from, now);
  }
}

void LinkTimes::check_invariants(const std::array<std::uint32_t, kLoadLinks>& moves) const {
  for (std::size_t link = 0; link < kLoadLinks; ++link) {
    std::uint64_t left = 0, last = 0;
    for (const Booking& booking : links_[link].bookings) {
      const Moves& of = booking.moves;
      LOCI_CHECK(booking.left > 0 && booking.left <= of.last.value - of.first.value + 1,
                 "invariant 7: a booking waits for some of its moves");
      LOCI_CHECK(last < of.first.value, "invariant 10: a move is in one booking");
      last = of.last.value;
      left += booking.left;
    }
    LOCI_CHECK(left == moves[link], "invariant 10: what is booked is in flight");
  }
}

void LinkTimes::learn(LoadLink from, const Booking& ended, Nanos now) {
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
