// SPDX-License-Identifier: Apache-2.0
// The queue's rate, and its closed lanes, on a disk that answers at once or never, in virtual time.
#include "loci/memory/disk/disk_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace loci {
namespace {

constexpr std::size_t kBytes = 256 << 10;

class VirtualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void pass(Nanos time) { now_ += time; }

 private:
  Nanos now_ = 0;
};

struct Begun {
  Nanos at = 0;
  std::uint32_t lane = 0;
  bool write = false;
};

// Ends at once what is submitted, but what is a silent lane's; where there is nothing to end, waiting takes
// as long as it may, and `late` more.
class InstantEngine final : public IoEngine {
 public:
  InstantEngine(VirtualClock& clock, std::vector<Begun>& begun, Nanos late)
      : clock_(clock), begun_(begun), late_(late) {}
  const char* name() const override { return "instant"; }
  void set_silent(std::optional<std::uint32_t> lane) { silent_ = lane; }
  void submit(std::vector<IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      begun_.push_back({clock_.now(), request.lane, request.write});
      if (request.lane != silent_) ends_.push_back({request.id, static_cast<std::int64_t>(request.bytes)});
    }
  }
  void wait(Nanos most, std::vector<IoEnd>& ended) override {
    if (ends_.empty()) clock_.pass(most + late_);
    ended = std::exchange(ends_, {});
  }
  void wake() override {}

 private:
  VirtualClock& clock_;
  std::vector<Begun>& begun_;
  const Nanos late_;
  std::optional<std::uint32_t> silent_;
  std::vector<IoEnd> ends_;
};

class Owner final : public DiskOperationOwner {
 public:
  bool prepare(std::uint32_t, std::span<std::byte>) override { return true; }
  void ended(std::uint32_t, std::int64_t result, DiskBuffer) override { results.push_back(result); }

  std::vector<std::int64_t> results;
};

class NoFile final : public DiskFile {
 public:
  std::int64_t read(std::uint64_t, std::span<std::byte>) override { return 0; }
  std::int64_t write(std::uint64_t, std::span<const std::byte>) override { return 0; }
  std::uint64_t size_bytes() const override { return 0; }
  std::uint64_t next_data(std::uint64_t) const override { return 0; }
  std::int64_t discard(std::uint64_t, std::uint64_t) override { return 0; }
  std::int64_t grow(std::uint64_t) override { return 0; }
  bool direct() const override { return false; }
  int descriptor() const override { return -1; }
};

// So many operations of each lane and kind, all at once, by a thread that wakes so late; when each began.
std::vector<Begun> run(std::uint64_t bytes_per_second, std::uint32_t lanes, int each, Nanos late = 0) {
  VirtualClock clock;
  std::vector<Begun> begun;
  DiskQueue queue(std::make_unique<InstantEngine>(clock, begun, late), clock,
                  {.lanes = lanes, .depth = 8, .buffer_bytes = kBytes, .bytes_per_second = bytes_per_second});
  const auto owner = std::make_shared<Owner>();
  const auto file = std::make_shared<NoFile>();
  for (const bool write : {true, false}) {
    for (std::uint32_t lane = 0; lane < lanes; ++lane) {
      for (int i = 0; i < each; ++i)
        queue.push({.owner = owner, .lane = lane, .write = write, .file = file, .bytes = kBytes});
    }
  }
  while (!queue.idle()) queue.poll(kNanosPerSecond);
  for (const std::int64_t result : owner->results) EXPECT_EQ(result, static_cast<std::int64_t>(kBytes));
  return begun;
}

TEST(DiskQueue, KeepsToItsRate) {
  constexpr std::uint64_t kRate = 64 << 20;  // an operation in 3.9 ms
  const std::vector<Begun> begun = run(kRate, 2, 50);
  ASSERT_EQ(begun.size(), 200u);
  for (std::size_t i = 0; i < begun.size(); ++i) {
    const double allowed =
        static_cast<double>(kRate) * static_cast<double>(begun[i].at + IoRate::kAhead) / 1e9;
    EXPECT_LE(static_cast<double>(i * kBytes), allowed + 1) << i;
  }
  const Nanos whole = static_cast<Nanos>(begun.size()) * static_cast<Nanos>(kBytes) * kNanosPerSecond /
                      static_cast<Nanos>(kRate);
  EXPECT_LE(begun.back().at, whole) << "and the rate is used";
}

TEST(DiskQueue, MakesUpForWakingLate) {
  constexpr std::uint64_t kRate = 64 << 20;
  for (const Nanos late : {5 * kNanosPerMilli, 15 * kNanosPerMilli}) {
    const std::vector<Begun> begun = run(kRate, 2, 50, late);
    ASSERT_EQ(begun.size(), 200u);
    const double used = static_cast<double>(199 * kBytes) / static_cast<double>(begun.back().at) * 1e9;
    EXPECT_GT(used, 0.95 * static_cast<double>(kRate)) << late;
    for (std::size_t i = 0; i < begun.size(); ++i) {
      for (std::size_t j = i + 1; j < begun.size(); ++j) {
        const Nanos time = begun[j].at - begun[i].at + IoRate::kAhead + IoRate::kLate;
        EXPECT_LE(static_cast<double>((j - i) * kBytes),
                  static_cast<double>(kRate) * static_cast<double>(time) / 1e9 + kBytes);
      }
    }
  }
  // Longer than that is no lateness: what was not used is lost.
  const std::vector<Begun> begun = run(kRate, 2, 50, 100 * kNanosPerMilli);
  EXPECT_LT(static_cast<double>(199 * kBytes) / static_cast<double>(begun.back().at) * 1e9,
            0.3 * static_cast<double>(kRate));
}

TEST(DiskQueue, ReadsGoBeforeWritesAndLanesTakeTurnsUnderARate) {
  const std::vector<Begun> begun = run(64 << 20, 2, 50);
  int lanes[2] = {};
  for (std::size_t i = 0; i < 100; ++i) {
    EXPECT_FALSE(begun[i].write) << i;
    ++lanes[begun[i].lane];
    EXPECT_LE(std::abs(lanes[0] - lanes[1]), 1) << i;
  }
}

TEST(DiskQueue, WithoutARateNothingWaits) {
  const std::vector<Begun> begun = run(0, 2, 50);
  EXPECT_EQ(begun.size(), 200u);
  EXPECT_EQ(begun.back().at, 0);
}

// Two lanes, of which one may be silent.
class TwoLanes {
 public:
  static constexpr Nanos kLimit = kNanosPerSecond;

  explicit TwoLanes(std::uint64_t bytes_per_second) {
    auto made = std::make_unique<InstantEngine>(clock, begun, 0);
    engine = made.get();
    queue = std::make_unique<DiskQueue>(std::move(made), clock,
                                        DiskQueueOptions{.lanes = 2,
                                                         .depth = 16,
                                                         .buffer_bytes = kBytes,
                                                         .answer_limit = kLimit,
                                                         .bytes_per_second = bytes_per_second});
  }
  void push(std::uint32_t lane, bool write) {
    queue->push({.owner = owner, .lane = lane, .write = write, .file = file, .bytes = kBytes});
  }
  void run() {
    while (!queue->idle()) queue->poll(kNanosPerSecond);
  }
  // How many operations have ended so.
  std::ptrdiff_t ended(std::int64_t result) const {
    return std::count(owner->results.begin(), owner->results.end(), result);
  }

  VirtualClock clock;
  std::vector<Begun> begun;
  InstantEngine* engine = nullptr;
  const std::shared_ptr<Owner> owner = std::make_shared<Owner>();
  const std::shared_ptr<DiskFile> file = std::make_shared<NoFile>();
  std::unique_ptr<DiskQueue> queue;
};

TEST(DiskQueue, TheReadThatTriesAClosedLaneWaitsForTheRate) {
  TwoLanes lanes(kBytes);
  const auto read = [&](std::uint32_t lane) { lanes.push(lane, false); };
  lanes.engine->set_silent(0);
  for (int i = 0; i < 3; ++i) {
    lanes.clock.pass(TwoLanes::kLimit);  // the rate allows each to begin
    read(0);
    lanes.run();
  }
  EXPECT_EQ(lanes.begun.size(), 3u);
  EXPECT_EQ(lanes.owner->results, std::vector<std::int64_t>(3, -ETIME)) << "and the lane is closed";
  // When it may be tried again, another lane has just used what the rate allows.
  lanes.engine->set_silent({});
  lanes.clock.pass(2 * TwoLanes::kLimit);
  lanes.owner->results.clear();
  lanes.begun.clear();
  read(1);
  read(1);
  lanes.queue->poll(0);
  read(0);
  read(0);
  lanes.run();
  EXPECT_EQ(lanes.ended(-ETIME), 1) << "the one behind it is refused";
  EXPECT_EQ(std::ranges::count(lanes.begun, 0u, &Begun::lane), 1);
  read(0);
  lanes.run();
  EXPECT_EQ(lanes.owner->results.back(), static_cast<std::int64_t>(kBytes)) << "and the lane is open";
}

// Saves share places and buffers whatever their directory: those to a dead one must not wait there.
TEST(DiskQueue, WritesToAClosedLaneEndAtOnceAndOneTriesIt) {
  TwoLanes lanes(0);
  const auto write = [&](std::uint32_t lane) { lanes.push(lane, true); };
  lanes.engine->set_silent(0);
  for (int i = 0; i < 3; ++i) write(0);
  lanes.run();
  EXPECT_EQ(lanes.owner->results, std::vector<std::int64_t>(3, -ETIME)) << "and the lane is closed";
  lanes.owner->results.clear();
  const Nanos closed_at = lanes.clock.now();
  for (int i = 0; i < 20; ++i) {
    write(0);
    write(1);
    lanes.queue->poll(0);
  }
  EXPECT_EQ(lanes.clock.now(), closed_at);
  EXPECT_EQ(lanes.ended(-ETIME), 20);
  EXPECT_EQ(lanes.ended(static_cast<std::int64_t>(kBytes)), 20);
  // The disk is there again: one is let through, and then all are.
  lanes.engine->set_silent({});
  lanes.clock.pass(2 * TwoLanes::kLimit);
  lanes.owner->results.clear();
  write(0);
  write(0);
  lanes.run();
  EXPECT_EQ(lanes.ended(-ETIME), 1);
  write(0);
  lanes.run();
  EXPECT_EQ(lanes.owner->results.back(), static_cast<std::int64_t>(kBytes));
}

}  // namespace
}  // namespace loci
