// SPDX-License-Identifier: Apache-2.0
// Who drops unused state, while servers start, files fail and a stop is asked for.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "loci/base/eventually_testing.h"
#include "loci/memory/disk/disk_keeper.h"
#include "loci/memory/disk/disk_unused.h"
#include "loci/memory/disk/disk_unused_testing.h"

namespace loci {
namespace {

using UnusedStateRaces = UnusedStateTest;

// Of this thread: other programs' time does not count.
double thread_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Every write of this process to a file fails with EFBIG.
class NothingIsWritten {
 public:
  NothingIsWritten() : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit none{.rlim_cur = 0, .rlim_max = before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &none);
  }
  ~NothingIsWritten() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  void (*handler_)(int);
  rlimit before_{};
};

TEST_F(UnusedStateRaces, AServerThatStartedSinceTheReadingLosesNothing) {
  {
    const auto store = serve(1);
    write(*store, 0, 500);
    write(*store, 1, 99);
  }
  UnusedState state = unused();
  const auto go_on = [] { return false; };
  read_model(state, go_on);
  // The old one goes next. Meanwhile somebody goes on from it, and ends.
  {
    const auto store = serve(1);
    ASSERT_EQ(recover_all(*store).size(), 2u);
    write(*store, 2, 0, 0, 2);
  }
  while (state.step(go_on) == 0) {
  }
  EXPECT_EQ(left(1), (std::set<std::uint32_t>{0, 1, 2}));
  EXPECT_TRUE(said_.empty() && warned_.empty());
}

TEST_F(UnusedStateRaces, WhoCannotMarkTheLockHasItOnce) {
  write_model(1, {500});
  const Result<ModelsPlace> place = ModelsPlace::open(directory());
  ASSERT_TRUE(place.ok());
  Result<UnusedFolder> folder = UnusedFolder::open(*place, id_of(1));
  ASSERT_TRUE(folder.ok());
  {
    const NothingIsWritten refused;
    ASSERT_TRUE(folder->lock().ok());
  }
  // A server whose mark was refused too may have had it by now.
  EXPECT_EQ(folder->lock().status().code(), StatusCode::kCancelled);
}

TEST_F(UnusedStateRaces, AServerStartsDuringADrop) {
  constexpr std::uint32_t kBlocks = 400;
  {
    const auto store = serve(1);
    for (std::uint32_t i = 0; i < kBlocks; ++i) write(*store, i, i == 0 ? 0 : 500);
  }
  UnusedState state = unused();
  bool dropping = false;
  // Time goes on, as a slow disk takes longer than the drop may for all.
  Nanos dropping_since = 0;
  const auto begun = std::chrono::steady_clock::now();
  const auto pass_time = [&] {
    now_ = dropping_since + std::chrono::nanoseconds(std::chrono::steady_clock::now() - begun).count();
    ahead_ = -now_;
  };
  // The drop takes the lock; the server wants it at that moment.
  std::thread server;
  std::unique_ptr<DiskStore> store;
  std::atomic<bool> started = false;
  const auto stop = [&] {
    if (dropping) pass_time();
    if (!dropping || server.joinable()) return false;
    server = std::thread([&] {
      store = serve(1, kNever);
      started = true;
    });
    // Until it waits, or at the least for one of its pauses.
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    return false;
  };
  read_model(state, stop);
  dropping_since = now_;
  dropping = true;
  while (!started) {
    state.step(stop);
    std::this_thread::sleep_for(std::chrono::nanoseconds(UnusedState::kDropPause));
  }
  server.join();
  ASSERT_NE(store, nullptr);
  EXPECT_LT(recover_all(*store).size(), kBlocks) << "what had been dropped until then";
  look(state);
  EXPECT_LE(said_.size(), 1u) << "what was dropped, if the drop had not ended";
  now_ += 2 * UnusedState::kLookPauseMax;
  ahead_ = -now_;
  const std::size_t before = said_.size();
  look(state);
  EXPECT_EQ(said_.size(), before) << "it has the folder";
  EXPECT_TRUE(warned_.empty());
}

TEST_F(UnusedStateRaces, AServerThatStartsAsItsFolderGoesHasAFolder) {
  write_model(1, {500});
  UnusedState state = unused();
  std::thread server;
  std::unique_ptr<DiskStore> store;
  const auto stop = [&] {
    // The folder is set aside, and its files go one by one.
    if (server.joinable() || is_there(1)) return false;
    server = std::thread([&] { store = serve(1); });
    server.join();
    return false;
  };
  read_model(state, stop);
  ASSERT_NE(store, nullptr);
  write(*store, 5, 0);
  EXPECT_TRUE(read_one(*store, 0, SlotId(5), test_key(5)).status->ok());
  EXPECT_TRUE(is_there(1));
  EXPECT_FALSE(std::filesystem::exists(leftover_of(folder_of(1))));
}

TEST_F(UnusedStateRaces, WhatTheDiskRefusesIsTriedAgain) {
  write_model(1, {500, 10});
  UnusedState state = unused();
  read_model(state, [] { return false; });
  const std::string slots = folder_of(1) + "/group-0.slots";
  std::filesystem::rename(slots, slots + "-aside");
  std::filesystem::create_directory(slots);
  look(state);
  look(state);
  EXPECT_EQ(warned_.size(), 1u);
  std::filesystem::remove(slots);
  std::filesystem::rename(slots + "-aside", slots);
  EXPECT_TRUE(said_.empty());
  look(state);
  EXPECT_EQ(said_.size(), 1u);
  EXPECT_EQ(left(1), (std::set<std::uint32_t>{1}));
}

// Many folders, many files in one of them, many records: each is asked for a stop.
TEST_F(UnusedStateRaces, AStopIsSeenAtOnce) {
  write_model(1, {500, 10});
  const std::string models = directory() + "/models/";
  const int place = ::open(folder_of(1).c_str(), O_RDONLY | O_DIRECTORY);
  // Names of one file, as files of their own take seconds.
  for (int i = 0; i < 50'000; ++i)
    ASSERT_EQ(::linkat(place, "limit", place, ("stranger-" + std::to_string(i)).c_str(), 0), 0);
  ::close(place);
  for (std::uint8_t model = 2; model < 60; ++model)
    std::filesystem::copy(folder_of(1) + "/limit", models + id_of(model));
  // CPU seconds from the `after`-th question, the first that is answered with yes; none: fewer were asked.
  const auto seconds_after = [&](int after) -> std::optional<double> {
    UnusedState state = unused();
    now_ = ahead_ = 0;
    int asked = 0;
    double stopped_at = 0;
    const auto stop = [&] {
      if (++asked == after) stopped_at = thread_seconds();
      return asked >= after;
    };
    for (int i = 0; i < 6 && asked < after; ++i) {
      if (state.step(stop) == 0) continue;
      now_ += UnusedState::kSteadyAtStart;
      ahead_ = -now_;
    }
    if (asked < after) return std::nullopt;
    return thread_seconds() - stopped_at;
  };
  for (int after = 1; after < 200'000; after = after * 9 + 1) {
    // Others on the machine slow a thread down, but not each time: what it does itself costs as much always.
    std::optional<double> least = seconds_after(after);
    for (int i = 0; i < 9 && least >= 0.01; ++i) least = std::min(least, seconds_after(after));
    if (!least) break;
    EXPECT_LT(*least, 0.01) << after;
  }
}

// --- as a server has it ---

TEST_F(UnusedStateRaces, AKeeperDropsWhatIsUnused) {
  const auto store = serve(99);
  {
    const auto other = serve(1, 2 * kNanosPerSecond);
    write(*other, 0, 10);
  }
  std::atomic<int> looks = 0;
  {
    DiskKeeper keeper({.directories = {{.path = directory(), .bytes = kUnusedSpace}},
                       .model = id_of(99),
                       .say = [this](const std::string& line) { said_.push_back(line); },
                       .date = [] { return kUnusedToday; }});
    keeper.start([&store] { return store->oldest_used_at(); }, [&](std::uint64_t) { ++looks; });
    EXPECT_TRUE(eventually([&] { return !is_there(1) && looks > 0; }));
  }
  EXPECT_TRUE(is_there(99));
  ASSERT_EQ(said_.size(), 1u);
}

}  // namespace
}  // namespace loci
