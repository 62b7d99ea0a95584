// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/bench_client/turn_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "loci/base/random.h"

namespace loci {
namespace {

std::string name(TurnId id) {
  return std::string(1, static_cast<char>('a' + id.conversation)) + std::to_string(id.turn);
}

// Sends all, each reply taking `took`, and returns the order of sending.
struct Played {
  std::vector<TurnId> order;
  std::vector<Nanos> at;
  std::uint32_t in_flight_max = 0;
  Nanos end = 0;
};

Played play(TurnSchedule& schedule, Nanos took) {
  Played out;
  Nanos now = 0;
  std::multimap<Nanos, std::uint32_t> open;
  while (!schedule.finished()) {
    while (const auto turn = schedule.take(now)) {
      out.order.push_back(*turn);
      out.at.push_back(now);
      open.emplace(now + took, turn->conversation);
    }
    out.in_flight_max = std::max(out.in_flight_max, schedule.in_flight());
    EXPECT_EQ(schedule.in_flight(), open.size());
    const Nanos next = schedule.next_at();
    if (!open.empty() && (next == TurnSchedule::kWaiting || open.begin()->first <= next)) {
      now = open.begin()->first;
      schedule.end(open.begin()->second, now);
      open.erase(open.begin());
    } else {
      EXPECT_NE(next, TurnSchedule::kWaiting) << "nothing will ever be sent again";
      if (next == TurnSchedule::kWaiting) break;
      EXPECT_GT(next, now);
      now = next;
    }
  }
  out.end = now;
  return out;
}

std::string names(const Played& played) {
  std::string out;
  for (const TurnId id : played.order) out += name(id) + " ";
  return out;
}

TEST(TurnSchedule, GoesRoundAllConversationsByTurn) {
  TurnSchedule schedule({.order = TurnOrder::kTurns, .concurrency = 2}, {2, 3, 2});
  EXPECT_EQ(names(play(schedule, 10)), "a0 b0 c0 a1 b1 c1 b2 ");
}

// a ends, and c takes its place while b goes on.
TEST(TurnSchedule, OrDoesOneSessionAfterTheOther) {
  TurnSchedule schedule({.order = TurnOrder::kSessions, .concurrency = 2}, {2, 3, 2});
  EXPECT_EQ(names(play(schedule, 10)), "a0 b0 a1 b1 c0 b2 c1 ");
}

TEST(TurnSchedule, KeepsConcurrencyAndTheOrderInsideASession) {
  for (const TurnOrder order : {TurnOrder::kTurns, TurnOrder::kSessions}) {
    for (const double think : {0.0, 0.5}) {
      TurnSchedule schedule({.order = order, .concurrency = 4, .think_seconds = think, .seed = 3},
                            std::vector<std::uint32_t>(16, 6));
      const Played played = play(schedule, 7 * kNanosPerMilli);
      EXPECT_EQ(played.order.size(), 96u);
      EXPECT_LE(played.in_flight_max, 4u);
      if (think == 0) {
        EXPECT_EQ(played.in_flight_max, 4u);
      }
      std::map<std::uint32_t, std::uint32_t> next;
      for (const TurnId id : played.order) EXPECT_EQ(id.turn, next[id.conversation]++);
    }
  }
}

TEST(TurnSchedule, HoldsAConversationsStateAsLongAsTheOrderSays) {
  TurnSchedule schedule({.order = TurnOrder::kTurns, .concurrency = 4}, std::vector<std::uint32_t>(16, 3));
  const Played played = play(schedule, 5);
  // Between two turns of one conversation stand those of all 15 others.
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(played.order[i + 16].conversation, played.order[i].conversation);
  }
}

TEST(TurnSchedule, DrawsArrivalsOfAPoissonProcess) {
  constexpr std::uint32_t kSessions = 4000;
  TurnSchedule schedule({.rate = 20.0, .seed = 5}, std::vector<std::uint32_t>(kSessions, 1));
  const Played played = play(schedule, kNanosPerSecond);
  ASSERT_EQ(played.at.size(), kSessions);
  double sum = 0, squares = 0;
  for (std::size_t i = 1; i < played.at.size(); ++i) {
    const double gap = static_cast<double>(played.at[i] - played.at[i - 1]) / kNanosPerSecond;
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / (kSessions - 1);
  EXPECT_NEAR(mean, 1 / 20.0, 0.003);
  // An exponential distribution's standard deviation is its mean.
  EXPECT_NEAR(std::sqrt(squares / (kSessions - 1) - mean * mean), mean, 0.1 * mean);
  // However slow the server is, they come.
  EXPECT_GT(played.in_flight_max, 10u);
}

TEST(TurnSchedule, ThinksBetweenTurns) {
  TurnSchedule schedule({.concurrency = 1000, .think_seconds = 2, .seed = 9},
                        std::vector<std::uint32_t>(1000, 2));
  const Played played = play(schedule, kNanosPerSecond);
  double sum = 0;
  for (std::size_t i = 1000; i < 2000; ++i) {
    EXPECT_EQ(played.order[i].turn, 1u);
    EXPECT_GE(played.at[i], kNanosPerSecond);
    sum += static_cast<double>(played.at[i] - kNanosPerSecond) / kNanosPerSecond;
  }
  EXPECT_NEAR(sum / 1000, 2, 0.2);
}

TEST(TurnSchedule, IsTheSameForTheSameSeed) {
  const auto run = [](std::uint64_t seed) {
    TurnSchedule schedule({.rate = 3.0, .think_seconds = 1, .seed = seed}, std::vector<std::uint32_t>(20, 4));
    return play(schedule, 1000).at;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_NE(run(1), run(2));
}

TEST(TurnSchedule, ATracesTurnsAreDueAtItsTimes) {
  ScheduleOptions options;
  options.times = {
      {{.at = 5000}, {.at = 0, .after = 300}, {.at = 9000, .after = 1}}, {{.at = 100}}, {{.at = 5000}}};
  TurnSchedule schedule(options, {3, 1, 1});
  EXPECT_FALSE(schedule.take(99));
  EXPECT_EQ(schedule.next_at(), 100);
  ASSERT_EQ(schedule.take(700), (TurnId{1, 0}));
  EXPECT_EQ(schedule.due(1), 100) << "however late it is sent";
  schedule.end(1, 800);
  const Played rest = play(schedule, 1000);
  EXPECT_EQ(names(rest), "a0 c0 a1 a2 ");
  EXPECT_EQ(rest.at, (std::vector<Nanos>{5000, 5000, 6300, 9000}));
}

// What a schedule must do, by looking at all conversations each time.
class ScannedSchedule {
 public:
  ScannedSchedule(const ScheduleOptions& options, std::vector<std::uint32_t> turns)
      : options_(options), turns_(std::move(turns)), all_(turns_.size()) {
    for (std::size_t c = 0; c < all_.size() && !options.times.empty(); ++c)
      all_[c].ready_at = options.times[c][0].at;
  }
  std::optional<TurnId> take(Nanos now) {
    std::optional<std::uint32_t> best;
    for (std::uint32_t c = 0; c < all_.size(); ++c) {
      const One& one = all_[c];
      if (one.open || one.next == turns_[c] || one.ready_at > now || !has_room(one)) continue;
      if (!best || key(c) < key(*best)) best = c;
    }
    if (!best) return std::nullopt;
    One& one = all_[*best];
    one.open = one.begun = true;
    return TurnId{*best, one.next};
  }
  // `ready_at`: as the other schedule drew it.
  void end(std::uint32_t c, Nanos ready_at) {
    all_[c].open = false;
    ++all_[c].next;
    all_[c].ready_at = ready_at;
  }
  void abandon(std::uint32_t c) {
    all_[c].open = false;
    all_[c].next = turns_[c];
  }

 private:
  struct One {
    std::uint32_t next = 0;
    Nanos ready_at = 0;
    bool open = false, begun = false;
  };
  std::pair<Nanos, std::uint32_t> key(std::uint32_t c) const {
    if (options_.is_open_loop()) return {all_[c].ready_at, c};
    return {options_.order == TurnOrder::kTurns ? all_[c].next : 0, c};
  }
  bool has_room(const One& one) const {
    std::uint32_t open = 0, begun = 0;
    for (std::uint32_t c = 0; c < all_.size(); ++c) {
      open += all_[c].open;
      begun += all_[c].begun && all_[c].next < turns_[c];
    }
    if (options_.is_open_loop()) return true;
    if (options_.order == TurnOrder::kSessions) return one.begun || begun < options_.concurrency;
    return open < options_.concurrency;
  }
  ScheduleOptions options_;
  std::vector<std::uint32_t> turns_;
  std::vector<One> all_;
};

TEST(TurnSchedule, DoesWhatAScanOfAllConversationsWould) {
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    Random random(seed);
    ScheduleOptions options{.order = seed % 2 ? TurnOrder::kTurns : TurnOrder::kSessions,
                            .concurrency = 1 + static_cast<std::uint32_t>(random.below(5)),
                            .think_seconds = random.below(2) ? 2e-8 : 0,
                            .seed = seed};
    std::vector<std::uint32_t> turns;
    for (int c = 0; c < 12; ++c) turns.push_back(1 + static_cast<std::uint32_t>(random.below(4)));
    for (int c = 0; c < 12 && seed % 3 == 0; ++c) {
      std::vector<TurnTime> times;
      for (std::uint32_t t = 0; t < turns[static_cast<std::size_t>(c)]; ++t)
        times.push_back({static_cast<Nanos>(random.below(60)), static_cast<Nanos>(random.below(20))});
      options.times.push_back(times);
    }
    TurnSchedule schedule(options, turns);
    ScannedSchedule scanned(options, turns);
    std::vector<std::uint32_t> open;
    for (Nanos now = 0; !schedule.finished(); ++now) {
      ASSERT_LT(now, 100'000) << seed;
      const auto turn = schedule.take(now);
      ASSERT_EQ(turn, scanned.take(now)) << "seed " << seed << ", time " << now;
      if (turn) open.push_back(turn->conversation);
      if (open.empty() || random.below(3) > 0) continue;
      const std::size_t which = random.below(open.size());
      const std::uint32_t c = open[which];
      open.erase(open.begin() + static_cast<std::ptrdiff_t>(which));
      if (random.below(8) == 0) {
        schedule.abandon(c);
        scanned.abandon(c);
      } else {
        schedule.end(c, now);
        scanned.end(c, schedule.due(c));
      }
    }
  }
}

// A scan of all conversations for each turn would take minutes.
TEST(TurnSchedule, IsFastWithManyConversations) {
  constexpr std::uint32_t kMany = 300'000;
  ScheduleOptions options;
  for (std::uint32_t c = 0; c < kMany; ++c) options.times.push_back({{.at = kMany - c}});
  TurnSchedule schedule(options, std::vector<std::uint32_t>(kMany, 1));
  for (std::uint32_t i = 1; i <= kMany; ++i) {
    ASSERT_EQ(schedule.next_at(), i);
    const auto turn = schedule.take(i);
    ASSERT_EQ(turn, (TurnId{kMany - i, 0}));
    schedule.end(turn->conversation, i);
  }
  EXPECT_TRUE(schedule.finished());
}

TEST(TurnSchedule, SkipsWhatComesAfterAFailure) {
  TurnSchedule schedule({.order = TurnOrder::kSessions, .concurrency = 1}, {3, 1});
  ASSERT_EQ(schedule.take(0), (TurnId{0, 0}));
  EXPECT_FALSE(schedule.take(0));
  EXPECT_EQ(schedule.next_at(), TurnSchedule::kWaiting);
  schedule.abandon(0);
  EXPECT_EQ(schedule.skipped(), 2u);
  EXPECT_FALSE(schedule.finished());
  ASSERT_EQ(schedule.take(0), (TurnId{1, 0}));
  schedule.abandon(1);
  EXPECT_TRUE(schedule.finished());
  EXPECT_EQ(schedule.skipped(), 2u);
}

}  // namespace
}  // namespace loci
