// SPDX-License-Identifier: Apache-2.0
// Writers that share a commit in SQLite, and readers that share its connections.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <latch>
#include <new>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/base/folder_testing.h"
#include "loci/serve/store/sqlite_database.h"
#include "loci/serve/store/sqlite_store.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

// Runs all bodies in one group: the first holds the others up until they wait.
std::vector<Status> run_together(SqliteDatabase& database, const std::vector<SqlDatabase::Body>& bodies) {
  std::vector<Status> statuses(bodies.size());
  std::vector<std::thread> threads;
  std::latch begun(1), go(1);
  std::thread first([&] {
    EXPECT_TRUE(database
                    .transact(SqlAccess::kWrite,
                              [&](SqlSession&) {
                                begun.count_down();
                                go.wait();
                                return Status();
                              })
                    .ok());
  });
  begun.wait();
  for (std::size_t i = 0; i < bodies.size(); ++i)
    threads.emplace_back([&, i] { statuses[i] = database.transact(SqlAccess::kWrite, bodies[i]); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  go.count_down();
  first.join();
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

TEST(SqliteGroups, OneThatFailsTakesNothingFromTheOthers) {
  const TestFolder folder;
  auto database =
      SqliteDatabase::open(folder.file("store.db"), SqliteDatabase::Mode::kReadWrite, StoreOptions{}).value();
  ASSERT_TRUE(
      database
          ->transact(SqlAccess::kWrite,
                     [](SqlSession& session) { return session.execute("CREATE TABLE a (x INTEGER)"); })
          .ok());
  const auto insert = [](std::int64_t value) {
    return
        [value](SqlSession& session) { return session.run("INSERT INTO a VALUES ($1)", {value}).status(); };
  };
  const auto sum = [&] {
    std::int64_t value = 0;
    EXPECT_TRUE(database
                    ->transact(SqlAccess::kRead,
                               [&](SqlSession& session) -> Status {
                                 LOCI_ASSIGN_OR_RETURN(const SqlRows rows,
                                                       session.run("SELECT SUM(x) FROM a", {}));
                                 value = rows.integer(0, 0);
                                 return {};
                               })
                    .ok());
    return value;
  };
  const auto refused = [](SqlSession& session) -> Status {
    LOCI_RETURN_IF_ERROR(session.run("INSERT INTO a VALUES ($1)", {std::int64_t{1'000}}).status());
    return not_found("changed its mind");
  };
  std::vector<Status> said = run_together(*database, {insert(1), refused, insert(2), insert(3)});
  EXPECT_TRUE(said[0].ok() && said[2].ok() && said[3].ok());
  EXPECT_EQ(said[1].code(), StatusCode::kNotFound);
  EXPECT_EQ(sum(), 6);
  // What undoes the whole transaction, as a full disk may: the others are run again.
  const auto undoes_all = [](SqlSession& session) { return session.execute("ROLLBACK"); };
  said = run_together(*database, {insert(10), insert(20), undoes_all, insert(30)});
  EXPECT_TRUE(said[0].ok() && said[1].ok() && said[3].ok());
  EXPECT_FALSE(said[2].ok());
  EXPECT_EQ(sum(), 66);
}

// There are four connections that read: the fifth reading must find one of them.
TEST(SqliteReaders, OneThatThrowsIsGivenBack) {
  const TestFolder folder;
  auto database =
      SqliteDatabase::open(folder.file("store.db"), SqliteDatabase::Mode::kReadWrite, StoreOptions{}).value();
  const auto throws = [](SqlSession& session) -> Status {
    LOCI_RETURN_IF_ERROR(session.run("SELECT COUNT(*) FROM sqlite_schema", {}).status());
    throw std::bad_alloc();
  };
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(database->transact(SqlAccess::kRead, throws).code(), StatusCode::kInternal);
  const auto reads = [](SqlSession& session) {
    return session.run("SELECT COUNT(*) FROM sqlite_schema", {}).status();
  };
  EXPECT_TRUE(database->transact(SqlAccess::kRead, reads).ok()) << "rolled back, and there";
}

TEST(SqliteReaders, OneTenantLeavesSomeToOthers) {
  const TestFolder folder;
  const auto store = SqliteStore::open(folder.file("s.db"), {}).value();
  for (const char* tenant : {"flood", "ann", "bob"})
    ASSERT_TRUE(store->commit_turn(tenant, test_turn("r")).ok());
  SlowReaders slow;
  std::vector<std::thread> threads;
  for (int i = 0; i < 31; ++i)
    threads.emplace_back([&] { EXPECT_TRUE(store->response_json("flood", "r", slow.room()).ok()); });
  while (slow.reading() == 0) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::atomic<bool> other_read = false;
  std::thread other([&] {
    for (const char* tenant : {"ann", "bob"}) EXPECT_TRUE(store->response_json(tenant, "r", {}).ok());
    other_read = true;
  });
  EXPECT_TRUE(eventually([&] { return other_read.load(); })) << "all connections were the flood's";
  slow.go_on();
  other.join();
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(slow.most(), static_cast<int>(SqliteDatabase::kReadersOfOne));
}

// One that throws fails alone, whoever shares its commit, and leaves no transaction open behind it.
TEST(SqliteGroups, OneThatThrowsTakesNothingFromTheOthers) {
  const TestFolder folder;
  auto database =
      SqliteDatabase::open(folder.file("store.db"), SqliteDatabase::Mode::kReadWrite, StoreOptions{}).value();
  const auto make = [](SqlSession& session) { return session.execute("CREATE TABLE a (x INTEGER)"); };
  ASSERT_TRUE(database->transact(SqlAccess::kWrite, make).ok());
  const auto insert = [](SqlSession& session) {
    return session.run("INSERT INTO a VALUES (1)", {}).status();
  };
  const auto throws = [](SqlSession& session) -> Status {
    LOCI_RETURN_IF_ERROR(session.run("INSERT INTO a VALUES (100)", {}).status());
    throw std::bad_alloc();
  };
  const std::vector<Status> said = run_together(*database, {insert, throws, insert});
  EXPECT_TRUE(said[0].ok() && said[2].ok());
  EXPECT_EQ(said[1].code(), StatusCode::kInternal);
  EXPECT_EQ(database->transact(SqlAccess::kUpkeep, throws).code(), StatusCode::kInternal);
  EXPECT_TRUE(database->transact(SqlAccess::kUpkeep, insert).ok());
  std::int64_t sum = 0;
  const auto read = [&sum](SqlSession& session) -> Status {
    LOCI_ASSIGN_OR_RETURN(const SqlRows rows, session.run("SELECT SUM(x) FROM a", {}));
    sum = rows.integer(0, 0);
    return {};
  };
  ASSERT_TRUE(database->transact(SqlAccess::kRead, read).ok());
  EXPECT_EQ(sum, 3);
}

}  // namespace
}  // namespace loci
