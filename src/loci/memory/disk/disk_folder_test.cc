// SPDX-License-Identifier: Apache-2.0
// Who has a folder: servers, who drops state there for a moment, and who deletes the lock's file.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "loci/base/descriptor.h"
#include "loci/base/eventually_testing.h"
#include "loci/base/folder_testing.h"
#include "loci/memory/disk/disk_file.h"
#include "loci/memory/disk/disk_format.h"
#include "loci/memory/disk/disk_models.h"
#include "loci/memory/disk/disk_store.h"
#include "loci/memory/disk/disk_unused_folder.h"

namespace loci {
namespace {

constexpr Nanos kLong = 50 * kNanosPerSecond;  // a disk takes so long for an operation

// Time goes on while somebody waits for a folder, and only then.
class DiskFolderLock : public ::testing::Test {
 protected:
  DiskFolderLock() { std::filesystem::create_directories(path_); }

  // Of a server that starts. `meanwhile`: at each pause.
  DiskLockWish server(std::function<void()> meanwhile = [] {}) {
    return {.say = [this](const std::string& line) { said_.push_back(line); },
            .now = [this] { return now_; },
            .pause =
                [this, meanwhile = std::move(meanwhile)](Nanos time) {
                  now_ += time;
                  meanwhile();
                }};
  }
  std::string message_of(const DiskLockWish& wish) const {
    const Status refused = make_disk_folder(path_)->lock(wish);
    EXPECT_EQ(refused.code(), StatusCode::kUnavailable);
    return refused.message();
  }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  DiskLockMark mark() const {
    const auto lock = open_disk_file_to_read(file("lock"));
    return lock.ok() ? read_disk_lock(**lock) : DiskLockMark{};
  }
  // As a server left it, for who drops what is unused.
  Result<UnusedFolder> unused() const {
    std::ofstream(file("superblock")) << "there";
    const Result<ModelsPlace> place = ModelsPlace::open(folder_.path());
    return UnusedFolder::open(*place, std::string(32, 'a'));
  }

  TestFolder folder_;
  const std::string path_ = folder_.file("models/" + std::string(32, 'a'));
  const DiskLockWish moment_{.for_a_moment = true};
  Nanos now_ = 0;
  std::vector<std::string> said_;
};

// --- for whom a start waits ---

TEST_F(DiskFolderLock, AStartWaitsForWhoDropsState) {
  auto dropping = make_disk_folder(path_);
  ASSERT_TRUE(dropping->lock(moment_).ok());
  const auto starting = make_disk_folder(path_);
  const Status started = starting->lock(server([&] {
    if (now_ > kLong) dropping.reset();
  }));
  EXPECT_TRUE(started.ok()) << started.to_string();
  ASSERT_EQ(said_.size(), 1u);
  EXPECT_NE(said_[0].find("waits for another process (process "), std::string::npos) << said_[0];
  const std::string refused = message_of(server());
  EXPECT_NE(refused.find("another server (process "), std::string::npos) << refused << ": it has it for good";
  EXPECT_LT(now_, kLong + kNanosPerSecond);
}

TEST_F(DiskFolderLock, AStartWaitsForWhoDropsUnusedState) {
  ASSERT_TRUE(make_disk_folder(path_)->lock({}).ok());
  Result<UnusedFolder> folder = unused();
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  Result<UnusedFolder::Lock> locked = folder->lock();
  ASSERT_TRUE(locked.ok()) << locked.status().to_string();
  std::optional<UnusedFolder::Lock> dropping = std::move(locked).value();
  const Status started = make_disk_folder(path_)->lock(server([&] {
    if (now_ > kLong) dropping.reset();
  }));
  EXPECT_TRUE(started.ok()) << started.to_string();
}

TEST_F(DiskFolderLock, WhoDoesNotGoOnIsNotWaitedForForEver) {
  const auto dropping = make_disk_folder(path_);
  ASSERT_TRUE(dropping->lock(moment_).ok());
  const std::string refused = message_of(server());
  EXPECT_NE(refused.find("drops state there, and has not gone on for 60"), std::string::npos) << refused;
  EXPECT_EQ(said_.size(), 1u);
}

TEST_F(DiskFolderLock, WhoGoesOnIsWaitedFor) {
  auto dropping = make_disk_folder(path_);
  ASSERT_TRUE(dropping->lock(moment_).ok());
  int times = 0;
  const Status started = make_disk_folder(path_)->lock(server([&] {
    if (now_ < ++times * kLong) {
      --times;
    } else if (times < 10) {
      dropping->go_on();
    } else {
      dropping.reset();
    }
  }));
  EXPECT_TRUE(started.ok()) << started.to_string();
  EXPECT_EQ(times, 10);
  EXPECT_EQ(said_.size(), 1u) << "once for all";
}

// Its headers are a pipe: whoever opens them waits, as for a disk.
TEST_F(DiskFolderLock, AStartWaitsForAScanOfABudget) {
  const auto bytes =
      encode_superblock({.groups = {{.layers = 4, .layer_slice_bytes = 4096, .slots = 8}}, .holes = 8});
  std::ofstream(file("superblock"))
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  const std::string headers = file("group-0.headers");
  ASSERT_EQ(::mkfifo(headers.c_str(), 0600), 0);
  std::thread dropping([&] {
    // (A pipe gives no records.)
    EXPECT_EQ(drop_oldest_state({.folder = path_}, 1).status().code(), StatusCode::kUnavailable);
  });
  EXPECT_TRUE(eventually([&] { return is_of_a_moment(mark()); }));
  const std::string before = mark().text;
  std::string after;
  const Status started = make_disk_folder(path_)->lock(server([&] {
    if (now_ < kLong || !dropping.joinable()) return;
    EXPECT_TRUE(
        eventually([&] { return Descriptor(::open(headers.c_str(), O_WRONLY | O_NONBLOCK)).is_open(); }));
    dropping.join();
    after = mark().text;
  }));
  EXPECT_TRUE(started.ok()) << started.to_string();
  EXPECT_NE(before, after) << "a scan goes on";
  if (dropping.joinable()) {
    Descriptor(::open(headers.c_str(), O_WRONLY | O_NONBLOCK));
    dropping.join();
  }
}

TEST_F(DiskFolderLock, WhoForgetsWaitsForWhoDropsState) {
  auto dropping = make_disk_folder(path_);
  ASSERT_TRUE(dropping->lock(moment_).ok());
  std::string said;
  const Status forgotten = forget_stored_model({.folder = path_}, [&](const std::string& line) {
    said = line;
    dropping.reset();
  });
  EXPECT_TRUE(forgotten.ok()) << forgotten.to_string();
  EXPECT_NE(said.find("waits for another process"), std::string::npos) << said;
}

TEST_F(DiskFolderLock, WhoForgetsHasItForAMoment) {
  // No file can have the name under which it would go.
  const std::string path = folder_.file("models/" + std::string(252, 'a'));
  EXPECT_EQ(forget_stored_model({.folder = path}).code(), StatusCode::kUnavailable);
  const auto lock = open_disk_file_to_read(path + "/lock");
  ASSERT_TRUE(lock.ok());
  DiskLockMark mark = read_disk_lock(**lock);
  mark.held = true;
  EXPECT_TRUE(is_of_a_moment(mark)) << mark.text;
}

// Its files go one by one under the lock, which takes as long as it takes.
TEST_F(DiskFolderLock, AStartDoesNotWaitForAFolderThatWasSetAside) {
  const auto forgetting = make_disk_folder(path_);
  ASSERT_TRUE(forgetting->lock(moment_).ok());
  const auto starting = make_disk_folder(path_);
  const Status started = starting->lock(server([&] {
    if (!std::filesystem::exists(leftover_of(path_))) std::filesystem::rename(path_, leftover_of(path_));
  }));
  EXPECT_TRUE(started.ok()) << started.to_string();
  EXPECT_TRUE(std::filesystem::exists(file("lock")));
}

TEST_F(DiskFolderLock, WhoLocksAFolderThatGoesHasOne) {
  for (int i = 0; i < 1000; ++i) {
    std::filesystem::create_directory(path_);
    std::ofstream(path_ + "/lock").flush();
    const auto locking = make_disk_folder(path_);
    std::atomic<bool> go = false;
    std::thread remover([&] {
      while (!go) {
      }
      // At another time each time.
      for (std::atomic<int> spin = 0; spin < i * 5 % 3000; ++spin) {
      }
      std::filesystem::rename(path_, folder_.file("models/going" + std::to_string(i)));
    });
    go = true;
    const Status locked = locking->lock({});
    remover.join();
    ASSERT_TRUE(locked.ok()) << i << ": " << locked.message();
    std::filesystem::remove_all(path_);
  }
}

// --- a lock's file that is deleted ---

// A server has the folder; somebody deletes its lock's file, or puts an older one there.
TEST_F(DiskFolderLock, ADeletedLockFileLetsNobodyIn) {
  ASSERT_TRUE(make_disk_folder(path_)->lock(moment_).ok());
  std::filesystem::copy(file("lock"), folder_.file("older"));
  const auto server_of_it = make_disk_folder(path_);
  ASSERT_TRUE(server_of_it->lock({}).ok());
  std::filesystem::remove(file("lock"));
  const std::string refused = message_of(server());
  EXPECT_NE(refused.find("another server, whose lock file was deleted,"), std::string::npos) << refused;
  EXPECT_EQ(forget_stored_model({.folder = path_}).code(), StatusCode::kUnavailable);
  std::filesystem::rename(folder_.file("older"), file("lock"));
  Result<UnusedFolder> folder = unused();
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  EXPECT_EQ(folder->lock().status().code(), StatusCode::kCancelled);
  EXPECT_TRUE(std::filesystem::exists(file("superblock")));
}

TEST_F(DiskFolderLock, ADeletedLockFileIsMadeAnew) {
  ASSERT_TRUE(make_disk_folder(path_)->lock(moment_).ok());
  std::filesystem::copy(file("lock"), folder_.file("older"));
  const auto server_of_it = make_disk_folder(path_);
  EXPECT_EQ(server_of_it->keep_lock(), "") << "nobody has it";
  ASSERT_TRUE(server_of_it->lock({}).ok());
  EXPECT_EQ(server_of_it->keep_lock(), "");
  for (const bool replaced : {false, true}) {
    std::filesystem::remove(file("lock"));
    if (replaced) std::filesystem::rename(folder_.file("older"), file("lock"));
    EXPECT_EQ(disk_folder_user(path_), 0);
    const std::string line = server_of_it->keep_lock();
    EXPECT_NE(line.find("/lock: was deleted or replaced"), std::string::npos) << line;
    EXPECT_EQ(disk_folder_user(path_), ::getpid());
    EXPECT_EQ(server_of_it->keep_lock(), "");
    const std::string refused = message_of(server());
    EXPECT_NE(refused.find("another server (process "), std::string::npos) << refused;
  }
}

// As where the file system locks no folders.
TEST_F(DiskFolderLock, WhoHasTheNewLockFileIsNamed) {
  const auto server_of_it = make_disk_folder(path_);
  ASSERT_TRUE(server_of_it->lock({}).ok());
  std::filesystem::remove(file("lock"));
  {
    const Descriptor other(::open(file("lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    struct flock whole{};
    whole.l_type = F_WRLCK;
    whole.l_whence = SEEK_SET;
    ASSERT_EQ(::fcntl(other.get(), F_OFD_SETLK, &whole), 0);
    EXPECT_EQ(server_of_it->keep_lock(), "") << "somebody tries it";
    std::string said;
    for (int i = 0; i < 100; ++i) said += server_of_it->keep_lock();
    const std::size_t at = said.find("another process has it now");
    ASSERT_NE(at, std::string::npos) << said;
    EXPECT_EQ(said.find("another process", at + 1), std::string::npos) << said << ": once";
  }
  EXPECT_NE(server_of_it->keep_lock().find("made anew"), std::string::npos);
}

TEST_F(DiskFolderLock, AFolderThatWentGetsNoLockFile) {
  const auto server_of_it = make_disk_folder(path_);
  ASSERT_TRUE(server_of_it->lock({}).ok());
  std::filesystem::rename(path_, leftover_of(path_));
  EXPECT_EQ(server_of_it->keep_lock(), "");
  EXPECT_FALSE(std::filesystem::exists(path_));
  std::filesystem::create_directory(path_);
  EXPECT_EQ(server_of_it->keep_lock(), "");
  EXPECT_TRUE(std::filesystem::is_empty(path_)) << "it is another one";
}

TEST_F(DiskFolderLock, AStoreKeepsTheLocksOfAllItsFolders) {
  std::vector<std::string> warned;
  DiskStoreOptions options{.groups = {{.layers = 4, .layer_slice_bytes = 4096}}};
  const std::vector<std::string> folders = {path_, folder_.file("other")};
  for (const std::string& folder : folders) options.directories.push_back({.path = folder, .bytes = 8 << 20});
  options.warn = [&](const std::string& line) { warned.push_back(line); };
  const auto store = DiskStore::open(options);
  ASSERT_TRUE(store.ok()) << store.status().to_string();
  (*store)->keep_locks();
  EXPECT_TRUE(warned.empty());
  for (const std::string& folder : folders) std::filesystem::remove(folder + "/lock");
  (*store)->keep_locks();
  EXPECT_EQ(warned.size(), 2u);
  for (const std::string& folder : folders) EXPECT_EQ(disk_folder_user(folder), ::getpid());
}

}  // namespace
}  // namespace loci
