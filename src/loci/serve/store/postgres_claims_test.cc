// SPDX-License-Identifier: Apache-2.0
// Turns of many servers in PostgreSQL: who may commit one, and what servers that ended have left.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <pqxx/pqxx>
#include <string>
#include <thread>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/serve/store/postgres_database.h"
#include "loci/serve/store/postgres_store_testing.h"

namespace loci {
namespace {

StoredTurn turn_in(const std::string& conversation, const std::string& id, std::int64_t claim) {
  StoredTurn turn = test_turn(id);
  turn.response.conversation = conversation;
  turn.claim = claim;
  return turn;
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
  EXPECT_EQ(late.code(), StatusCode::kCancelled);
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

}  // namespace
}  // namespace loci
