// SPDX-License-Identifier: Apache-2.0
// What only the store in PostgreSQL has: many servers, a server that goes away.
#include "loci/serve/store/postgres_store.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <latch>
#include <pqxx/pqxx>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/serve/store/postgres_database.h"
#include "loci/serve/store/postgres_testing.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

class PostgresStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    server_ = TestPostgres::shared();
    if (server_ == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
    url_ = server_->new_database();
  }
  std::unique_ptr<ConversationStore> open(const StoreOptions& options = {}) {
    auto store = PostgresStore::open(url_, options);
    // (On a busy machine the first answers may outlast a short limit.)
    for (int i = 0; i < 20 && store.status().code() == StatusCode::kUnavailable; ++i)
      store = PostgresStore::open(url_, options);
    EXPECT_TRUE(store.ok()) << store.status().to_string();
    return store.ok() ? std::move(store).value() : nullptr;
  }
  // Runs the statement and returns the first column of its first row.
  std::string sql(const std::string& statement) {
    pqxx::connection connection(url_);
    const pqxx::result found = pqxx::nontransaction(connection).exec(statement);
    return found.empty() ? std::string() : found[0][0].c_str();
  }

  TestPostgres* server_ = nullptr;
  std::string url_;
};

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

StoredTurn turn_in(const std::string& conversation, const std::string& id, std::int64_t claim) {
  StoredTurn turn = test_turn(id);
  turn.response.conversation = conversation;
  turn.claim = claim;
  return turn;
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

TEST_F(PostgresStoreTest, OneServerAtATimeClaimsAConversationsTurn) {
  const auto first = open(), second = open();
  ASSERT_TRUE(first->create_conversation("ann", {.id = "c"}, {}).ok());
  const std::int64_t claim = first->claim_turn("ann", "c").value().value();
  EXPECT_FALSE(second->claim_turn("ann", "c").value().has_value());
  EXPECT_TRUE(second->claim_turn("bob", "c").value().has_value()) << "another tenant's of the same name";
  EXPECT_TRUE(second->claim_turn("ann", "d").value().has_value());
  // The turn's end in the store ends its claim.
  ASSERT_TRUE(first->commit_turn("ann", turn_in("c", "r0", claim)).ok());
  const std::optional<std::int64_t> next = second->claim_turn("ann", "c").value();
  ASSERT_TRUE(next.has_value());
  EXPECT_FALSE(first->claim_turn("ann", "c").value().has_value());
  // A claim that has ended ends no other.
  ASSERT_TRUE(first->release_turn("ann", "c", claim).ok());
  EXPECT_FALSE(first->claim_turn("ann", "c").value().has_value());
  ASSERT_TRUE(second->release_turn("ann", "c", *next).ok());
  EXPECT_TRUE(first->claim_turn("ann", "c").value().has_value());
}

// Another server would not hear of it, and store the response again when it ends.
TEST_F(PostgresStoreTest, AResponseIsDeletedWhereItRuns) {
  auto first = open();
  const auto second = open();
  for (const char* status : {"queued", "in_progress"}) {
    StoredTurn turn = test_turn("r");
    turn.response.status = status;
    ASSERT_TRUE(first->commit_turn("ann", turn).ok());
    const Status refused = second->delete_response("ann", "r");
    EXPECT_EQ(refused.code(), StatusCode::kInvalidArgument) << refused.to_string();
    EXPECT_NE(refused.message().find("runs on another server"), std::string::npos) << refused.message();
    EXPECT_TRUE(second->response("ann", "r").ok());
  }
  EXPECT_TRUE(first->delete_response("ann", "r").ok());
  // One that has ended, whoever made it.
  ASSERT_TRUE(first->commit_turn("ann", test_turn("r")).ok());
  EXPECT_TRUE(second->delete_response("ann", "r").ok());
  // One whose server has ended, which PostgreSQL notices after a moment.
  StoredTurn turn = test_turn("r");
  turn.response.status = "in_progress";
  ASSERT_TRUE(first->commit_turn("ann", turn).ok());
  first.reset();
  EXPECT_TRUE(eventually([&] { return second->delete_response("ann", "r").ok(); }));
  EXPECT_EQ(second->response("ann", "r").status().code(), StatusCode::kNotFound);
}

TEST_F(PostgresStoreTest, AServerThatWasPausedCommitsNothingThatAnotherTookOver) {
  const auto paused = open({.turn_lease = kNanosPerMilli}), other = open();
  ASSERT_TRUE(paused->create_conversation("ann", {.id = "c"}, {}).ok());
  const std::int64_t lost = paused->claim_turn("ann", "c").value().value();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const std::int64_t taken = other->claim_turn("ann", "c").value().value();
  // What the paused server renews is not what it has lost.
  ASSERT_TRUE(paused->renew_claims({lost}).ok());
  const Status late = paused->commit_turn("ann", turn_in("c", "late", lost));
  EXPECT_EQ(late.code(), StatusCode::kUnavailable);
  EXPECT_NE(late.message().find("taken over"), std::string::npos) << late.to_string();
  EXPECT_EQ(other->response("ann", "late").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(other->commit_turn("ann", turn_in("c", "r", taken)).ok());
  EXPECT_FALSE(paused->commit_turn("ann", turn_in("c", "late", lost)).ok()) << "the row is gone by now";
  EXPECT_EQ(other->conversation_history("ann", "c", UINT64_MAX).value().size(), 2u) << "the one turn's items";
  // What it failed to say may still be told of.
  StoredTurn failed = turn_in("c", "late", lost);
  failed.response.status = "failed";
  failed.input.clear();
  failed.output.clear();
  EXPECT_TRUE(paused->commit_turn("ann", failed).ok());
}

TEST_F(PostgresStoreTest, ALeaseThatNobodyTookOverStillCommits) {
  const auto slow = open({.turn_lease = kNanosPerMilli});
  ASSERT_TRUE(slow->create_conversation("ann", {.id = "c"}, {}).ok());
  const std::int64_t claim = slow->claim_turn("ann", "c").value().value();
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(slow->commit_turn("ann", turn_in("c", "r", claim)).ok());
}

TEST_F(PostgresStoreTest, ARenewedLeaseIsNotTakenOver) {
  const auto first = open({.turn_lease = 600 * kNanosPerSecond}), second = open();
  const std::int64_t claim = first->claim_turn("ann", "c").value().value();
  sql("UPDATE loci.turn_claims SET expires_at = 0 WHERE tenant = 'ann'");
  ASSERT_TRUE(first->renew_claims({claim}).ok());
  EXPECT_FALSE(second->claim_turn("ann", "c").value().has_value());
}

// One whose release failed, or whose claim was committed unknown to its server.
TEST_F(PostgresStoreTest, AClaimThatIsNotHeldEndsWithItsLease) {
  const auto first = open({.turn_lease = 600 * kNanosPerSecond}), second = open();
  ASSERT_TRUE(first->claim_turn("ann", "left").value().has_value());
  const std::int64_t held = first->claim_turn("ann", "held").value().value();
  ASSERT_TRUE(first->renew_claims({held}).ok());
  EXPECT_FALSE(second->claim_turn("ann", "left").value().has_value()) << "its lease has not run out";
  sql("UPDATE loci.turn_claims SET expires_at = 0");
  ASSERT_TRUE(first->renew_claims({held}).ok());
  EXPECT_EQ(sql("SELECT string_agg(conversation, ' ') FROM loci.turn_claims"), "held")
      << "the other one's row is gone";
  EXPECT_TRUE(second->claim_turn("ann", "left").value().has_value());
  EXPECT_FALSE(second->claim_turn("ann", "held").value().has_value());
  ASSERT_TRUE(first->renew_claims({}).ok());
  EXPECT_EQ(sql("SELECT count(*) FROM loci.turn_claims"), "2") << "another server's is not first's to clear";
}

TEST_F(PostgresStoreTest, ARowThatIsBeingWrittenKeepsNoOtherFromBeingRenewed) {
  const auto first = open({.lock_timeout = 100 * kNanosPerMilli, .turn_lease = 600 * kNanosPerSecond});
  const auto second = open();
  const std::int64_t busy = first->claim_turn("ann", "busy").value().value();
  const std::int64_t idle = first->claim_turn("ann", "idle").value().value();
  ASSERT_TRUE(first->claim_turn("ann", "left").value().has_value());
  sql("UPDATE loci.turn_claims SET expires_at = 0");
  pqxx::connection connection(url_);
  {
    pqxx::work ending(connection);
    ending.exec("DELETE FROM loci.turn_claims WHERE conversation IN ('busy', 'left')");
    const Status renewed = first->renew_claims({busy, idle});
    EXPECT_TRUE(renewed.ok()) << renewed.to_string();
    ending.commit();
  }
  EXPECT_EQ(sql("SELECT string_agg(conversation, ' ') FROM loci.turn_claims"), "idle");
  EXPECT_FALSE(second->claim_turn("ann", "idle").value().has_value());
}

TEST_F(PostgresStoreTest, RowsThatAreWrittenMeanwhileDoNotStopARenewal) {
  // No conflict is tried again for longer than a moment.
  const auto store = open({.lock_timeout = kNanosPerMilli, .turn_lease = 600 * kNanosPerSecond});
  std::vector<std::int64_t> held;
  for (int i = 0; i < 20; ++i)
    held.push_back(store->claim_turn("ann", fmt::format("c{}", i)).value().value());
  std::atomic<bool> done = false;
  std::thread other([&] {
    pqxx::connection connection(url_);
    while (!done)
      pqxx::nontransaction(connection).exec("UPDATE loci.turn_claims SET expires_at = expires_at + 1");
  });
  int renewals = 0, late = 0;
  while (renewals < 200 && late < 5'000) {
    const Status renewed = store->renew_claims(held);
    // (A millisecond is short for a lock on a busy machine, too.)
    const bool is_late = renewed.message().find("lock timeout") != std::string::npos;
    EXPECT_TRUE(renewed.ok() || is_late) << renewed.to_string();
    if (!renewed.ok() && !is_late) break;
    ++(is_late ? late : renewals);
  }
  done = true;
  other.join();
  EXPECT_EQ(renewals, 200);
}

TEST_F(PostgresStoreTest, TheClaimsOfAServerThatEndedAreFree) {
  auto first = open({.turn_lease = 600 * kNanosPerSecond});
  const auto second = open();
  ASSERT_TRUE(first->claim_turn("ann", "c").value().has_value());
  first.reset();
  // PostgreSQL notices after a moment.
  std::optional<std::int64_t> claim;
  for (int i = 0; i < 3'000 && !claim; ++i) {
    claim = second->claim_turn("ann", "c").value();
    if (!claim) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(claim.has_value());
}

TEST_F(PostgresStoreTest, ARestartOfTheDatabaseEndsNoClaims) {
  const auto first = open({.turn_lease = 600 * kNanosPerSecond});
  const auto second = open({.turn_lease = 600 * kNanosPerSecond});
  const auto brief = open({.turn_lease = kNanosPerMilli});
  ASSERT_TRUE(first->claim_turn("ann", "c").value().has_value());
  server_->kill();
  server_->start();
  // The first one has made no connection since then.
  const Result<std::optional<std::int64_t>> taken = second->claim_turn("ann", "c");
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  EXPECT_FALSE(taken->has_value());
  // To one with a shorter lease the start is long ago.
  const Result<std::optional<std::int64_t>> late = brief->claim_turn("ann", "c");
  ASSERT_TRUE(late.ok()) << late.status().to_string();
  EXPECT_TRUE(late->has_value());
}

TEST_F(PostgresStoreTest, OfManyServersOneAtATimeMakesATurn) {
  const auto first = open(), second = open();
  ASSERT_TRUE(first->create_conversation("ann", {.id = "c"}, {}).ok());
  std::atomic<int> holding = 0, most = 0, committed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      ConversationStore& store = t == 0 ? *first : *second;
      for (int i = 0; i < 20;) {
        const Result<std::optional<std::int64_t>> claim = store.claim_turn("ann", "c");
        ASSERT_TRUE(claim.ok()) << claim.status().to_string();
        if (!*claim) continue;
        most = std::max(most.load(), ++holding);
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        --holding;
        const Status done = store.commit_turn("ann", turn_in("c", fmt::format("r{}_{}", t, i), **claim));
        EXPECT_TRUE(done.ok()) << done.to_string();
        committed += done.ok() ? 1 : 0;
        ++i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(committed, 40);
  EXPECT_EQ(most, 1);
  EXPECT_EQ(first->conversation_history("ann", "c", UINT64_MAX).value().size(), 80u);
}

TEST_F(PostgresStoreTest, OnlyWhatAnEndedServerLeftHasFailed) {
  auto first = open();
  const auto second = open();
  StoredTurn turn = test_turn("r");
  turn.response.status = "in_progress";
  ASSERT_TRUE(first->commit_turn("ann", turn).ok());
  ASSERT_TRUE(second->fail_interrupted({}, {}).ok());
  EXPECT_EQ(second->response("ann", "r")->status, "in_progress");
  first.reset();
  // PostgreSQL notices after a moment.
  for (int i = 0; i < 3'000 && second->response("ann", "r")->status != "failed"; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(second->fail_interrupted({}, {}).ok());
  }
  EXPECT_EQ(second->response("ann", "r")->status, "failed");
}

// While one server looks, in a transaction that goes on, another one sees the same.
TEST_F(PostgresStoreTest, ThoseWhoLookForEndedServersHideNothingFromOneAnother) {
  const auto open_database = [&] {
    return PostgresDatabase::open(url_, {.lock_timeout = 2 * kNanosPerSecond}).value();
  };
  const auto living = open_database(), first = open_database(), second = open_database();
  const auto look = [](PostgresDatabase& database, const std::string& owner, const auto& meanwhile) {
    bool seems = false;
    const Status done = database.transact(SqlAccess::kRead, [&](SqlSession& session) -> Status {
      LOCI_ASSIGN_OR_RETURN(seems, database.seems_ended(session, owner));
      meanwhile();
      return {};
    });
    EXPECT_TRUE(done.ok()) << done.to_string();
    return seems;
  };
  const auto nothing = [] {};
  ASSERT_FALSE(look(*first, living->instance(), nothing));
  const bool seems_to_first =
      look(*first, "7", [&] { EXPECT_TRUE(look(*second, "7", nothing)) << "the first one only looks"; });
  EXPECT_TRUE(seems_to_first);
  EXPECT_TRUE(look(*second, "7", nothing)) << "nothing is left of the look";
}

TEST_F(PostgresStoreTest, WhoIsSaidToHaveEndedCommitsNoMore) {
  const auto silent = open(), other = open();
  StoredTurn turn = test_turn("r");
  turn.response.status = "in_progress";
  ASSERT_TRUE(silent->commit_turn("ann", turn).ok());
  EXPECT_EQ(other->fail_interrupted({other->server(), "7"}, {}).value(), 0u);
  EXPECT_EQ(silent->fail_interrupted({silent->server()}, {}).value(), 0u) << "it knows better of itself";
  const auto unsure = [&](const std::vector<std::string>& seem) {
    EXPECT_EQ(seem, std::vector<std::string>{silent->server()});
    return std::vector<std::string>();
  };
  EXPECT_EQ(other->fail_interrupted({silent->server()}, unsure).value(), 0u);
  EXPECT_EQ(other->fail_interrupted({silent->server()}, {}).value(), 1u);
  EXPECT_EQ(other->response("ann", "r")->status, "failed");
  EXPECT_NE(other->response("ann", "r")->json.find("the server ended before"), std::string::npos);
  turn.response.status = "completed";
  const Status late = silent->commit_turn("ann", turn);
  EXPECT_EQ(late.code(), StatusCode::kInvalidArgument) << late.to_string();
  EXPECT_EQ(other->response("ann", "r")->status, "failed");
}

TEST_F(PostgresStoreTest, ItWorksAgainWhenTheServerIsBack) {
  const auto store = open({.lock_timeout = 200 * kNanosPerMilli});
  ASSERT_TRUE(store->commit_turn("ann", test_turn("r0")).ok());
  server_->kill();
  const Status gone = store->commit_turn("ann", test_turn("r1"));
  EXPECT_EQ(gone.code(), StatusCode::kUnavailable) << gone.to_string();
  EXPECT_EQ(store->response("ann", "r0").status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(PostgresStore::open(url_, {}).status().code(), StatusCode::kUnavailable);
  server_->start();
  EXPECT_TRUE(store->commit_turn("ann", test_turn("r2")).ok());
  EXPECT_TRUE(store->response("ann", "r0").ok());
  // A connection that was lost while nobody used it is made again unnoticed.
  server_->kill();
  server_->start();
  EXPECT_TRUE(store->commit_turn("ann", test_turn("r3")).ok());
}

// It is there, takes what is sent, and does nothing: no connection breaks.
TEST_F(PostgresStoreTest, AServerThatStandsStillHoldsNoCallForLong) {
  const auto store = open({.lock_timeout = 200 * kNanosPerMilli, .answer_timeout = 500 * kNanosPerMilli});
  int turns = 0;
  // A server that goes on may be slow, too, on a busy machine: then the next turn is committed.
  const auto commits = [&] {
    Status status;
    (void)in_one_try(100, [&] {
      status = store->commit_turn("ann", test_turn(fmt::format("r{}", turns++)));
      if (!status.ok()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return status.ok();
    });
    return status;
  };
  const Status first = commits();
  ASSERT_TRUE(first.ok()) << first.to_string();
  const std::string known = fmt::format("r{}", turns - 1);
  server_->pause();
  std::vector<std::thread> threads;
  std::atomic<int> refused = 0, unanswered = 0;
  for (int t = 0; t < 12; ++t) {  // more than there are connections
    threads.emplace_back([&] {
      const Status status = store->response("ann", known).status();
      refused += status.code() == StatusCode::kUnavailable;
      unanswered += status.message().find("has not answered for 500.0 ms") != std::string::npos;
    });
  }
  for (std::thread& thread : threads) thread.join();  // or the test never ends
  EXPECT_EQ(refused, 12);
  EXPECT_GT(unanswered, 0);
  EXPECT_EQ(store->commit_turn("ann", test_turn(fmt::format("r{}", turns++))).code(),
            StatusCode::kUnavailable);
  server_->go_on();
  const Status next = commits();
  EXPECT_TRUE(next.ok()) << next.to_string();
  EXPECT_TRUE(in_one_try(100, [&] { return store->response("ann", known).ok(); }));
}

// Where each call waited for itself, a few dozen requests would hold all threads that serve the store.
TEST_F(PostgresStoreTest, OneCallAtATimeAsksAServerThatStandsStill) {
  using Time = std::chrono::steady_clock;
  const auto store = open({.lock_timeout = 200 * kNanosPerMilli, .answer_timeout = 500 * kNanosPerMilli});
  ASSERT_TRUE(eventually([&] { return store->size_bytes().ok(); }));
  server_->pause();
  // Nobody has had an answer for a second when the first call is given up.
  std::this_thread::sleep_for(std::chrono::milliseconds(700));
  ASSERT_TRUE(eventually(
      [&] { return store->size_bytes().status().message().find("has not answered") != std::string::npos; }));
  std::atomic<int> refused = 0, slow = 0;
  const auto ask_at_once = [&] {
    refused = slow = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 20; ++t) {
      threads.emplace_back([&] {
        const auto begin = Time::now();
        const Status status = store->size_bytes().status();
        EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.to_string();
        refused += status.message().find("another request asks it just now") != std::string::npos;
        slow += Time::now() - begin > std::chrono::milliseconds(400);
      });
    }
    for (std::thread& thread : threads) thread.join();
  };
  // On a busy machine some may begin only after the one that asks has given up: then all ask again.
  const auto most_are_refused = [&] {
    ask_at_once();
    return slow <= 5 && refused >= 15;
  };
  EXPECT_TRUE(in_one_try(10, most_are_refused)) << refused << " were refused at once, " << slow << " waited";
  const auto back = [&] { return store->size_bytes().ok(); };
  server_->go_on();
  EXPECT_TRUE(eventually(back));
  EXPECT_TRUE(store->commit_turn("ann", test_turn("r")).ok());
}

TEST_F(PostgresStoreTest, AStopDoesNotWaitForAServerThatStandsStill) {
  int turns = 0;
  Status status;
  // On a busy machine the call may come only after the stop: then there is another one.
  EXPECT_TRUE(in_one_try(20, [&] {
    const auto store = open();  // its calls wait for half a minute
    const std::string turn = fmt::format("r{}", turns++);
    EXPECT_TRUE(store->commit_turn("ann", test_turn(turn)).ok());
    server_->pause();
    std::thread waiting([&] { status = store->response("ann", turn).status(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    store->abandon();
    waiting.join();
    EXPECT_EQ(store->commit_turn("ann", test_turn("late")).code(), StatusCode::kUnavailable);
    server_->go_on();
    return status.message().find("did not answer before this server stopped waiting") != std::string::npos;
  })) << status.to_string();
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
