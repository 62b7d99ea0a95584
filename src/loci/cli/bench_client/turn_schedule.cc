// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/turn_schedule.h"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "loci/base/check.h"
#include "loci/base/random.h"

namespace loci {
namespace {

Nanos exponential(double mean_seconds, std::uint64_t word) {
  return std::llround(-std::log(1 - unit_interval(word)) * mean_seconds * kNanosPerSecond);
}

}  // namespace

TurnSchedule::TurnSchedule(const ScheduleOptions& options, const std::vector<std::uint32_t>& turns)
    : options_(options) {
  LOCI_CHECK(options.concurrency > 0, "a closed loop needs room for one");
  Random arrivals(mix64(options.seed) ^ 1);
  Nanos arrival = 0;
  LOCI_CHECK(options.times.empty() || options.times.size() == turns.size(), "each turn has its time");
  for (const std::uint32_t count : turns) {
    if (!options.times.empty()) arrival = options.times[conversations_.size()].front().at;
    if (options.rate) arrival += exponential(1 / *options.rate, arrivals.next());
    conversations_.push_back({.turns = count, .ready_at = arrival});
    remaining_ += count;
  }
}

bool TurnSchedule::has_room(const Conversation& one) const {
  if (options_.is_open_loop()) return true;
  if (options_.order == TurnOrder::kSessions) return one.begun || begun_ < options_.concurrency;
  return in_flight_ < options_.concurrency;
}

bool TurnSchedule::comes_before(std::uint32_t a, std::uint32_t b) const {
  const Conversation& x = conversations_[a];
  const Conversation& y = conversations_[b];
  if (options_.is_open_loop()) return std::tuple(x.ready_at, a) < std::tuple(y.ready_at, b);
  if (options_.order == TurnOrder::kSessions) return a < b;
  return std::tuple(x.next, a) < std::tuple(y.next, b);
}

std::optional<TurnId> TurnSchedule::take(Nanos now) {
  std::optional<std::uint32_t> best;
  for (std::uint32_t c = 0; c < conversations_.size(); ++c) {
    const Conversation& one = conversations_[c];
    if (!has_turn(one) || one.ready_at > now || !has_room(one)) continue;
    if (!best || comes_before(c, *best)) best = c;
  }
  if (!best) return std::nullopt;
  Conversation& chosen = conversations_[*best];
  chosen.open = true;
  if (!chosen.begun) ++begun_;
  chosen.begun = true;
  ++in_flight_;
  --remaining_;
  return TurnId{.conversation = *best, .turn = chosen.next};
}

Nanos TurnSchedule::next_at() const {
  Nanos at = kWaiting;
  for (const Conversation& one : conversations_) {
    if (has_turn(one) && has_room(one) && (at == kWaiting || one.ready_at < at)) at = one.ready_at;
  }
  return at;
}

void TurnSchedule::end(std::uint32_t conversation, Nanos now) {
  Conversation& one = conversations_[conversation];
  LOCI_CHECK(one.open, "a turn ends once");
  one.open = false;
  --in_flight_;
  if (++one.next == one.turns) {
    --begun_;
    return;
  }
  one.ready_at = now;
  if (!options_.times.empty()) {
    const TurnTime& time = options_.times[conversation][one.next];
    one.ready_at = std::max(time.at, now + time.after);
  }
  if (options_.think_seconds > 0) {
    const std::uint64_t index = (std::uint64_t{conversation} << 32) + one.next;
    one.ready_at += exponential(options_.think_seconds, random_word(options_.seed, index));
  }
}

void TurnSchedule::abandon(std::uint32_t conversation) {
  Conversation& one = conversations_[conversation];
  LOCI_CHECK(one.open, "only an open turn fails");
  one.open = false;
  --in_flight_;
  --begun_;
  const std::uint32_t rest = one.turns - one.next - 1;
  skipped_ += rest;
  remaining_ -= rest;
  one.next = one.turns;
}

}  // namespace loci
