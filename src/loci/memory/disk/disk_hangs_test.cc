// SPDX-License-Identifier: Apache-2.0
// The disk store on disks that answer late or never: who waits for them, for how long, and what goes on.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/base/thread_limit_testing.h"
#include "loci/memory/disk/disk_fault_testing.h"
#include "loci/memory/disk/disk_io.h"

namespace loci {
namespace {

using Kind = FaultAnswer::Kind;

FaultAnswer second_hangs(const FaultyOperation& one) {
  return one.directory == "disk1" ? FaultAnswer{Kind::kHangs} : FaultAnswer{};
}

std::shared_ptr<CollectingSink> read_twenty(DiskStore& store) {
  std::vector<BlockRead> items;
  for (std::uint32_t slot = 0; slot < 20; ++slot) items.push_back({0, SlotId(slot), test_key(slot)});
  auto sink = std::make_shared<CollectingSink>(items.size());
  store.read(items, 0, sink);
  return sink;
}

// (Slots are of both directories in turn.)
TEST_F(DiskFaults, ADiskThatNeverAnswersHoldsUpNoOther) {
  DiskStoreOptions with = options(2);
  with.answer_limit = 600 * kNanosPerSecond;  // while it is waited for
  const auto store = open(with);
  for (std::uint32_t slot = 0; slot < 20; ++slot) ASSERT_TRUE(write(*store, 0, slot, slot).ok());
  disk_.set_judge(second_hangs);
  const auto sink = read_twenty(*store);
  auto hangs = write_later(*store, 0, SlotId(21), test_entry(21), test_bytes(21, store->groups()[0]));
  for (std::uint32_t slot = 0; slot < 20; slot += 2)
    EXPECT_TRUE(eventually([&] { return sink->is_done(slot); })) << slot;
  EXPECT_TRUE(write(*store, 0, 20, 20).ok());
  EXPECT_TRUE(read_one(*store, 0, SlotId(20), test_key(20)).status->ok());
  for (std::uint32_t slot = 1; slot < 20; slot += 2) EXPECT_FALSE(sink->is_done(slot)) << slot;
  EXPECT_EQ(hangs.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  disk_.set_judge(nullptr);
  disk_.release();
  for (const CollectingSink::Item& one : sink->wait())
    EXPECT_TRUE(one.status->ok()) << one.status->to_string();
  EXPECT_TRUE(hangs.get().ok());
}

TEST_F(DiskFaults, ADiskThatNeverAnswersIsGivenUp) {
  {
    DiskStoreOptions with = options(2);
    with.answer_limit = kNanosPerSecond / 2;
    const auto store = open(with);
    for (std::uint32_t slot = 0; slot < 20; ++slot)
      ASSERT_TRUE(eventually([&] { return write(*store, 0, slot, slot).ok(); }));
    disk_.set_judge(second_hangs);
    const auto sink = read_twenty(*store);
    const auto write_result =
        write_later(*store, 0, SlotId(21), test_entry(21), test_bytes(21, store->groups()[0])).get();
    EXPECT_EQ(write_result.code(), StatusCode::kUnavailable);
    sink->wait();
    const auto is_read = [&](std::uint32_t slot, std::uint64_t seed) {
      return read_one(*store, 0, SlotId(slot), test_key(seed)).status->ok();
    };
    for (std::uint32_t slot = 0; slot < 20; ++slot) {
      const Status& status = *sink->wait()[slot].status;
      if (slot % 2 == 0) {
        EXPECT_TRUE(status.ok() || eventually([&] { return is_read(slot, slot); })) << status.to_string();
      } else {
        EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
        EXPECT_NE(status.message().find("disk1: the disk did not answer"), std::string::npos);
      }
    }
    // The other one goes on.
    EXPECT_TRUE(eventually([&] { return write(*store, 0, 2, 100).ok(); }));
    EXPECT_TRUE(eventually([&] { return is_read(2, 100); }));
    // Who asks the silent one again is told at once, and so is the next.
    // (Once in a while one waits for it, to see whether it is back; and the machine may be busy. Then three
    // others ask.)
    EXPECT_TRUE(in_one_try(20, [&] {
      const Nanos asked = clock_.now();
      for (const std::uint32_t slot : {3u, 5u, 7u}) {
        EXPECT_EQ(read_one(*store, 0, SlotId(slot), test_key(slot)).status->code(),
                  StatusCode::kDeadlineExceeded);
      }
      return clock_.now() - asked < with.answer_limit;
    }));
    // It comes back: what was given up is forgotten, and it is used again.
    disk_.set_judge(nullptr);
    disk_.release();
    EXPECT_TRUE(eventually([&] { return is_read(3, 3); }));
    disk_.set_judge([](const FaultyOperation&) { return FaultAnswer{Kind::kHangs}; });
    const auto last = std::make_shared<CollectingSink>(1);
    store->read({{0, SlotId(0), test_key(0)}}, 0, last);
    store->recover([](std::vector<RecoveredEntry>, bool) {});
  }  // closing does not wait for ever
  disk_.set_judge(nullptr);  // before: a thread may come to the disk only now
  disk_.release();
}

TEST_F(DiskFaults, ReadsGoBeforeWrites) {
  const auto was_before = [&] {
    DiskStoreOptions with = options();
    with.queue_depth = 1;
    const auto store = open(with);
    EXPECT_TRUE(write(*store, 0, 0, 1).ok());
    std::mutex mutex;
    std::vector<FaultyOperation> seen;
    std::atomic<bool> begun{false};
    disk_.set_judge([&](const FaultyOperation& one) {
      const std::lock_guard lock(mutex);
      seen.push_back(one);
      begun = true;
      // The first one is answered when all others wait.
      return seen.size() == 1 ? FaultAnswer{Kind::kHangs} : FaultAnswer{};
    });
    std::vector<std::future<Status>> writes;
    for (std::uint32_t slot = 1; slot < 5; ++slot) {
      writes.push_back(
          write_later(*store, 0, SlotId(slot), test_entry(slot), test_bytes(slot, store->groups()[0])));
      while (!begun) std::this_thread::yield();
    }
    const auto sink = std::make_shared<CollectingSink>(1);
    store->read({{0, SlotId(0), test_key(1)}}, 1, sink);
    disk_.release();
    EXPECT_TRUE(sink->wait()[0].status->ok());
    for (auto& one : writes) EXPECT_TRUE(one.get().ok());
    disk_.set_judge(nullptr);
    const std::lock_guard lock(mutex);
    // One write had begun; then come the header and the four layers, then the other writes.
    const auto is_read = [](const FaultyOperation& one) { return !one.write; };
    return seen.size() > 6 && std::none_of(seen.begin(), seen.begin() + 1, is_read) &&
           std::all_of(seen.begin() + 1, seen.begin() + 6, is_read) &&
           std::none_of(seen.begin() + 6, seen.end(), is_read);
  };
  // (The read may come to the disk's own thread only after the first write was answered.)
  EXPECT_TRUE(eventually(was_before));
}

TEST_F(DiskFaults, WhatIsWrittenDuringRecoveryIsNotFoundAgain) {
  {
    const auto store = open();
    for (std::uint32_t slot = 0; slot < 4; ++slot) ASSERT_TRUE(write(*store, 0, slot, slot).ok());
  }
  const auto store = open();
  std::atomic<int> reads{0};
  disk_.set_judge([&](const FaultyOperation& one) {
    return !one.write && one.file == "holes.headers" && reads++ == 0 ? FaultAnswer{Kind::kHangs}
                                                                     : FaultAnswer{};
  });
  std::future<std::vector<RecoveredEntry>> found =
      std::async(std::launch::async, [&] { return recover_all(*store); });
  while (reads == 0) std::this_thread::yield();
  ASSERT_TRUE(write(*store, 0, 1, 100).ok());
  store->change({.kind = RecordChange::Kind::kForget, .group = 0, .slot = SlotId(2)});
  disk_.release();
  std::set<std::uint32_t> slots;
  for (const RecoveredEntry& one : found.get()) slots.insert(one.slot.value);
  EXPECT_EQ(slots, (std::set<std::uint32_t>{0, 3}));
}

TEST_F(DiskFaults, AnEndThatWaitsForTheDiskSaysSoOnce) {
  std::mutex mutex;
  std::vector<std::string> said;
  DiskStoreOptions with = options(1);
  with.answer_limit = 300 * kNanosPerMilli;
  with.end_limit = 20 * kNanosPerMilli;
  with.warn = [&](const std::string& line) {
    const std::lock_guard lock(mutex);
    said.push_back(line);
  };
  // (On a busy machine an end may take longer than that.)
  const bool is_quiet = eventually([&] {
    said.clear();
    (void)open_disk_store(with, disk_.folders(), clock_).value();
    return said.empty();
  });
  EXPECT_TRUE(is_quiet) << "a disk that answers is not waited for; it said: " << said[0];
  auto store = open_disk_store(with, disk_.folders(), clock_).value();
  ASSERT_TRUE(eventually([&] { return write(*store, 0, 0, 0).ok(); }));
  disk_.set_judge([](const FaultyOperation&) { return FaultAnswer{.kind = Kind::kHangs}; });
  const auto sink = std::make_shared<CollectingSink>(1);
  store->read({{0, SlotId(0), test_key(0)}}, 0, sink);
  {
    const std::lock_guard lock(mutex);
    said.clear();  // what it has said of a busy machine
  }
  store.reset();
  EXPECT_FALSE(sink->wait()[0].status->ok());
  disk_.set_judge(nullptr);
  disk_.release();
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find(with.directories[0].path), std::string::npos) << said[0];
}

TEST(ThreadEngine, WhatHasNotEnoughThreadsEnds) {
  for (std::size_t left = 0; left < 3; ++left) {
    const ThreadLimit limit(left);
    EXPECT_THROW(make_thread_engine(1), std::system_error) << left;
  }
}

TEST_F(DiskFaults, WhatCouldNotBeginToRecoverEndsAtOnce) {
  DiskStoreOptions with = options(1);
  with.answer_limit = 3600 * kNanosPerSecond;
  const auto store = open(with);
  const ThreadLimit limit(0);
  EXPECT_THROW(store->recover([](const auto&, bool) {}), std::system_error);
}

}  // namespace
}  // namespace loci
