// SPDX-License-Identifier: Apache-2.0
// What must not be found again is not, though the disk refuses or does not answer the write that clears it.
#include "loci/memory/disk/disk_clears.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/memory/disk/disk_testing.h"
#include "loci/memory/disk/faulty_disk_testing.h"
#include "loci/memory/disk/open_disk_store.h"

namespace loci {
namespace {

using Kind = FaultAnswer::Kind;

class DiskClearing : public ::testing::Test {
 protected:
  static DiskStoreOptions options() {
    DiskStoreOptions all;
    all.directories = {{"disk0", 400'000}};
    all.groups = {{.layers = 4, .layer_slice_bytes = 4000}};
    all.answer_limit = 400 * kNanosPerMilli;
    return all;
  }
  // For a start that finds what is there, however busy the machine is.
  static DiskStoreOptions patient() {
    DiskStoreOptions all = options();
    all.answer_limit = 60 * kNanosPerSecond;
    return all;
  }
  std::unique_ptr<DiskStore> open(const DiskStoreOptions& with = options()) {
    auto store = open_disk_store(with, disk_.folders(), clock_);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return std::move(store).value();
  }
  static Status write(DiskStore& store, std::uint32_t slot, std::uint64_t seed) {
    return write_one(store, 0, SlotId(slot), test_entry(seed), test_bytes(seed, store.groups()[0]));
  }
  // A write that the test needs: on a busy machine one may take too long.
  static bool put(DiskStore& store, std::uint32_t slot, std::uint64_t seed) {
    return eventually([&] { return write(store, slot, seed).ok(); });
  }
  static void forget(DiskStore& store, std::uint32_t slot) {
    store.change({.kind = RecordChange::Kind::kForget, .group = 0, .slot = SlotId(slot)});
  }
  static StatusCode read(DiskStore& store, std::uint32_t slot, std::uint64_t seed) {
    return read_one(store, 0, SlotId(slot), test_key(seed)).status->code();
  }
  // (A read may take too long, too.)
  static bool has(DiskStore& store, std::uint32_t slot, std::uint64_t seed) {
    return eventually([&] { return read(store, slot, seed) == StatusCode::kOk; });
  }
  // The only block that the next start finds.
  RecoveredEntry only_found() {
    const auto store = open(patient());
    const auto found = recover_all(*store);
    EXPECT_EQ(found.size(), 1u);
    return found.empty() ? RecoveredEntry() : found[0];
  }
  static bool all_cleared(const DiskStore& store) {
    return eventually([&] { return store.stats().uncleared_records == 0; });
  }
  // The disk took the last one of so many writes of records. (An end waits for it no longer than the disk may
  // take to answer.)
  bool is_tried_again(const DiskStore& store, int writes) const {
    return eventually([&] { return records_ >= writes; }) && all_cleared(store);
  }
  // Writes of records number `first` to `last`, counted from now on, get this answer.
  void judge_records(const char* file, int first, int last, FaultAnswer answer) {
    records_ = 0;
    disk_.set_judge([=, this](const FaultyOperation& one) {
      if (!one.write || one.file != file) return FaultAnswer{};
      const int number = ++records_;
      return number >= first && number <= last ? answer : FaultAnswer{};
    });
  }

  FaultyDisk disk_;
  SystemClock clock_;
  std::atomic<int> records_{0};
};

TEST_F(DiskClearing, WhatTheDiskRefusesToForgetIsTriedAgain) {
  {
    const auto store = open();
    ASSERT_TRUE(put(*store, 1, 10));
    ASSERT_TRUE(put(*store, 2, 20));
    const std::uint64_t errors = store->stats().write_errors_total;
    judge_records("group-0.headers", 1, 2, {Kind::kError, EIO});
    forget(*store, 1);
    EXPECT_TRUE(eventually([&] { return read(*store, 1, 10) == StatusCode::kDataLoss; }));
    EXPECT_TRUE(eventually([&] { return records_ >= 3; }));
    EXPECT_TRUE(all_cleared(*store));
    EXPECT_GE(store->stats().write_errors_total, errors + 2) << "and what took too long";
  }
  EXPECT_EQ(only_found().slot, SlotId(2));
}

// Else what is in use and what was forgotten would be more than the files may take.
TEST_F(DiskClearing, SpaceThatTheDiskDoesNotGiveBackIsAskedForAgain) {
  for (const int error : {EIO, EOPNOTSUPP, EINVAL}) {
    const auto store = open();
    ASSERT_TRUE(put(*store, 1, 10));
    std::atomic<int> asked{0};
    disk_.set_judge([&asked, error](const FaultyOperation& one) {
      return one.discard && ++asked <= 2 ? FaultAnswer{Kind::kError, error} : FaultAnswer{};
    });
    forget(*store, 1);
    ASSERT_TRUE(eventually([&] { return asked >= (error == EIO ? 3 : 1); }));
    EXPECT_TRUE(all_cleared(*store));
    // A file system that cannot is asked once, and one that fails until it has done so.
    EXPECT_EQ(asked > 1, error == EIO);
    EXPECT_TRUE(put(*store, 1, 20));
    EXPECT_TRUE(has(*store, 1, 20));
    disk_.set_judge(nullptr);
  }
}

// More than may be in flight: the disk never sees some of them before they are given up.
TEST_F(DiskClearing, WhatWasForgottenWhileTheDiskStalledIsGone) {
  {
    const auto store = open();
    for (std::uint32_t slot = 0; slot < 8; ++slot) ASSERT_TRUE(put(*store, slot, slot));
    disk_.set_judge([](const FaultyOperation&) { return FaultAnswer{Kind::kHangs}; });
    for (std::uint32_t slot = 0; slot < 8; ++slot) forget(*store, slot);
    ASSERT_TRUE(eventually([&] { return store->stats().uncleared_records == 8; }));
    disk_.set_judge(nullptr);
    disk_.release();
    EXPECT_TRUE(all_cleared(*store));
  }
  const auto store = open(patient());
  EXPECT_TRUE(recover_all(*store).empty());
}

// Each clear that the disk refuses is a step; pauses of the real clock bound how many there may be.
TEST_F(DiskClearing, ADiskThatRefusesAllIsAskedForAFewOfMany) {
  DiskStoreOptions with = options();
  with.directories = {{"disk0", 16'000'000}};
  with.groups = {{.layers = 1, .layer_slice_bytes = 4000}};
  const auto store = open(with);
  constexpr std::uint32_t kMany = 2000;
  ASSERT_GE(store->groups()[0].slots, kMany);
  judge_records("group-0.headers", 1, 1'000'000'000, {Kind::kError, EIO});
  const Nanos begin = clock_.now();
  for (std::uint32_t slot = 0; slot < kMany; ++slot) forget(*store, slot);
  const Nanos pause_min = with.answer_limit / 8;
  ASSERT_TRUE(eventually([&] {
    return clock_.now() - begin >= 12 * pause_min &&
           records_ >= static_cast<int>(kMany + 3 * DiskClears::kAtOnce);
  }));
  EXPECT_LE(records_ - static_cast<int>(kMany), (clock_.now() - begin) / pause_min * DiskClears::kAtOnce);
  disk_.set_judge(nullptr);
  EXPECT_TRUE(all_cleared(*store));
}

TEST_F(DiskClearing, HolesAreForgottenToo) {
  for (const bool rewritten : {false, true}) {
    {
      const auto store = open();
      judge_records("holes.headers", 2, 2, {Kind::kError, EIO});
      store->change({.kind = RecordChange::Kind::kHole, .slot = SlotId(3), .entry = test_entry(30)});
      if (rewritten)
        store->change({.kind = RecordChange::Kind::kHole, .slot = SlotId(3), .entry = test_entry(31)});
      else
        store->change({.kind = RecordChange::Kind::kForgetHole, .slot = SlotId(3)});
      EXPECT_TRUE(is_tried_again(*store, 3));
    }
    disk_.set_judge(nullptr);
    const auto store = open(patient());
    EXPECT_TRUE(recover_all(*store).empty()) << rewritten;
  }
}

TEST_F(DiskClearing, ALaterWriteTakesItsPlace) {
  {
    const auto store = open();
    ASSERT_TRUE(put(*store, 1, 10));
    std::atomic<bool> fails{true};
    disk_.set_judge([&](const FaultyOperation& one) {
      return fails && one.write && one.file == "group-0.headers" ? FaultAnswer{Kind::kError, EIO}
                                                                 : FaultAnswer{};
    });
    forget(*store, 1);
    ASSERT_TRUE(eventually([&] { return store->stats().uncleared_records == 1; }));
    EXPECT_FALSE(write(*store, 1, 11).ok());
    EXPECT_EQ(store->stats().uncleared_records, 1u);
    fails = false;
    ASSERT_TRUE(put(*store, 1, 12));
    EXPECT_TRUE(all_cleared(*store));
    // It is not cleared in its turn.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    EXPECT_TRUE(has(*store, 1, 12));
    disk_.set_judge(nullptr);
  }
  EXPECT_EQ(only_found().entry, test_entry(12));
}

TEST_F(DiskClearing, WhatASaveWasToReplaceIsGoneThoughTheSaveFailed) {
  {
    const auto store = open();
    ASSERT_TRUE(put(*store, 1, 10));
    judge_records("group-0.headers", 1, 1, {Kind::kError, EIO});
    EXPECT_FALSE(write(*store, 1, 11).ok());
    EXPECT_TRUE(is_tried_again(*store, 2));
  }
  const auto store = open(patient());
  EXPECT_TRUE(recover_all(*store).empty());
}

// Nobody names it when its block is deleted: its save has failed.
TEST_F(DiskClearing, ARecordThatArrivesAfterItsSaveWasGivenUpIsCleared) {
  {
    const auto store = open();
    bool is_late = false;
    for (std::uint32_t slot = 0; !is_late && slot < 20; ++slot) {
      judge_records("group-0.headers", 2, 2, {Kind::kHangs});
      ASSERT_FALSE(write(*store, slot, 10).ok());
      is_late = records_ == 2;  // else the machine was too busy, and it was given up before
    }
    ASSERT_TRUE(is_late);
    disk_.set_judge(nullptr);
    disk_.release();
    EXPECT_TRUE(all_cleared(*store));
  }
  const auto store = open(patient());
  EXPECT_TRUE(recover_all(*store).empty());
}

TEST_F(DiskClearing, ADateThatArrivesAfterItsBlockWasForgottenBringsNothingBack) {
  BlockEntry dated = test_entry(10);
  dated.used_at = 1'000'000;
  for (const bool forgotten : {true, false}) {
    {
      const auto store = open();
      // (On a busy machine it may be given up before the disk sees it. Then another slot's is.)
      bool is_late = false;
      for (std::uint32_t slot = 0; !is_late && slot < 20; ++slot) {
        if (slot > 0) forget(*store, slot - 1);
        ASSERT_TRUE(put(*store, slot, 10));
        const DiskStoreStats before = store->stats();
        judge_records("group-0.headers", 1, 1, {Kind::kHangs});
        store->change({.kind = RecordChange::Kind::kUsed, .group = 0, .slot = SlotId(slot), .entry = dated});
        ASSERT_TRUE(eventually([&] {
          const DiskStoreStats now = store->stats();
          return now.write_errors_total + now.read_errors_total >
                 before.write_errors_total + before.read_errors_total;
        }));
        is_late = records_ == 1;
        if (is_late && forgotten) {
          forget(*store, slot);
          ASSERT_TRUE(eventually([&] { return records_ == 2; }));
        }
      }
      ASSERT_TRUE(is_late);
      disk_.set_judge(nullptr);
      disk_.release();
      disk_.wait_for_rest();  // where nothing is cleared, the store does not wait for the date
      EXPECT_TRUE(all_cleared(*store));
    }
    const auto store = open(patient());
    const auto found = recover_all(*store);
    ASSERT_EQ(found.size(), forgotten ? 0u : 1u);
    if (!forgotten) {
      EXPECT_EQ(found[0].entry.used_at, 1'000'000);
    }
  }
}

TEST_F(DiskClearing, AnEndWaitsForItAndSaysHowMuchIsLeft) {
  std::mutex mutex;
  std::string said;
  DiskStoreOptions with = options();
  with.warn = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    said += line + "\n";
  };
  auto store = open(with);
  for (std::uint32_t slot = 0; slot < 3; ++slot) ASSERT_TRUE(put(*store, slot, slot * 10));
  judge_records("group-0.headers", 1, 1'000'000, {Kind::kError, EIO});
  forget(*store, 0);
  forget(*store, 2);
  ASSERT_TRUE(eventually([&] { return store->stats().uncleared_records == 2; }));
  const int before = records_;
  Nanos begin = clock_.now();
  store.reset();
  EXPECT_GE(clock_.now() - begin, with.answer_limit);
  EXPECT_NE(said.find("2 records of deleted state in disk0"), std::string::npos) << said;
  EXPECT_GT(records_, before) << "the end tries again";
  EXPECT_LT(records_, 100) << "but not without a pause";
  disk_.set_judge(nullptr);
  said.clear();
  with.answer_limit = 60 * kNanosPerSecond;
  store = open(with);
  EXPECT_EQ(recover_all(*store).size(), 3u);
  // One that takes it in the end is not waited for any longer.
  judge_records("group-0.headers", 1, 1, {Kind::kError, EIO});
  forget(*store, 0);
  ASSERT_TRUE(eventually([&] { return store->stats().uncleared_records == 1; }));
  begin = clock_.now();
  store.reset();
  EXPECT_LT(clock_.now() - begin, with.answer_limit);
  EXPECT_EQ(said.find("deleted state"), std::string::npos) << said;
}

// Of two directories; every second slot is of the second one. Pauses are 100 to 800.
DiskClears clears_of_two(DiskCounters& counters) {
  return {2, [](DiskClears::Slot slot) { return static_cast<std::uint32_t>(slot % 2); }, 800, counters};
}

TEST(DiskClears, PausesGrowUntilTheEnd) {
  DiskCounters counters;
  DiskClears clears = clears_of_two(counters);
  EXPECT_EQ(clears.wait(0), kNever);
  clears.owe(5, 0);
  clears.owe(6, 50);
  EXPECT_EQ(counters.uncleared, 2u);
  EXPECT_EQ(clears.wait(0), 100);
  EXPECT_TRUE(clears.due(99).empty());
  EXPECT_EQ(clears.due(100), std::vector<std::uint64_t>{5});
  EXPECT_EQ(clears.due(150), std::vector<std::uint64_t>{6});
  clears.settle(6);
  EXPECT_FALSE(clears.owes(6));
  // 100, 200, 400, and then the answer limit.
  Nanos now = 150;
  for (const Nanos pause : {100, 200, 400, 800, 800}) {
    clears.owe(5, now);
    EXPECT_TRUE(clears.due(now + pause - 1).empty());
    EXPECT_EQ(clears.wait(now), pause);
    now += pause;
    EXPECT_EQ(clears.due(now).size(), 1u);
  }
  clears.owe(5, now);
  clears.hurry();
  EXPECT_EQ(clears.due(now).size(), 1u);
  clears.owe(5, now);
  EXPECT_EQ(clears.wait(now), 100);
  EXPECT_EQ(clears.due(now + 100).size(), 1u);
  clears.settle(5);
  EXPECT_EQ(clears.wait(now), kNever);
  EXPECT_EQ(counters.uncleared, 0u);
}

TEST(DiskClears, AllOfADirectoryPauseWithOneThatFails) {
  DiskCounters counters;
  DiskClears clears = clears_of_two(counters);
  for (DiskClears::Slot slot = 0; slot < 400; ++slot) clears.owe(slot, 0);
  const std::vector<std::uint64_t> tried = clears.due(100);
  EXPECT_EQ(tried.size(), 2u * DiskClears::kAtOnce);
  EXPECT_TRUE(clears.due(100).empty()) << "others wait for these";
  EXPECT_EQ(clears.wait(100), kNever);
  // The first disk refuses what the second one takes.
  for (const std::uint64_t slot : tried) {
    if (slot % 2 == 0)
      clears.owe(slot, 110);
    else
      clears.settle(slot);
  }
  for (const std::uint64_t slot : clears.due(209)) {
    EXPECT_EQ(slot % 2, 1u) << "the other disk does not pause";
    clears.settle(slot);
  }
  EXPECT_EQ(clears.wait(209), 0) << "for the second disk";
  // It works again: those that have not been tried come first, and it pauses no longer.
  std::vector<std::uint64_t> order;
  for (std::vector<std::uint64_t> due; !(due = clears.due(210)).empty();) {
    for (const std::uint64_t slot : due) {
      if (slot % 2 == 0) order.push_back(slot);
      clears.settle(slot);
    }
  }
  ASSERT_EQ(order.size(), 200u);
  EXPECT_EQ(order[0], 2u * DiskClears::kAtOnce);
  EXPECT_EQ(counters.uncleared, 0u);
  // After a success pauses are short again.
  clears.owe(0, 1000);
  ASSERT_EQ(clears.due(1100).size(), 1u);
  clears.owe(0, 1100);
  EXPECT_EQ(clears.wait(1100), 100);
}

// The turns of the store's thread while a disk refuses all that it is asked for.
TEST(DiskClears, ADiskThatRefusesIsAskedForAFewOfMany) {
  DiskCounters counters;
  DiskClears clears = clears_of_two(counters);
  constexpr std::uint64_t kMany = 100'000;
  for (DiskClears::Slot slot = 0; slot < kMany; ++slot) clears.owe(2 * slot, static_cast<Nanos>(slot % 50));
  std::uint64_t tries = 0, turns = 0;
  Nanos now = 0;
  while (now < 80'000) {  // a hundred times the answer limit
    ++turns;
    const std::vector<std::uint64_t> due = clears.due(now);
    tries += due.size();
    for (const std::uint64_t slot : due) clears.owe(slot, now);
    ASSERT_NE(clears.wait(now), kNever);
    now += std::max<Nanos>(clears.wait(now), 1);
  }
  EXPECT_LE(tries, 110 * DiskClears::kAtOnce);
  EXPECT_GE(tries, 100 * DiskClears::kAtOnce) << "but it is asked";
  EXPECT_LE(turns, 110u);
  EXPECT_EQ(counters.uncleared, kMany);
}

TEST(DiskClears, OneThatAnotherWriteReplacesIsLookedAtLater) {
  DiskCounters counters;
  DiskClears clears = clears_of_two(counters);
  clears.owe(5, 0);
  ASSERT_EQ(clears.due(100).size(), 1u);
  clears.postpone(5, 100);
  EXPECT_TRUE(clears.due(199).empty());
  EXPECT_EQ(clears.due(200).size(), 1u);
  clears.postpone(5, 200);
  clears.settle(5);
  EXPECT_EQ(clears.wait(200), kNever);
}

TEST(DiskClears, ASlotWhoseRecordMayStillArriveIsHeld) {
  DiskCounters counters;
  DiskClears clears = clears_of_two(counters);
  clears.give_up(5);  // a record that may stay
  clears.answer(5, 10);
  EXPECT_FALSE(clears.owes(5));
  clears.give_up(5);
  clears.replace(5);
  clears.settle(5);
  EXPECT_TRUE(clears.owes(5));
  EXPECT_EQ(clears.wait(10), kNever);
  EXPECT_TRUE(clears.due(10'000).empty());
  clears.answer(5, 10'000);
  EXPECT_EQ(clears.due(10'000).size(), 1u);
  clears.begin(5);
  clears.settle(5);
  EXPECT_FALSE(clears.owes(5));
  EXPECT_EQ(counters.uncleared, 0u);
}

// The block was forgotten before its date's write was given up.
TEST(DiskClears, ARecordThatArrivesAfterTheZerosIsCleared) {
  DiskCounters counters;
  DiskClears clears = clears_of_two(counters);
  clears.replace(5);
  clears.give_up(5);
  clears.settle(5);
  EXPECT_TRUE(clears.owes(5));
  clears.answer(5, 10);
  EXPECT_EQ(clears.wait(10), 0);
  EXPECT_EQ(clears.due(10).size(), 1u);
  clears.begin(5);
  clears.settle(5);
  EXPECT_EQ(counters.uncleared, 0u);
}

// Of zeros the disk may tell later than of a record that came after them.
TEST(DiskClears, ZerosThatWereUnderWayWhenARecordArrivedDoNotCount) {
  DiskCounters counters;
  DiskClears clears = clears_of_two(counters);
  const auto arrives_behind_zeros = [&](Nanos now) {
    clears.give_up(5);
    clears.replace(5);
    clears.begin(5);
    clears.answer(5, now);
    clears.settle(5);
    EXPECT_TRUE(clears.owes(5));
    EXPECT_EQ(counters.uncleared, 1u);
  };
  arrives_behind_zeros(10);
  EXPECT_EQ(clears.due(10).size(), 1u);
  // Another one, behind the zeros that were tried.
  arrives_behind_zeros(20);
  EXPECT_EQ(clears.due(20).size(), 1u);
  clears.begin(5);
  clears.settle(5);
  EXPECT_FALSE(clears.owes(5));
  // A new block's record comes after both.
  arrives_behind_zeros(30);
  clears.begin(5);
  clears.settle(5);
  EXPECT_EQ(counters.uncleared, 0u);
  EXPECT_EQ(clears.wait(30), kNever);
}

}  // namespace
}  // namespace loci
