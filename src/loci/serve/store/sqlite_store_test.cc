// SPDX-License-Identifier: Apache-2.0
// What only the store in a file has: the file itself, other processes, versions.
#include "loci/serve/store/sqlite_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <array>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/base/folder_testing.h"
#include "loci/serve/store/fault_vfs_testing.h"
#include "loci/serve/store/random_walk_testing.h"
#include "loci/serve/store/schema.h"
#include "loci/serve/store/sqlite_database.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

// Another program's connection to the same file.
class OtherProcess {
 public:
  explicit OtherProcess(const std::string& path) {
    EXPECT_EQ(sqlite3_open(path.c_str(), &handle_), SQLITE_OK);
  }
  ~OtherProcess() { sqlite3_close(handle_); }
  void run(const char* statement) {
    EXPECT_EQ(sqlite3_exec(handle_, statement, nullptr, nullptr, nullptr), SQLITE_OK)
        << sqlite3_errmsg(handle_);
  }
  std::int64_t number(const char* statement) {
    const auto read = [](void* found, int, char** values, char**) {
      *static_cast<std::int64_t*>(found) = std::atoll(values[0]);
      return 0;
    };
    std::int64_t found = -1;
    EXPECT_EQ(sqlite3_exec(handle_, statement, read, &found, nullptr), SQLITE_OK) << sqlite3_errmsg(handle_);
    return found;
  }

 private:
  sqlite3* handle_ = nullptr;
};

std::unique_ptr<ConversationStore> open_ok(const std::string& path, const StoreOptions& options = {}) {
  auto store = SqliteStore::open(path, options);
  EXPECT_TRUE(store.ok()) << store.status().to_string();
  return store.ok() ? std::move(store).value() : nullptr;
}

void expect_refused(const std::string& path, StatusCode code, std::string_view words) {
  const auto store = SqliteStore::open(path, {});
  ASSERT_FALSE(store.ok());
  EXPECT_EQ(store.status().code(), code);
  EXPECT_NE(store.status().message().find(words), std::string::npos) << store.status().message();
}

TEST(SqliteStore, TheFileIsItsOwnersAlone) {
  const TestFolder folder;
  const std::string path = folder.file("new/folder/store.db");
  const auto store = open_ok(path);
  ASSERT_TRUE(store->commit_turn("ann", test_turn("r")).ok());
  for (const char* suffix : {"", "-wal", "-shm"}) {
    struct stat status{};
    ASSERT_EQ(::stat((path + suffix).c_str(), &status), 0) << suffix;
    EXPECT_EQ(status.st_mode & 0777, 0600u) << suffix;
  }
}

TEST(SqliteStore, RefusesWhatIsNoStore) {
  const TestFolder folder;
  std::ofstream(folder.file("text")) << std::string(10'000, 'x');
  expect_refused(folder.file("text"), StatusCode::kDataLoss, "expected a SQLite database");
  OtherProcess(folder.file("other.db")).run("CREATE TABLE items (a)");
  expect_refused(folder.file("other.db"), StatusCode::kInvalidArgument,
                 "a SQLite database of another program");
  expect_refused(folder.file("text") + "/store.db", StatusCode::kUnavailable, "unable to open");
  expect_refused("", StatusCode::kInvalidArgument, "expected a path");
}

TEST(SqliteStore, RefusesANewerVersion) {
  const TestFolder folder;
  open_ok(folder.file("store.db"));
  OtherProcess(folder.file("store.db")).run("INSERT INTO schema_version VALUES (1000, 0)");
  expect_refused(folder.file("store.db"), StatusCode::kInvalidArgument,
                 "its schema has version 1000, written by a newer Loci");
}

TEST(SqliteStore, SaysThatAnotherProcessHoldsTheLock) {
  const TestFolder folder;
  const auto store = open_ok(folder.file("store.db"), {.lock_timeout = 50 * kNanosPerMilli});
  OtherProcess other(folder.file("store.db"));
  other.run("BEGIN IMMEDIATE");
  const Status busy = store->commit_turn("ann", test_turn("r"));
  EXPECT_EQ(busy.code(), StatusCode::kUnavailable);
  EXPECT_NE(busy.message().find("another process holds its lock for more than 50.0 ms"), std::string::npos)
      << busy.message();
  // Reading goes on meanwhile.
  EXPECT_EQ(store->response("ann", "r").status().code(), StatusCode::kNotFound);
  other.run("ROLLBACK");
  EXPECT_TRUE(store->commit_turn("ann", test_turn("r")).ok());
}

TEST(SqliteStore, WhatTenantsHaveIsCountedAnewAtStart) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  std::uint64_t bytes = 0;
  {
    const auto store = open_ok(path);
    for (const char* tenant : {"ann", "bob"}) ASSERT_TRUE(store->commit_turn(tenant, test_turn("r")).ok());
    bytes = store->size_bytes().value();
  }
  OtherProcess(path).run(
      "UPDATE tenant_usage SET size_bytes = size_bytes + 5000 WHERE tenant = 'ann';"
      "DELETE FROM tenant_usage WHERE tenant = 'bob';"
      "INSERT INTO tenant_usage VALUES ('gone', 0, 3, 70000)");
  const auto store = open_ok(path);
  ASSERT_NE(store->size_bytes().value(), bytes);
  EXPECT_EQ(store->recount_usage().value(), 3u);
  EXPECT_EQ(store->size_bytes().value(), bytes);
  EXPECT_EQ(store->recount_usage().value(), 0u);
  const Result<std::vector<TenantStats>> stats = store->stats();
  ASSERT_TRUE(stats.ok());
  EXPECT_EQ(stats->size(), 2u);
}

// Whoever changes the file by hand does not count them.
TEST(SqliteStore, AConversationHasNoFewerItemsThanNone) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  const auto store = open_ok(path);
  ASSERT_TRUE(store->create_conversation("ann", {.id = "c"}, {test_item("i", "x")}).ok());
  OtherProcess(path).run("UPDATE conversations SET items = -3");
  EXPECT_EQ(store->conversations("ann", "", 10)->conversations.at(0).items, 0u);
}

// A page of the list must not read gigabytes.
TEST(SqliteStore, ListsDoNotCarryLargeItems) {
  const TestFolder folder;
  const auto store = open_ok(folder.file("store.db"));
  const std::string large = R"({"text":")" + std::string(kFirstItemBytesMax, 'x') + R"("})";
  ASSERT_TRUE(
      store->create_conversation("ann", {.id = "c"}, {{"a", large}, {"b", R"({"text":"small"})"}}).ok());
  const ConversationList list = store->conversations("ann", "", 10).value();
  ASSERT_EQ(list.conversations.size(), 1u);
  ASSERT_EQ(list.conversations[0].first.size(), 2u);
  EXPECT_EQ(list.conversations[0].first[0].id, "a");
  EXPECT_EQ(list.conversations[0].first[0].json, "");
  EXPECT_EQ(list.conversations[0].first[1].json, R"({"text":"small"})");
}

TEST(SqliteStore, ADamagedFileIsSaidToBe) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  {
    const auto store = open_ok(path);
    for (int i = 0; i < 200; ++i) {
      StoredTurn turn = test_turn(fmt::format("r{}", i));
      turn.response.json = std::string(2'000, 'x');
      ASSERT_TRUE(store->commit_turn("ann", turn).ok());
    }
  }
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(8'192);
  file << std::string(200'000, '\x5a');
  file.close();
  const auto store = SqliteStore::open(path, {});
  Status status = store.status();
  for (int i = 0; i < 200 && status.ok(); ++i)
    status = (*store)->response("ann", fmt::format("r{}", i)).status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss) << status.to_string();
}

TEST(SqliteStore, WhatADamagedFileLacksIsTold) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  {
    const auto store = open_ok(path);
    for (int i = 0; i < 40; ++i)
      ASSERT_TRUE(store->commit_turn("ann", test_turn(fmt::format("r{}", i))).ok());
  }
  const auto pages = static_cast<std::streamoff>(std::filesystem::file_size(path) / 4'096);
  std::string whole(static_cast<std::size_t>(pages) * 4'096, ' ');
  std::ifstream(path, std::ios::binary).read(whole.data(), static_cast<std::streamsize>(whole.size()));
  for (std::streamoff page = 2; page < pages; page += 3) {
    std::string damaged = whole;
    damaged.replace(static_cast<std::size_t>(page) * 4'096, 4'096, 4'096, '\xaa');
    std::ofstream(path, std::ios::binary | std::ios::trunc) << damaged;
    auto database = SqliteDatabase::open(path, SqliteDatabase::Mode::kReadOnly, {});
    if (!database.ok()) continue;  // it says so itself
    const Result<std::string> found = (*database)->integrity_check();
    ASSERT_TRUE(found.ok()) << found.status().to_string();
    EXPECT_NE(*found, "ok") << page;
    EXPECT_NE(*found, "") << page;
  }
}

// Nothing would find what is committed there.
TEST(SqliteStore, NothingIsCommittedToAFileThatHasLeftItsPlace) {
  const TestFolder folder;
  const std::string path = folder.file("store.db"), aside = folder.file("aside.db");
  const auto store = open_ok(path);
  ASSERT_TRUE(store->commit_turn("ann", test_turn("r1")).ok());
  std::filesystem::rename(path, aside);
  const auto refused = [&] {
    const Status status = store->commit_turn("ann", test_turn("r2"));
    return status.code() == StatusCode::kUnavailable &&
           status.message().find("moved or deleted") != std::string::npos;
  };
  EXPECT_TRUE(refused());
  std::filesystem::copy_file(aside, path);
  EXPECT_TRUE(refused()) << "a copy is another file";
  std::filesystem::rename(aside, path);
  EXPECT_TRUE(store->commit_turn("ann", test_turn("r2")).ok()) << "it is back";
  std::filesystem::remove(path);
  EXPECT_TRUE(refused());
}

// The file is there; the one beside it that readers share cannot be made.
TEST(SqliteStore, AnErrorOfTheDiskHasTheSystemsReason) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  open_ok(path).reset();
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto signalled = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{.rlim_cur = 4'096, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status status = SqliteStore::open(path, {}).status();
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, signalled);
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("File too large"), std::string::npos) << status.to_string();
}

TEST(SqliteStore, SpaceComesBackWithExpiry) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  const auto store = open_ok(path);
  StoredTurn turn = test_turn("r");
  turn.response.json = std::string(4 << 20, 'x');
  ASSERT_TRUE(store->commit_turn("ann", turn).ok());
  EXPECT_EQ(store->expire(1LL << 40, {.age_seconds_max = 1, .bytes_max = {}}).value().gone, 1u);
  OtherProcess(path).run("PRAGMA wal_checkpoint(TRUNCATE)");
  EXPECT_LT(std::filesystem::file_size(path), 200'000u);
}

// Sizes and items are counted as rows come and go, never by a look at all rows; so they must stay exact.
TEST(SqliteStore, CountsAreThoseOfTheRows) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    const TestFolder folder;
    const std::string path = folder.file("store.db");
    StoreWalk walk(WalkKind::kAll, seed);
    StoreOptions options;
    options.now_seconds = [&walk] { return walk.now(); };
    const auto store = open_ok(path, options);
    OtherProcess other(path);
    for (int i = 0; i < 300; ++i) {
      const StoreOperation operation = walk.next();
      operation.run(*store);
      ASSERT_EQ(other.number("SELECT COUNT(*) FROM threads WHERE size_bytes <> 64 + "
                             "(SELECT TOTAL(size_bytes) FROM conversations WHERE thread = threads.thread) + "
                             "(SELECT TOTAL(size_bytes) FROM responses WHERE thread = threads.thread) + "
                             "(SELECT TOTAL(size_bytes) FROM sequences WHERE thread = threads.thread) + "
                             "(SELECT TOTAL(size_bytes) FROM items WHERE thread = threads.thread)"),
                0)
          << "seed " << seed << ", step " << i << ": " << operation.name;
      ASSERT_EQ(
          other.number("SELECT COUNT(*) FROM conversations WHERE tenant <> '' AND items <> (SELECT COUNT(*) "
                       "FROM items WHERE items.conversation = conversations.conversation)"),
          0)
          << "seed " << seed << ", step " << i << ": " << operation.name;
    }
  }
}

// 15 MB, of which nothing is in the cache when one item goes.
TEST(SqliteStore, ADeletionReadsNoMoreThanItDeletes) {
  FaultDisk disk(1);
  const StoreOptions options{.sqlite_vfs = disk.vfs_name()};
  std::vector<StoredItem> items;
  for (int i = 0; i < 5'000; ++i) items.push_back(test_item(fmt::format("i{}", i), std::string(3'000, 'x')));
  ASSERT_TRUE(open_ok("store.db", options)->create_conversation("ann", {.id = "c"}, items).ok());
  const auto store = open_ok("store.db", options);
  const std::uint64_t before = disk.reads();
  ASSERT_TRUE(store->delete_item("ann", "c", "i2500").ok());
  EXPECT_LT(disk.reads() - before, 200u);
  EXPECT_EQ(store->recount_usage().value(), 0u);
}

bool is_in_files(const std::string& path, std::string_view text) {
  for (const char* suffix : {"", "-wal"}) {
    std::ifstream file(path + suffix, std::ios::binary);
    const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    if (bytes.find(text) != std::string::npos) return true;
  }
  return false;
}

TEST(SqliteStore, NothingOfADeletedConversationIsInTheFiles) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  const auto store = open_ok(path);
  ASSERT_TRUE(store->create_conversation("ann", {.id = "c"}, {test_item("a", "a purple elephant")}).ok());
  ASSERT_TRUE(store->create_conversation("ann", {.id = "d"}, {test_item("b", "a green giraffe")}).ok());
  for (int i = 0; i < 20; ++i) {
    StoredTurn turn = test_turn(fmt::format("r{}", i));
    turn.response.conversation = "c";
    turn.response.json = "a purple elephant " + std::string(i * 1000, 'x');  // overflow pages too
    ASSERT_TRUE(store->commit_turn("ann", turn).ok());
  }
  ASSERT_TRUE(is_in_files(path, "a purple elephant"));
  ASSERT_TRUE(store->delete_conversation("ann", "c").ok());
  EXPECT_FALSE(is_in_files(path, "a purple elephant"));
  EXPECT_TRUE(is_in_files(path, "a green giraffe"));
}

TEST(SqliteStore, NothingOfALargeDeletedConversationIsInTheFiles) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  const auto store = open_ok(path);
  ASSERT_TRUE(store->create_conversation("ann", {.id = "c"}, {}).ok());
  for (int i = 0; i < 12; ++i) {
    const std::string text = "a purple elephant " + std::string(1 << 20, 'x');
    ASSERT_TRUE(store->add_items("ann", "c", {test_item(fmt::format("i{}", i), text)}).ok());
  }
  ASSERT_TRUE(is_in_files(path, "a purple elephant"));
  ASSERT_TRUE(store->delete_conversation("ann", "c").ok());
  EXPECT_FALSE(is_in_files(path, "a purple elephant"));
}

// (In PostgreSQL nobody waits for others.)
TEST(SqliteStore, OthersCommitWhileALargeConversationIsErased) {
  const TestFolder folder;
  const auto store = open_ok(folder.file("store.db"));
  const auto make_large = [&] {
    ASSERT_TRUE(store->create_conversation("ann", {.id = "c"}, {}).ok());
    for (int i = 0; i < 60; ++i) {
      const StoredItem item = test_item(fmt::format("i{}", i), std::string(1 << 20, 'x'));
      ASSERT_TRUE(store->add_items("ann", "c", {item}).ok());
    }
  };
  std::atomic<bool> ends = false;
  std::atomic<int> committed = 0;
  std::thread bob([&] {
    for (int i = 0; !ends; ++i) {
      EXPECT_TRUE(store->commit_turn("bob", test_turn(fmt::format("r{}", i))).ok());
      ++committed;
    }
  });
  while (committed == 0) std::this_thread::yield();
  // On a busy machine the other's thread may stand still meanwhile: then another one is erased.
  EXPECT_TRUE(in_one_try(10, [&] {
    make_large();
    const int before = committed;
    EXPECT_TRUE(store->delete_conversation("ann", "c").ok());
    return committed - before >= 5;
  })) << "five: one between two parts, of which there are twenty";
  ends = true;
  bob.join();
}

// Another program that reads holds up the log, not the deletion.
TEST(SqliteStore, WhatIsDeletedWhileAnotherReadsGoesWithTheNextExpiry) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  const auto store = open_ok(path);
  ASSERT_TRUE(store->create_conversation("ann", {.id = "c"}, {test_item("a", "a purple elephant")}).ok());
  {
    OtherProcess reader(path);
    reader.run("BEGIN; SELECT COUNT(*) FROM items;");
    ASSERT_TRUE(store->delete_conversation("ann", "c").ok());
    EXPECT_EQ(store->conversation("ann", "c").status().code(), StatusCode::kNotFound);
    EXPECT_TRUE(is_in_files(path, "a purple elephant"));
  }
  ASSERT_TRUE(store->expire(0, {}).ok());
  EXPECT_FALSE(is_in_files(path, "a purple elephant"));
}

// What a store of the version before holds is counted when it is opened.
TEST(Migrations, WhatTenantsHaveIsCounted) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  {
    auto database = SqliteDatabase::open(path, SqliteDatabase::Mode::kReadWrite, StoreOptions{}).value();
    ASSERT_TRUE(migrate(*database, store_migrations().first(2), 1).ok());
  }
  OtherProcess(path).run(
      "INSERT INTO threads (tenant, active_at, size_bytes) VALUES ('ann', 1, 100), ('ann', 2, 50), ('bob', "
      "1, 7)");
  const auto store = open_ok(path);
  EXPECT_EQ(store->size_bytes().value(), 157u);
  EXPECT_EQ(schema_version(*SqliteDatabase::open(path, SqliteDatabase::Mode::kReadOnly, {}).value()).value(),
            store_migrations().back().version);
}

TEST(Migrations, ItemsOfConversationsAreCounted) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  {
    auto database = SqliteDatabase::open(path, SqliteDatabase::Mode::kReadWrite, StoreOptions{}).value();
    ASSERT_TRUE(migrate(*database, store_migrations().first(5), 1).ok());
  }
  OtherProcess(path).run(
      "INSERT INTO threads (thread, tenant, active_at, size_bytes) VALUES (1, 'ann', 1, 500);"
      "INSERT INTO conversations (conversation, thread, tenant, id, created_at, metadata, size_bytes) VALUES "
      "(7, 1, 'ann', 'c', 1, '{}', 70);"
      "INSERT INTO items (thread, conversation, response, part, id, json, size_bytes) VALUES "
      "(1, 7, NULL, 0, 'i1', '{}', 70), (1, 7, NULL, 0, 'i2', '{}', 70), (1, NULL, NULL, 0, 'i3', '{}', 70)");
  const auto list = open_ok(path)->conversations("ann", "", 5);
  ASSERT_TRUE(list.ok()) << list.status().to_string();
  ASSERT_EQ(list->conversations.size(), 1u);
  EXPECT_EQ(list->conversations[0].items, 2u);
}

// The first start of this version, with a wrong clock: the latest activity tells about when it is.
TEST(Migrations, AStoreOfTheVersionBeforeIsNotExpiredByAClockThatIsYearsAhead) {
  const TestFolder folder;
  const std::string path = folder.file("store.db");
  {
    auto database = SqliteDatabase::open(path, SqliteDatabase::Mode::kReadWrite, StoreOptions{}).value();
    ASSERT_TRUE(migrate(*database, store_migrations().first(6), 1).ok());
  }
  OtherProcess(path).run(
      "INSERT INTO threads (tenant, active_at, size_bytes) VALUES ('ann', 7, 1), ('ann', 5, 1)");
  const ExpiryTime time = open_ok(path)->expiry_time(86'400).value();
  EXPECT_TRUE(time.is_doubted);
  EXPECT_EQ(time.now_seconds, 7);
}

TEST(Migrations, AreAppliedOneByOneWhole) {
  const TestFolder folder;
  auto database =
      SqliteDatabase::open(folder.file("store.db"), SqliteDatabase::Mode::kReadWrite, StoreOptions{}).value();
  const std::array one = {Migration{.version = 1, .statements = "CREATE TABLE a (x {int}){strict};"}};
  ASSERT_TRUE(migrate(*database, one, 7).ok());
  EXPECT_EQ(schema_version(*database).value(), 1);
  // The third fails in its middle: the second stands, nothing of the third does.
  const std::array three = {
      one[0], Migration{.version = 2, .statements = "CREATE TABLE b (x {int}); INSERT INTO b VALUES (5);"},
      Migration{.version = 3, .statements = "CREATE TABLE c (x {int}); CREATE TABLE a (x {int});"}};
  EXPECT_FALSE(migrate(*database, three, 8).ok());
  EXPECT_EQ(schema_version(*database).value(), 2);
  const auto tables = [&] {
    std::string names;
    EXPECT_TRUE(database
                    ->transact(SqlAccess::kRead,
                               [&](SqlSession& session) -> Status {
                                 LOCI_ASSIGN_OR_RETURN(
                                     const SqlRows rows,
                                     session.run("SELECT name FROM sqlite_schema WHERE type = 'table' "
                                                 "AND name != 'schema_version' ORDER BY name",
                                                 {}));
                                 for (std::size_t i = 0; i < rows.size(); ++i) names += rows.text(i, 0);
                                 return {};
                               })
                    .ok());
    return names;
  };
  EXPECT_EQ(tables(), "ab");
  const std::array mended = {three[0], three[1],
                             Migration{.version = 3, .statements = "CREATE TABLE c (x {int});"}};
  ASSERT_TRUE(migrate(*database, mended, 9).ok());
  EXPECT_EQ(tables(), "abc");
  EXPECT_EQ(migrate(*database, one, 9).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace loci
