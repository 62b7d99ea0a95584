// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/store/expiry_clock.h"

#include <gtest/gtest.h>

namespace loci {
namespace {

constexpr std::int64_t kMinute = 60, kHour = 3'600, kDay = 86'400, kAge = 30 * kDay;
constexpr std::int64_t kToday = 1'700'000'000;

// A machine and its store: looks every five minutes, or when it is told to.
class Machine {
 public:
  explicit Machine(std::int64_t now) : now_(now) {}
  // Both clocks go on.
  void pass(std::int64_t seconds) {
    up_ += seconds;
    now_ += seconds;
  }
  void set(std::int64_t now) { now_ = now; }
  void restart(std::int64_t off_for) {
    clock_ = {};
    up_ = 7;
    now_ += off_for;
  }
  // True: the clock is believed.
  bool look(std::int64_t age = kAge) {
    const ExpiryClock::Verdict verdict = clock_.look(now_, up_ * kNanosPerSecond, age, kept_);
    EXPECT_EQ(verdict.now_seconds, verdict.is_doubted ? kept_->believed_seconds : now_);
    kept_ = verdict.kept;
    return !verdict.is_doubted;
  }
  std::int64_t believed() const { return kept_->believed_seconds; }
  bool looks_every_five_minutes(std::int64_t seconds) {
    bool all = true;
    for (std::int64_t at = 0; at < seconds; at += 5 * kMinute) {
      pass(5 * kMinute);
      all = look() && all;
    }
    return all;
  }

 private:
  ExpiryClock clock_;
  std::int64_t now_, up_ = 100;
  std::optional<ExpiryClock::Kept> kept_;
};

TEST(ExpiryClock, AClockThatGoesOnIsBelieved) {
  Machine machine(kToday);
  EXPECT_TRUE(machine.look()) << "there is nothing to compare it with";
  EXPECT_TRUE(machine.looks_every_five_minutes(3 * kDay));
  machine.restart(kDay - kHour);
  EXPECT_TRUE(machine.look()) << "a night without the server";
}

TEST(ExpiryClock, AJumpIsDoubtedUntilTheClockHasBeenSteadyForADay) {
  Machine machine(kToday);
  ASSERT_TRUE(machine.look());
  machine.set(kToday + 60 * kDay);
  for (int minutes = 0; minutes < 24 * 60; minutes += 5) {
    ASSERT_FALSE(machine.look()) << minutes;
    machine.pass(5 * kMinute);
  }
  EXPECT_TRUE(machine.look()) << "then it is the time, and the server was off";
}

TEST(ExpiryClock, WhatStartsInAnotherYearIsNotBelievedBeforeItIsSetRight) {
  Machine machine(kToday);
  ASSERT_TRUE(machine.look());
  for (int starts = 0; starts < 50; ++starts) {  // and does not come closer with each
    machine.restart(0);
    machine.set(kToday + 3'650 * kDay);
    EXPECT_FALSE(machine.look());
    machine.pass(20 * kHour);
    EXPECT_FALSE(machine.look());
  }
  machine.set(kToday + kHour);
  EXPECT_TRUE(machine.look());
}

TEST(ExpiryClock, AnotherJumpBeginsTheDayAnew) {
  Machine machine(kToday);
  ASSERT_TRUE(machine.look());
  machine.set(kToday + 60 * kDay);
  machine.look();
  machine.pass(23 * kHour);
  machine.set(kToday + 90 * kDay);
  EXPECT_FALSE(machine.look());
  machine.pass(2 * kHour);
  EXPECT_FALSE(machine.look());
  machine.pass(22 * kHour);
  EXPECT_TRUE(machine.look());
}

TEST(ExpiryClock, AMachineThatIsOffEachNightBelievesMondayOnWednesday) {
  Machine machine(kToday);
  ASSERT_TRUE(machine.look());
  machine.restart(60 * kHour);
  for (int day = 0; day < 2; ++day) {
    EXPECT_FALSE(machine.look()) << day;
    EXPECT_FALSE(machine.looks_every_five_minutes(10 * kHour)) << day;
    machine.restart(14 * kHour);
  }
  EXPECT_FALSE(machine.look()) << "nights do not count";
  machine.looks_every_five_minutes(4 * kHour + 5 * kMinute);
  EXPECT_TRUE(machine.look());
}

// Without a battery.
TEST(ExpiryClock, WhatIsSaidUntilTheClockIsSetEndsNoDoubt) {
  Machine machine(kToday);
  ASSERT_TRUE(machine.look());
  for (int day = 0; day < 3; ++day) {
    const std::int64_t morning = kToday + 60 * kHour + day * kDay;
    machine.restart(0);
    machine.set(0);  // 1970
    EXPECT_TRUE(machine.look()) << "it deletes nothing";
    EXPECT_EQ(machine.believed(), kToday) << day;
    machine.pass(5 * kMinute);
    machine.set(morning);
    EXPECT_FALSE(machine.look()) << day;
    machine.looks_every_five_minutes(10 * kHour);
  }
  EXPECT_TRUE(machine.look());
  EXPECT_GT(machine.believed(), kToday + 2 * kDay);
}

TEST(ExpiryClock, AClockThatIsSetBackIsGoneByAndBelievedOnceItIsSteady) {
  Machine machine(kToday + 3'650 * kDay);
  ASSERT_TRUE(machine.look());
  machine.set(kToday);
  EXPECT_TRUE(machine.looks_every_five_minutes(kDay - 5 * kMinute));
  EXPECT_GT(machine.believed(), kToday + 3'000 * kDay);
  EXPECT_TRUE(machine.looks_every_five_minutes(10 * kMinute));
  EXPECT_LT(machine.believed(), kToday + 2 * kDay);
  machine.set(kToday + 3'650 * kDay);
  EXPECT_FALSE(machine.look());
}

TEST(ExpiryClock, AMinuteOfAnotherYearEndsNoDoubtEither) {
  Machine machine(kToday);
  ASSERT_TRUE(machine.look());
  machine.set(kToday + 3 * kDay);
  machine.look();
  machine.looks_every_five_minutes(23 * kHour);
  machine.restart(0);
  machine.set(kToday + 3'650 * kDay);
  EXPECT_FALSE(machine.look());
  machine.pass(kMinute);
  machine.set(kToday + 4 * kDay);
  EXPECT_FALSE(machine.look());
  machine.looks_every_five_minutes(kHour);
  EXPECT_TRUE(machine.look());
}

// Each adds what has passed since anybody looked.
TEST(ExpiryClock, ServersThatShareAStoreCountADayOnce) {
  ExpiryClock one, other;
  std::optional<ExpiryClock::Kept> kept = ExpiryClock::Kept{.believed_seconds = kToday, .doubt = {}};
  std::int64_t doubted_for = 0;
  for (std::int64_t at = 0;; at += 2 * kMinute) {
    ExpiryClock& looks = at % (4 * kMinute) == 0 ? one : other;
    const auto verdict = looks.look(kToday + 9 * kDay + at, at * kNanosPerSecond, kAge, kept);
    kept = verdict.kept;
    if (!verdict.is_doubted) break;
    doubted_for = at;
    ASSERT_LT(at, 2 * kDay);
  }
  EXPECT_GE(doubted_for, kDay - 5 * kMinute);
}

TEST(ExpiryClock, AShortLimitDoubtsShorterJumpsForAShorterTime) {
  Machine machine(kToday);
  ASSERT_TRUE(machine.look(4 * kHour));
  machine.restart(kHour);
  EXPECT_TRUE(machine.look(4 * kHour));
  machine.restart(kHour + 1);
  EXPECT_FALSE(machine.look(4 * kHour));
  machine.pass(4 * kHour);
  EXPECT_TRUE(machine.look(4 * kHour));
  machine.restart(15 * kMinute);
  EXPECT_TRUE(machine.look(1)) << "looks are minutes apart";
}

}  // namespace
}  // namespace loci
