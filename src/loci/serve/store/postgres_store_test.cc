// SPDX-License-Identifier: Apache-2.0
// What only the store in PostgreSQL has: many servers at once, connections, what it refuses.
#include "loci/serve/store/postgres_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <pqxx/pqxx>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/serve/store/postgres_store_testing.h"

namespace loci {
namespace {

TEST_F(PostgresStoreTest, ManyServersStartAtOnce) {
  std::atomic<int> opened = 0;
  std::vector<std::thread> servers;
  for (int i = 0; i < 6; ++i) {
    servers.emplace_back([&] {
      const auto store = PostgresStore::open(url_, {});
      if (store.ok() && (*store)->size_bytes().ok()) ++opened;
    });
  }
  for (std::thread& server : servers) server.join();
  EXPECT_EQ(opened.load(), 6);
}

// What the eraser reads of a large thread is a part of an index, in its order: no more rows are read than
// taken.
TEST_F(PostgresStoreTest, TheNewestOfAThreadAreReadInAnIndexsOrder) {
  const auto store = open();
  pqxx::connection connection(url_);
  pqxx::nontransaction session(connection);
  session.exec0("SET search_path = loci");
  // Of the ways that an empty table leaves, none is to sort or to go through other threads' rows.
  for (const char* way : {"enable_sort", "enable_seqscan", "enable_bitmapscan"})
    session.exec0(fmt::format("SET {} = off", way));
  for (const auto& [table, key] :
       {std::pair{"items", "item"}, {"responses", "response"}, {"sequences", "sequence"}}) {
    std::string plan;
    for (const pqxx::row& row : session.exec(fmt::format(
             "EXPLAIN SELECT {1}, size_bytes FROM {0} WHERE thread = 1 ORDER BY {1} DESC LIMIT 10", table,
             key)))
      plan += fmt::format("{}\n", row[0].c_str());
    EXPECT_NE(plan.find("Index Cond: (thread = 1)"), std::string::npos) << plan;
    EXPECT_EQ(plan.find("Sort"), std::string::npos) << plan;
  }
}

TEST_F(PostgresStoreTest, TurnsOfManyServersInOneConversationStayWhole) {
  const auto first = open(), second = open();
  ASSERT_TRUE(first->create_conversation("ann", {.id = "c"}, {}).ok());
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      ConversationStore& store = t % 2 == 0 ? *first : *second;
      for (int i = 0; i < 10; ++i) {
        StoredTurn turn = test_turn(fmt::format("r{}_{}", t, i));
        turn.response.conversation = "c";
        const Status status = store.commit_turn("ann", turn);
        if (!status.ok()) ADD_FAILURE() << status.to_string();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto items = first->conversation_history("ann", "c", UINT64_MAX);
  ASSERT_TRUE(items.ok());
  ASSERT_EQ(items->size(), 80u);
  for (std::size_t i = 0; i < items->size(); i += 2) {
    const std::string& id = (*items)[i].id;
    EXPECT_EQ((*items)[i + 1].id, id.substr(0, id.size() - 3) + "_out");
  }
}

// Turns of one tenant too: each connection counts what the tenant has in a row of its own.
TEST_F(PostgresStoreTest, TurnsAreCommittedInParallel) {
  constexpr int kAtOnce = 6;  // as many connections as a tenant may have
  std::atomic<int> inside = 0, most = 0;
  std::atomic<bool> watched = false;
  StoreOptions options;
  options.now_seconds = [&] {  // asked for in the middle of each transaction
    if (!watched) return std::int64_t{1'000};
    const int now = ++inside;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    for (int i = 0; i < 60'000 && most < kAtOnce; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    --inside;
    return std::int64_t{1'000};
  };
  const auto store = open(options);
  ASSERT_TRUE(store->commit_turn("ann", test_turn("first")).ok());
  watched = true;
  std::vector<std::thread> threads;
  for (int t = 0; t < kAtOnce; ++t) {
    threads.emplace_back([&, t] {
      const Status status = store->commit_turn("ann", test_turn(fmt::format("r{}", t)));
      EXPECT_TRUE(status.ok()) << status.to_string();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most, kAtOnce);
  EXPECT_EQ(store->size_bytes().value(), store->stats().value()[0].size_bytes);
}

TEST_F(PostgresStoreTest, OneTenantLeavesConnectionsToOthers) {
  const auto store = open();
  for (const char* tenant : {"flood", "ann"}) ASSERT_TRUE(store->commit_turn(tenant, test_turn("r")).ok());
  SlowReaders slow;
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i)
    threads.emplace_back([&] { EXPECT_TRUE(store->response_json("flood", "r", slow.room()).ok()); });
  EXPECT_TRUE(eventually([&] { return slow.reading() >= 6; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  std::atomic<bool> other_read = false;
  std::thread other([&] { other_read = store->response_json("ann", "r", {}).ok(); });
  EXPECT_TRUE(eventually([&] { return other_read.load(); })) << "all connections were the flood's";
  slow.go_on();
  other.join();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(slow.most(), 6);
}

// What another server is erasing is left to it: who waited for its row would hold a connection and fail.
TEST_F(PostgresStoreTest, WhatAnotherServerErasesIsLeftToIt) {
  StoreQuota quota;
  const auto store = open({.quota_of = [&quota](std::string_view) { return quota; }});
  const StoredItem large = test_item("a", std::string(7'000'000, 'x'));
  ASSERT_TRUE(store->create_conversation("ann", {.id = "c"}, {large}).ok());
  quota.bytes_max = 10'000;
  ASSERT_TRUE(store->create_conversation("ann", {.id = "small"}, {}).ok());
  const auto taken = [&] { return sql("SELECT count(*) FROM loci.threads WHERE tenant = ''"); };
  ASSERT_EQ(taken(), "1");
  pqxx::connection other(url_);
  {
    pqxx::work erases(other);
    erases.exec("SELECT thread FROM loci.threads WHERE tenant = '' FOR UPDATE");
    // (One that waits for the row is refused in the end.)
    const Result<StoreExpiry> expiry = store->expire(0, {});
    ASSERT_TRUE(expiry.ok()) << expiry.status().to_string();
    EXPECT_FALSE(expiry->has_more);
    EXPECT_EQ(taken(), "1");
  }
  ASSERT_TRUE(store->expire(0, {}).ok());
  EXPECT_EQ(taken(), "0");
}

TEST_F(PostgresStoreTest, RefusesWhatItCannotUse) {
  const Status url = PostgresStore::open("postgresql://host/x?no_such=1", {}).status();
  EXPECT_EQ(url.code(), StatusCode::kInvalidArgument) << url.to_string();
  const Status host = PostgresStore::open("postgresql://127.0.0.1:1/x", {}).status();
  EXPECT_EQ(host.code(), StatusCode::kUnavailable) << host.to_string();
  open();
  {
    pqxx::connection connection(url_);
    pqxx::nontransaction(connection).exec("INSERT INTO loci.schema_version VALUES (1000, 0)");
    pqxx::nontransaction(connection)
        .exec("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0");
  }
  const Status newer = PostgresStore::open(url_, {}).status();
  EXPECT_EQ(newer.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(newer.message().find("written by a newer Loci"), std::string::npos) << newer.message();
  std::string latin = url_;
  latin.replace(latin.find("///") + 3, latin.find('?') - latin.find("///") - 3, "latin");
  const Status encoding = PostgresStore::open(latin, {}).status();
  EXPECT_NE(encoding.message().find("found one in LATIN1"), std::string::npos) << encoding.to_string();
}

}  // namespace
}  // namespace loci
