// SPDX-License-Identifier: Apache-2.0
// A machine that loses its power, on a disk that loses, tears and reorders what was not synchronised
// (fault_vfs_testing.h): what was acknowledged is there, nothing half is, at every point where it may happen.
// And a disk that is full or fails.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "loci/base/eventually_testing.h"
#include "loci/serve/store/fault_vfs_testing.h"
#include "loci/serve/store/naive_store_testing.h"
#include "loci/serve/store/random_walk_testing.h"
#include "loci/serve/store/schema.h"
#include "loci/serve/store/sqlite_database.h"
#include "loci/serve/store/sqlite_store.h"

namespace loci {
namespace {

constexpr const char* kPath = "store.db";

std::string integrity(const StoreOptions& options) {
  auto database = SqliteDatabase::open(kPath, SqliteDatabase::Mode::kReadWrite, options);
  if (!database.ok()) return database.status().to_string();
  const Result<std::string> found = (*database)->integrity_check();
  return found.ok() ? *found : found.status().to_string();
}

// A walk over a store whose machine loses its power again and again, with what it must remember.
class CrashingStore {
 public:
  explicit CrashingStore(std::uint64_t seed)
      : disk_(seed), random_(seed + 1'000'000), walk_(WalkKind::kAll, seed) {
    options_.sqlite_vfs = disk_.vfs_name();
    options_.sqlite_checkpoint_pages = 12;  // so that many crashes meet a checkpoint
    options_.now_seconds = [this] { return walk_.now(); };
  }

  FaultDisk& disk() { return disk_; }
  int operations() const { return operations_; }

  // Works until the power fails, and looks at what is left. Empty: all is well.
  std::string run_until_crash() {
    disk_.crash_after(1 + random_.below(random_.below(3) == 0 ? 12 : 120));
    NaiveStore before = expected_, after = expected_;
    std::string fault = work(before, after);
    store_.reset();
    if (!fault.empty()) return fault;
    disk_.restart();
    if (const std::string found = integrity(options_); found != "ok") return "integrity: " + found;
    auto opened = SqliteStore::open(kPath, options_);
    if (!opened.ok()) return opened.status().to_string();
    const std::string found = dump_store(**opened);
    if (found == dump_store(before)) {
      expected_ = before;
    } else if (found == dump_store(after)) {
      expected_ = after;
    } else {
      return "found\n" + found + "expected\n" + dump_store(before) + "or\n" + dump_store(after);
    }
    return "";
  }

 private:
  // Does things until the power fails. `before` is then what was acknowledged, `after` that with the
  // operation in which it failed.
  std::string work(NaiveStore& before, NaiveStore& after) {
    while (!disk_.crashed()) {
      if (store_ == nullptr) {
        auto opened = SqliteStore::open(kPath, options_);
        if (disk_.crashed()) return "";
        if (!opened.ok()) return opened.status().to_string();
        store_ = std::move(opened).value();
      }
      // Closing moves the log into the file.
      if (random_.below(30) == 0) {
        store_.reset();
        continue;
      }
      const StoreOperation operation = walk_.next();
      after.now = walk_.now();
      const std::string said = operation.run(*store_);
      const std::string expected = operation.run(after);
      // A checkpoint after the commit may meet the end of power: then the commit was acknowledged all the
      // same.
      if (disk_.crashed() && said != expected) return "";
      if (said != expected) return fmt::format("{}: said {}, expected {}", operation.name, said, expected);
      before = after;
      ++operations_;
    }
    return "";
  }

  FaultDisk disk_;
  Random random_;
  StoreWalk walk_;
  StoreOptions options_;
  NaiveStore expected_;
  std::unique_ptr<ConversationStore> store_;
  int operations_ = 0;
};

TEST(StoreCrash, WhatWasAcknowledgedIsThereAndNothingHalf) {
  int operations = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    CrashingStore store(seed);
    for (int crash = 0; crash < 6; ++crash) {
      const std::string fault = store.run_until_crash();
      ASSERT_EQ(fault, "") << "seed " << seed << ", crash " << crash;
    }
    operations += store.operations();
  }
  EXPECT_GT(operations, 10'000);
}

// The test sees what it is for: on a disk that does not synchronise, turns are lost or the file is damaged.
TEST(StoreCrash, ADiskThatLiesIsNoticed) {
  int noticed = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CrashingStore store(seed);
    store.disk().ignore_syncs();
    bool good = true;
    for (int crash = 0; crash < 4 && good; ++crash) good = store.run_until_crash().empty();
    if (!good) ++noticed;
  }
  EXPECT_GT(noticed, 15);
}

TEST(StoreCrash, AMigrationIsWholeOrNotAtAll) {
  const std::array migrations = {
      Migration{.version = 1,
                .statements = "CREATE TABLE a (x {int} NOT NULL);"
                              "INSERT INTO a VALUES (1), (2), (3);"},
      Migration{.version = 2,
                .statements = "ALTER TABLE a ADD COLUMN y {int}; UPDATE a SET y = 10 * x;"
                              "CREATE INDEX a_by_y ON a (y);"},
      Migration{.version = 3,
                .statements = "CREATE TABLE b (z {int}); INSERT INTO b SELECT y FROM a;"
                              "DROP TABLE a;"}};
  const std::array<std::pair<const char*, std::int64_t>, 4> sums = {{{"SELECT 0", 0},
                                                                     {"SELECT SUM(x) FROM a", 6},
                                                                     {"SELECT SUM(y) FROM a", 60},
                                                                     {"SELECT SUM(z) FROM b", 60}}};
  std::array<int, 4> seen{};
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    FaultDisk disk(seed);
    StoreOptions options;
    options.sqlite_vfs = disk.vfs_name();
    disk.crash_after(1 + seed % 100);
    if (auto database = SqliteDatabase::open(kPath, SqliteDatabase::Mode::kReadWrite, options); database.ok())
      (void)migrate(**database, migrations, 1);
    disk.restart();
    auto database = SqliteDatabase::open(kPath, SqliteDatabase::Mode::kReadWrite, options);
    ASSERT_TRUE(database.ok()) << database.status().to_string();
    const Result<std::int64_t> found = schema_version(**database);
    const auto version = static_cast<std::size_t>(found.ok() ? *found : 0);
    ++seen[version];
    const Status summed = (*database)->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
      LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run(sums[version].first, {}));
      EXPECT_EQ(rows.integer(0, 0), sums[version].second) << "seed " << seed;
      return {};
    });
    ASSERT_TRUE(summed.ok()) << summed.to_string();
    ASSERT_TRUE(migrate(**database, migrations, 2).ok());
    ASSERT_EQ(schema_version(**database).value(), 3);
    ASSERT_EQ((*database)->integrity_check().value(), "ok");
  }
  for (const int count : seen) EXPECT_GT(count, 0);
}

// Every place in which an operation may meet the fault.
void expect_faults_survived(DiskFault fault, int& met) {
  for (std::uint64_t from = 1; from < 40; ++from) {
    FaultDisk disk(from);
    StoreOptions options;
    options.sqlite_vfs = disk.vfs_name();
    // A log that is moved into the file often hardly grows.
    if (fault != DiskFault::kFull) options.sqlite_checkpoint_pages = 12;
    StoreWalk walk(WalkKind::kAll, from);
    options.now_seconds = [&walk] { return walk.now(); };
    NaiveStore naive;
    auto store = SqliteStore::open(kPath, options).value();
    const auto work = [&](int count) {
      for (int i = 0; i < count; ++i) {
        const StoreOperation operation = walk.next();
        naive.now = walk.now();
        const std::string said = operation.run(*store);
        if (said == "unavailable") {
          ++met;
          continue;  // nothing has changed
        }
        ASSERT_EQ(said, operation.run(naive)) << operation.name << ", fault " << from;
      }
    };
    work(60);
    disk.fail(fault, from, 1 + from % 5);
    work(30);
    disk.mend();
    // It works again, and nothing is lost, neither now nor when it is opened again.
    const int met_before = met;
    work(30);
    ASSERT_EQ(met, met_before) << "fault " << from;
    ASSERT_EQ(dump_store(*store), dump_store(naive)) << "fault " << from;
    store.reset();
    ASSERT_EQ(integrity(options), "ok");
    ASSERT_EQ(dump_store(*SqliteStore::open(kPath, options).value()), dump_store(naive)) << "fault " << from;
  }
}

class StoreFault : public testing::TestWithParam<DiskFault> {};

TEST_P(StoreFault, IsAnErrorAndPasses) {
  int met = 0;
  expect_faults_survived(GetParam(), met);
  EXPECT_GT(met, 10);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreFault,
                         testing::Values(DiskFault::kFull, DiskFault::kWriteError, DiskFault::kSyncError));

TEST(StoreCrash, AFullDiskIsNamed) {
  FaultDisk disk(1);
  StoreOptions options;
  options.sqlite_vfs = disk.vfs_name();
  auto store = SqliteStore::open(kPath, options).value();
  disk.fail(DiskFault::kFull, 1, 1'000);
  const Status full = store->commit_turn("ann", test_turn("r"));
  EXPECT_EQ(full.code(), StatusCode::kUnavailable);
  EXPECT_NE(full.message().find("the disk is full"), std::string::npos) << full.message();
  disk.mend();
  EXPECT_TRUE(store->commit_turn("ann", test_turn("r")).ok());
}

TEST(StoreCrash, AReadErrorIsUnavailable) {
  FaultDisk disk(1);
  StoreOptions options;
  options.sqlite_vfs = disk.vfs_name();
  ASSERT_TRUE(SqliteStore::open(kPath, options).value()->commit_turn("ann", test_turn("r")).ok());
  auto store = SqliteStore::open(kPath, options).value();
  disk.fail(DiskFault::kReadError, 1, 1);
  EXPECT_EQ(store->response("ann", "r").status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(store->response("ann", "r").ok());
}

// What durability costs.
TEST(StoreCrash, ATurnIsSynchronisedOnce) {
  FaultDisk disk(1);
  StoreOptions options;
  options.sqlite_vfs = disk.vfs_name();
  auto store = SqliteStore::open(kPath, options).value();
  ASSERT_TRUE(store->commit_turn("ann", test_turn("first")).ok());
  const std::uint64_t before = disk.syncs();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(store->commit_turn("ann", test_turn(fmt::format("r{}", i))).ok());
  EXPECT_EQ(disk.syncs() - before, 50u);
}

// Turns that come while the disk synchronises the first one. Returns how often it did for all of them.
std::uint64_t syncs_of_turns_at_once(SqlDatabase& database, FaultDisk& disk, int turns) {
  std::atomic<int> waiting = 0, first = 0;
  const std::uint64_t before = disk.syncs();
  std::vector<std::thread> threads;
  for (int t = 0; t < turns; ++t) {
    threads.emplace_back([&, t] {
      ++waiting;
      const Status done = database.transact(SqlAccess::kWrite, [&, t](SqlSession& session) {
        // The first one commits when all others are about to wait.
        if (first++ == 0) {
          while (waiting < turns) std::this_thread::sleep_for(std::chrono::milliseconds(1));
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        return session
            .run("INSERT INTO threads (tenant, active_at, size_bytes) VALUES ('ann', $1, 64)",
                 {std::int64_t{t}})
            .status();
      });
      EXPECT_TRUE(done.ok()) << done.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return disk.syncs() - before;
}

// They share the next fsync.
TEST(StoreCrash, TurnsThatWaitAreSynchronisedTogether) {
  FaultDisk disk(1);
  StoreOptions options;
  options.sqlite_vfs = disk.vfs_name();
  auto database = SqliteDatabase::open(kPath, SqliteDatabase::Mode::kReadWrite, options).value();
  ASSERT_TRUE(migrate(*database, store_migrations(), 1).ok());
  // On a busy machine some may come later than that: then others try.
  EXPECT_TRUE(in_one_try(20, [&] { return syncs_of_turns_at_once(*database, disk, 30) <= 6; }));
}

// The power fails under many threads: whatever one of them was told is durable is there.
TEST(StoreCrash, NothingIsAcknowledgedBeforeItIsDurable) {
  std::size_t acknowledged_in_all = 0, unseen_in_all = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    FaultDisk disk(seed);
    StoreOptions options;
    options.sqlite_vfs = disk.vfs_name();
    options.sqlite_checkpoint_pages = 12;
    std::mutex mutex;
    std::vector<std::string> acknowledged;
    {
      auto store = SqliteStore::open(kPath, options).value();
      disk.crash_after(1 + seed * 7);
      std::vector<std::thread> threads;
      for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
          for (int i = 0; i < 12; ++i) {
            const std::string id = fmt::format("r{}_{}", t, i);
            if (!store->commit_turn("ann", test_turn(id)).ok()) return;
            const std::lock_guard lock(mutex);
            acknowledged.push_back(id);
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    disk.restart();
    auto store = SqliteStore::open(kPath, options).value();
    for (const std::string& id : acknowledged) {
      ASSERT_TRUE(store->response("ann", id).ok()) << id << " of seed " << seed;
      ASSERT_EQ(store->response_history("ann", id, UINT64_MAX).value().size(), 2u);
    }
    acknowledged_in_all += acknowledged.size();
    unseen_in_all +=
        store->stats().value().empty() ? 0 : store->stats().value()[0].responses - acknowledged.size();
    store.reset();
    ASSERT_EQ(integrity(options), "ok");
  }
  EXPECT_GT(acknowledged_in_all, 100u);
  EXPECT_GT(unseen_in_all, 0u) << "no crash came between a commit and its acknowledgement";
}

}  // namespace
}  // namespace loci
