// SPDX-License-Identifier: Apache-2.0
// What large conversations leave is erased by those whom it concerns, a bounded part at a time.
#include "loci/serve/store/sql_eraser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>
#include <vector>

#include "loci/base/folder_testing.h"
#include "loci/base/rounds_testing.h"
#include "loci/serve/store/schema.h"
#include "loci/serve/store/sql_store.h"
#include "loci/serve/store/sqlite_database.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

constexpr std::int64_t kMegabyte = 1'000'000;

// What upkeep asks of the database.
struct UpkeepWatch {
  std::atomic<int> transactions = 0;
  std::atomic<int> at_once = 0, at_once_most = 0;
  std::atomic<std::size_t> rows_read = 0;
  std::function<void()> after_each = [] {};
};

class WatchedSession final : public SqlSession {
 public:
  WatchedSession(SqlSession& session, UpkeepWatch& watch) : session_(session), watch_(watch) {}
  Result<SqlRows> run(std::string_view statement, std::initializer_list<SqlParameter> parameters) override {
    return counted(session_.run(statement, parameters));
  }
  Result<SqlRows> run_while(std::string_view statement, std::initializer_list<SqlParameter> parameters,
                            const WantsMore& wants_more) override {
    return counted(session_.run_while(statement, parameters, wants_more));
  }
  Status execute(const std::string& statements) override { return session_.execute(statements); }
  std::int64_t writer() const override { return session_.writer(); }

 private:
  Result<SqlRows> counted(Result<SqlRows> rows) {
    if (rows.ok()) watch_.rows_read += rows->size();
    return rows;
  }

  SqlSession& session_;
  UpkeepWatch& watch_;
};

class WatchedDatabase final : public SqlDatabase {
 public:
  WatchedDatabase(std::unique_ptr<SqlDatabase> database, UpkeepWatch& watch)
      : database_(std::move(database)), watch_(watch) {}
  Status transact(SqlAccess access, const SqlCaller& caller, const Body& body) override {
    if (access != SqlAccess::kUpkeep) return database_->transact(access, caller, body);
    const int at_once = ++watch_.at_once;
    watch_.at_once_most = std::max(watch_.at_once_most.load(), at_once);
    const Status done = database_->transact(access, caller, [&](SqlSession& session) {
      WatchedSession watched(session, watch_);
      return body(watched);
    });
    --watch_.at_once;
    ++watch_.transactions;
    watch_.after_each();
    return done;
  }
  Status synchronise() override { return database_->synchronise(); }
  SqlDialect dialect() const override { return database_->dialect(); }
  std::string instance() const override { return database_->instance(); }
  Result<bool> has_ended(SqlSession& session, std::string_view instance) override {
    return database_->has_ended(session, instance);
  }
  Result<bool> seems_ended(SqlSession& session, std::string_view instance) override {
    return database_->seems_ended(session, instance);
  }
  Status reclaim() override { return database_->reclaim(); }
  Status erase_deleted() override { return database_->erase_deleted(); }
  void abandon() override { database_->abandon(); }

 private:
  std::unique_ptr<SqlDatabase> database_;
  UpkeepWatch& watch_;
};

class EraserTest : public testing::Test {
 protected:
  EraserTest() { reopen(); }
  void reopen() {
    store_.reset();
    auto database = SqliteDatabase::open(path_, SqliteDatabase::Mode::kReadWrite, StoreOptions{}).value();
    ASSERT_TRUE(migrate(*database, store_migrations(), 1).ok());
    StoreOptions options;
    options.quota_of = [this](std::string_view tenant) { return tenant == "ann" ? quota_ : StoreQuota(); };
    options.expire_soon = [this] { ++asked_; };
    store_ = std::make_unique<SqlStore>(std::make_unique<WatchedDatabase>(std::move(database), watch_),
                                        std::move(options));
  }
  void create(const std::string& tenant, const std::string& id, int items, std::int64_t bytes_each) {
    std::vector<StoredItem> added;
    for (int i = 0; i < items; ++i)
      added.push_back(
          test_item(fmt::format("i{}", i), std::string(static_cast<std::size_t>(bytes_each), 'x')));
    const Status status = store_->create_conversation(tenant, {.id = id, .created_at = 5}, added);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  // Ann's conversation of so many megabytes was taken, and nothing of it is erased yet.
  void take(int megabytes) {
    quota_ = {};
    create("ann", "large", megabytes, kMegabyte);
    quota_ = {.bytes_max = 10'000, .threads_max = {}};
    create("ann", "small", 0, 0);
    ASSERT_GE(taken_bytes(), megabytes * kMegabyte);
  }
  std::int64_t number(std::string_view statement) {
    auto database = SqliteDatabase::open(path_, SqliteDatabase::Mode::kReadOnly, StoreOptions{}).value();
    std::int64_t found = -1;
    const Status done = database->transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
      LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run(statement, {}));
      found = rows.integer(0, 0);
      return {};
    });
    EXPECT_TRUE(done.ok()) << done.to_string();
    return found;
  }
  std::int64_t taken_bytes() {
    return number("SELECT COALESCE(SUM(size_bytes), 0) FROM threads WHERE tenant = ''");
  }
  std::int64_t held_bytes() { return number("SELECT COALESCE(SUM(size_bytes), 0) FROM items"); }

  const TestFolder folder_;
  const std::string path_ = folder_.file("store.db");
  UpkeepWatch watch_;
  StoreQuota quota_;
  std::atomic<int> asked_ = 0;  // for expiry
  std::unique_ptr<SqlStore> store_;
};

// Each part is of the four or three rows of a megabyte that it erases.
TEST_F(EraserTest, APartReadsNoMoreRowsThanItErases) {
  constexpr auto kItems = static_cast<int>(test_rounds(120));
  create("ann", "c", kItems, kMegabyte);
  ASSERT_TRUE(store_->delete_conversation("ann", "c").ok());
  EXPECT_EQ(held_bytes(), 0);
  EXPECT_EQ(taken_bytes(), 0);
  EXPECT_GE(watch_.transactions, kItems / 4);
  EXPECT_LE(watch_.transactions, kItems / 3 + 1);
  EXPECT_LE(watch_.rows_read,
            static_cast<std::size_t>(kItems) + 5 * static_cast<std::size_t>(watch_.transactions))
      << "of sizes one too many in each part, and what else it does";
}

// Nobody expires anything meanwhile.
TEST_F(EraserTest, WritesAtAQuotaEraseAsMuchAsTheyAdd) {
  quota_ = {.bytes_max = 10 * kMegabyte, .threads_max = {}};
  std::int64_t most = 0;
  constexpr auto kWrites = static_cast<int>(test_rounds(100));
  for (int i = 0; i < kWrites; ++i) {
    create("ann", fmt::format("c{}", i), 1, 5 * kMegabyte);
    most = std::max(most, number("SELECT SUM(size_bytes) FROM threads"));
  }
  EXPECT_LE(most, 24 * kMegabyte) << "the quota, the largest write and two parts";
  EXPECT_LE(std::filesystem::file_size(path_), 40u * kMegabyte);
  EXPECT_GE(asked_, kWrites - 2) << "at once for the rest";
  EXPECT_EQ(store_->recount_usage().value(), 0u) << "what is erased is counted";
}

// A large one is erased by the writes of half its size no later than when its room is taken again.
TEST_F(EraserTest, SmallWritesGatherWhatTheyOwe) {
  quota_ = {};
  create("ann", "large", 30, kMegabyte);
  quota_ = {.bytes_max = 30 * kMegabyte, .threads_max = {}};
  int written = 0;
  const auto write = [&] { create("ann", fmt::format("c{}", written++), 1, kMegabyte / 2); };
  write();
  const int before = watch_.transactions;
  EXPECT_GE(taken_bytes(), 30 * kMegabyte);
  for (int i = 0; i < 7; ++i) write();
  EXPECT_EQ(watch_.transactions, before) << "less than a part";
  while (written < 58) write();
  EXPECT_LE(number("SELECT SUM(size_bytes) FROM threads"), 36 * kMegabyte);
  // Once nothing is left, nobody erases any more.
  while (written < 90) write();
  EXPECT_EQ(taken_bytes(), 0);
  const int after = watch_.transactions;
  for (int i = 0; i < 20; ++i) write();
  EXPECT_EQ(watch_.transactions, after);
}

TEST_F(EraserTest, ADeletionLeavesWhatOthersLeft) {
  take(12);
  create("bob", "large", 6, kMegabyte);
  const std::int64_t left = taken_bytes();
  ASSERT_TRUE(store_->delete_conversation("bob", "large").ok());
  EXPECT_EQ(taken_bytes(), left) << "all of its own, and nothing of ann's";
  EXPECT_EQ(number("SELECT COUNT(*) FROM items"), 12);
}

TEST_F(EraserTest, ExpiryErasesABoundedPartAndSaysThatThereIsMore) {
  take(60);
  int calls = 0;
  for (bool has_more = true; has_more; ++calls) {
    const std::int64_t before = taken_bytes();
    const Result<StoreExpiry> expiry = store_->expire(0, {});
    ASSERT_TRUE(expiry.ok()) << expiry.status().to_string();
    has_more = expiry->has_more;
    EXPECT_EQ(has_more, taken_bytes() > 0);
    EXPECT_LE(before - taken_bytes(), 34 * kMegabyte) << "eight parts";
  }
  EXPECT_GE(calls, 2);
  EXPECT_EQ(held_bytes(), 0);
}

// Of eight at once: those who commit wait for one of them, not for all eight.
TEST_F(EraserTest, OnlyOneErasesAtATime) {
  constexpr int kDeletions = 8;
  for (int i = 0; i < kDeletions; ++i) create("bob", fmt::format("c{}", i), 8, kMegabyte);
  std::vector<std::thread> deletions;
  for (int i = 0; i < kDeletions; ++i) {
    deletions.emplace_back(
        [&, i] { EXPECT_TRUE(store_->delete_conversation("bob", fmt::format("c{}", i)).ok()); });
  }
  for (std::thread& deletion : deletions) deletion.join();
  EXPECT_EQ(watch_.at_once_most, 1);
  EXPECT_EQ(held_bytes(), 0) << "each reply came once its own was erased";
}

TEST_F(EraserTest, AStopIsSeenBetweenTwoParts) {
  create("bob", "c", 40, kMegabyte);
  watch_.after_each = [&] {
    if (watch_.transactions == 2) store_->abandon();
  };
  EXPECT_TRUE(store_->delete_conversation("bob", "c").ok()) << "it is deleted";
  EXPECT_EQ(watch_.transactions, 2);
  EXPECT_GE(taken_bytes(), 30 * kMegabyte);
  watch_.after_each = [] {};
  const Result<StoreExpiry> stopped = store_->expire(0, {});
  ASSERT_TRUE(stopped.ok()) << stopped.status().to_string();
  EXPECT_FALSE(stopped->has_more) << "for this server";
  EXPECT_GE(taken_bytes(), 30 * kMegabyte);
  reopen();
  while (store_->expire(0, {}).value().has_more) {
  }
  EXPECT_EQ(held_bytes(), 0) << "the next start goes on";
}

// Those that wait for their turn are told too.
TEST_F(EraserTest, AStopEndsThoseThatWait) {
  constexpr auto kItems = static_cast<int>(test_rounds(20));
  for (int i = 0; i < 6; ++i) create("bob", fmt::format("c{}", i), kItems, kMegabyte);
  watch_.after_each = [&] {
    if (watch_.transactions == 3) store_->abandon();
  };
  std::vector<std::thread> deletions;
  for (int i = 0; i < 6; ++i) {
    deletions.emplace_back(
        [&, i] { EXPECT_TRUE(store_->delete_conversation("bob", fmt::format("c{}", i)).ok()); });
  }
  for (std::thread& deletion : deletions) deletion.join();
  EXPECT_LE(watch_.transactions, 4);
}

}  // namespace
}  // namespace loci
