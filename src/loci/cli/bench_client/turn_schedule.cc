// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/turn_schedule.h"

#include <algorithm>
#include <cmath>

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
    const auto number = static_cast<std::uint32_t>(conversations_.size());
    conversations_.push_back({.turns = count, .ready_at = arrival});
    remaining_ += count;
    if (count == 0) continue;
    if (options.is_open_loop()) {
      waiting_.emplace(arrival, number);
    } else {
      ready_.emplace(key_of(conversations_.back()), number);
    }
  }
}

bool TurnSchedule::has_room(const Conversation& one) const {
  if (options_.is_open_loop()) return true;
  if (options_.order == TurnOrder::kSessions) return one.begun || begun_ < options_.concurrency;
  return in_flight_ < options_.concurrency;
}

std::optional<TurnId> TurnSchedule::take(Nanos now) {
  if (options_.is_open_loop()) {
    if (waiting_.empty() || waiting_.top().first > now) return std::nullopt;
    const std::uint32_t first = waiting_.top().second;
    waiting_.pop();
    return open(first);
  }
  for (; !waiting_.empty() && waiting_.top().first <= now; waiting_.pop()) {
    const std::uint32_t one = waiting_.top().second;
    ready_.emplace(key_of(conversations_[one]), one);
  }
  if (ready_.empty() || !has_room(conversations_[ready_.top().second])) return std::nullopt;
  const std::uint32_t first = ready_.top().second;
  ready_.pop();
  return open(first);
}

TurnId TurnSchedule::open(std::uint32_t conversation) {
  Conversation& one = conversations_[conversation];
  one.open = true;
  if (!one.begun) ++begun_;
  one.begun = true;
  ++in_flight_;
  --remaining_;
  return {.conversation = conversation, .turn = one.next};
}

Nanos TurnSchedule::next_at() const {
  if (!ready_.empty() && has_room(conversations_[ready_.top().second]))
    return conversations_[ready_.top().second].ready_at;
  if (waiting_.empty() || !has_room(conversations_[waiting_.top().second])) return kWaiting;
  return waiting_.top().first;
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
  waiting_.emplace(one.ready_at, conversation);
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
