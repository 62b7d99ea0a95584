// SPDX-License-Identifier: Apache-2.0
// What goes when time, space or a tenant's quota is over; and what tenants see of one another. On every kind
// of store.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "loci/base/units.h"
#include "loci/serve/store/store_contract_testing.h"
#include "loci/serve/store/stored_text.h"

namespace loci {
namespace {

class StoreLimitContract : public StoreContract {};

TEST_P(StoreLimitContract, TenantsSeeNothingOfOneAnother) {
  create("c", {test_item("a")});
  commit(test_turn("r"));
  for (const char* other : {"bob", "", "ann ", "ANN"}) {
    EXPECT_EQ(store_->conversation(other, "c").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->set_metadata(other, "c", "{}").code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->conversation_items(other, "c", {}).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->conversation_item(other, "c", "a", {}).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->conversation_history(other, "c", UINT64_MAX).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->add_items(other, "c", {test_item("b")}).code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->delete_item(other, "c", "a").code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->delete_conversation(other, "c").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->response(other, "r").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->input_items(other, "r", {}).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->response_history(other, "r", UINT64_MAX).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->delete_response(other, "r").code(), StatusCode::kNotFound);
  }
  StoredTurn turn = test_turn("r2");
  turn.response.previous = "r";
  EXPECT_EQ(store_->commit_turn("bob", turn).code(), StatusCode::kNotFound);
  turn.response.previous = "";
  turn.response.conversation = "c";
  EXPECT_EQ(store_->commit_turn("bob", turn).code(), StatusCode::kNotFound);
  // The same ids are another's own.
  ASSERT_TRUE(store_->create_conversation("bob", {.id = "c"}, {}).ok());
  ASSERT_TRUE(store_->commit_turn("bob", test_turn("r")).ok());
  EXPECT_EQ(conversation_history("c"), "a");
}

TEST_P(StoreLimitContract, WhatIsAtRestForTooLongGoesWhole) {
  now_ = 100;
  create("old", {test_item("a")});
  commit(test_turn("r0"));
  StoredTurn turn = test_turn("r1");
  turn.response.previous = "r0";
  now_ = 200;
  commit(turn);
  create("new");
  EXPECT_EQ(store_->expire(200, {.age_seconds_max = 100}).value().gone, 0u);
  EXPECT_EQ(store_->expire(201, {.age_seconds_max = 100}).value().gone, 1u);
  EXPECT_EQ(store_->conversation(kTenant, "old").status().code(), StatusCode::kNotFound);
  // The chain was active with its last turn.
  EXPECT_EQ(history("r1"), "r0_in r0_out r1_in r1_out");
  EXPECT_EQ(store_->expire(301, {.age_seconds_max = 100}).value().gone, 3u);
  EXPECT_EQ(store_->size_bytes().value(), 0u);
  EXPECT_EQ(store_->stats()->size(), 0u);
}

// What was believed is in the store: a start does not forget it.
TEST_P(StoreLimitContract, AClockThatJumpsAheadIsNotBelieved) {
  constexpr std::int64_t kOneDay = 86'400, kMonth = 30 * kOneDay;
  now_ = 1'000 * kOneDay;
  create("c");
  EXPECT_EQ(store_->expiry_time(kMonth)->now_seconds, now_);
  const std::int64_t before = now_;
  now_ = before + 3'650 * kOneDay;
  for (const bool is_new_start : {false, true}) {
    if (is_new_start) reopen();
    const ExpiryTime time = store_->expiry_time(kMonth).value();
    EXPECT_TRUE(time.is_doubted) << is_new_start;
    EXPECT_EQ(time.now_seconds, before) << is_new_start;
    EXPECT_EQ(store_->expire(time.now_seconds, {.age_seconds_max = kMonth})->gone, 0u);
  }
  now_ = before + 3'600;
  const ExpiryTime right = store_->expiry_time(kMonth).value();
  EXPECT_FALSE(right.is_doubted);
  EXPECT_EQ(right.now_seconds, now_);
}

TEST_P(StoreLimitContract, TheOldestOfTooMuchGoes) {
  for (int i = 0; i < 400; ++i) {
    now_ = 1'000 + i;
    commit(test_turn(fmt::format("r{:03}", i)));
  }
  const std::uint64_t all = store_->size_bytes().value();
  std::uint64_t gone = 0, calls = 0;
  const StoreLimits limits{.bytes_max = all / 4};
  while (const std::uint64_t deleted = store_->expire(2'000, limits).value().gone) {
    gone += deleted;
    ++calls;
  }
  EXPECT_GE(calls, 2u);  // a bounded part each
  EXPECT_EQ(gone, 300u);
  EXPECT_LE(store_->size_bytes().value(), all / 4);
  EXPECT_EQ(history("r299"), "there is no response 'r299'");
  EXPECT_EQ(history("r300"), "r300_in r300_out");
}

// A tenant that floods the store loses its own: the one that was there first keeps all.
TEST_P(StoreLimitContract, TooMuchIsTakenFromWhoHasMoreThanItsShare) {
  for (int i = 0; i < 20; ++i) {
    now_ = 1'000 + i;
    ASSERT_TRUE(store_->commit_turn("bob", test_turn(fmt::format("r{:03}", i))).ok());
  }
  const std::uint64_t of_bob = store_->size_bytes().value();
  for (int i = 0; i < 100; ++i) {
    now_ = 2'000 + i;
    commit(test_turn(fmt::format("r{:03}", i)));
  }
  while (store_->expire(3'000, {.age_seconds_max = {}, .bytes_max = 3 * of_bob}).value().gone > 0) {
  }
  const auto stats = store_->stats().value();
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_EQ(stats[0].responses, 40u);  // ann's: what bob leaves
  EXPECT_EQ(stats[1].responses, 20u);
  EXPECT_EQ(history("r059"), "there is no response 'r059'");
  EXPECT_EQ(history("r060"), "r060_in r060_out");
  // Where both have more than half, both give; bob's oldest and ann's.
  while (store_->expire(3'000, {.age_seconds_max = {}, .bytes_max = of_bob}).value().gone > 0) {
  }
  EXPECT_EQ(store_->stats().value()[0].responses, 10u);
  EXPECT_EQ(store_->stats().value()[1].responses, 10u);
}

TEST_P(StoreLimitContract, AWriteOverTheQuotaTakesTheTenantsOldest) {
  ASSERT_TRUE(store_->commit_turn("bob", test_turn("r000")).ok());
  commit(test_turn("r000"));
  const std::uint64_t of_one = store_->size_bytes().value() / 2;
  quota_ = {.bytes_max = 10 * of_one + 1, .threads_max = {}};
  for (int i = 1; i < 30; ++i) {
    now_ = 20'000 + i;
    commit(test_turn(fmt::format("r{:03}", i)));
    ASSERT_LE(store_->size_bytes().value(), 11 * of_one + 1) << "at once, not at the next expiry";
  }
  EXPECT_EQ(history("r019"), "there is no response 'r019'");
  EXPECT_EQ(history("r020"), "r020_in r020_out");
  EXPECT_EQ(made_room_, 20u) << "nothing goes without being told";
  quota_ = {.bytes_max = {}, .threads_max = 3};
  now_ = 30'000;
  create("c", {test_item("a")});
  EXPECT_EQ(store_->stats().value()[0].responses, 2u);
  // The one that is written to stays, however old.
  for (int i = 0; i < 5; ++i)
    ASSERT_TRUE(store_->add_items(kTenant, "c", {test_item(fmt::format("m{}", i))}).ok());
  EXPECT_EQ(conversation_history("c"), "a m0 m1 m2 m3 m4");
  EXPECT_TRUE(store_->response("bob", "r000").ok());
}

TEST_P(StoreLimitContract, AHistoryIsCountedBeforeItIsRead) {
  const std::string text(10'000, 'x');
  create("c", {test_item("a", text), test_item("b", text)});
  const std::uint64_t bytes = 2 * (64 + 1 + test_item("a", text).json.size());
  EXPECT_TRUE(store_->conversation_history(kTenant, "c", bytes).ok());
  const Status status = store_->conversation_history(kTenant, "c", bytes - 1).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.to_string();
  EXPECT_EQ(status.message(), fmt::format("expected items that take at most {} bytes in the store, found {}",
                                          format_count(bytes - 1), format_count(bytes)));
  // What else is kept with the conversation is no part of its history.
  StoredTurn turn = test_turn("r");
  turn.response.conversation = "c";
  turn.response.json = text;
  commit(turn);
  EXPECT_TRUE(store_->conversation_history(kTenant, "c", bytes + 1'000).ok());

  commit(test_turn("r0"));
  turn = test_turn("r1");
  turn.response.previous = "r0";
  turn.input = {test_item("r1_in", text)};
  commit(turn);
  EXPECT_TRUE(store_->response_history(kTenant, "r1", 12'000).ok());
  EXPECT_EQ(store_->response_history(kTenant, "r1", 10'000).status().code(), StatusCode::kResourceExhausted);
}

TEST_P(StoreLimitContract, AConversationLargerThanTheQuotaIsRefused) {
  create("c", {test_item("a")});
  quota_ = {.bytes_max = 10'000, .threads_max = {}};
  const Status status = store_->add_items(kTenant, "c", {test_item("b", std::string(10'000, 'x'))});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
  EXPECT_NE(status.message().find("this tenant may store 9.8 KiB (stored_bytes)"), std::string::npos)
      << status.message();
  EXPECT_EQ(conversation_history("c"), "a");
  StoredTurn turn = test_turn("r");
  turn.response.json = std::string(10'000, 'x');
  EXPECT_EQ(store_->commit_turn(kTenant, turn).code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(store_->commit_turn("bob", turn).ok());
  EXPECT_EQ(conversation_history("c"), "a") << "what was refused has taken nothing with it";
}

// A quota that was made smaller takes what is beyond at the next expiry.
TEST_P(StoreLimitContract, ExpiryHoldsTheQuota) {
  for (int i = 0; i < 40; ++i) {
    now_ = 20'000 + i;
    commit(test_turn(fmt::format("r{:03}", i)));
  }
  ASSERT_TRUE(store_->commit_turn("bob", test_turn("r000")).ok());
  quota_ = {.bytes_max = {}, .threads_max = 7};
  while (store_->expire(30'000, {}).value().gone > 0) {
  }
  EXPECT_EQ(store_->stats().value()[0].responses, 7u);
  EXPECT_EQ(store_->stats().value()[1].responses, 1u);
  EXPECT_EQ(history("r033"), "r033_in r033_out");
}

// Of a conversation with its responses, and of a chain of them; both have some megabytes.
TEST_P(StoreLimitContract, WhatIsLargeIsGoneAtOnceAndErasedLater) {
  const std::string large(1 << 20, 'x');
  create("c", {test_item("a")});
  for (int i = 0; i < 6; ++i) {
    StoredTurn said = test_turn(fmt::format("c{}", i));
    said.response.conversation = "c";
    said.response.json = large;
    commit(said);
    StoredTurn chained = test_turn(fmt::format("r{}", i));
    if (i > 0) chained.response.previous = fmt::format("r{}", i - 1);
    chained.input.front().json = large;
    commit(chained);
  }
  StoredTurn running = test_turn("running");
  running.response.previous = "r5";
  running.response.status = "in_progress";
  commit(running);
  now_ = 20'000;
  quota_ = {.bytes_max = 1 << 20, .threads_max = {}};
  create("new", {test_item("b")});
  EXPECT_EQ(made_room_, 7u) << "a large one makes room alone";
  EXPECT_EQ(conversation_history("c"), "there is no conversation 'c'");
  create("c", {test_item("a")});
  EXPECT_EQ(made_room_, 14u);
  for (const char* id : {"c5", "r0", "r5", "running"})
    EXPECT_EQ(history(id), fmt::format("there is no response '{}'", id));
  const auto check = [&] {
    EXPECT_LT(store_->size_bytes().value(), 10'000u);
    const TenantStats stats = store_->stats().value().at(0);
    EXPECT_EQ(stats.conversations, 2u);
    EXPECT_EQ(stats.responses, 0u);
    EXPECT_EQ(stats.items, 2u);
    EXPECT_EQ(store_->recount_usage().value(), 0u);
    EXPECT_EQ(conversation_history("c"), "a");
  };
  check();
  // What was running ends, and is a response like one whose conversation was deleted meanwhile.
  running.response.status = "completed";
  running.response.previous = "";
  commit(running);
  EXPECT_EQ(history("running"), "running_in running_out");
  ASSERT_TRUE(store_->delete_response(kTenant, "running").ok());
  reopen();
  check();
  quota_ = {};
  for (bool has_more = true; has_more;) {
    const Result<StoreExpiry> expiry = store_->expire(20'000, {});
    ASSERT_TRUE(expiry.ok()) << expiry.status().to_string();
    EXPECT_EQ(expiry->gone, 0u) << "it was counted when it went";
    has_more = expiry->has_more;
    check();
  }
  commit(test_turn("r5"));
  EXPECT_EQ(history("r5"), "r5_in r5_out") << "its row is gone, and its name free";
}

// Others' turns wait for such a transaction, and its log for room on the disk.
TEST_P(StoreLimitContract, LargeConversationsExpireInSmallTransactions) {
  const std::string large(3 << 20, 'x');
  for (int i = 0; i < 20; ++i) create(fmt::format("c{}", i), {test_item("a", large)});
  EXPECT_EQ(store_->expire(1 << 30, {.age_seconds_max = 1}).value().gone, 8u) << "one in each of eight";
  now_ = 20'000;
  quota_ = {.bytes_max = 1 << 20, .threads_max = {}};
  create("small", {test_item("a")});
  EXPECT_EQ(made_room_, 1u);
  EXPECT_EQ(store_->stats().value()[0].conversations, 12u);
}

TEST_P(StoreLimitContract, StatsTellEachTenant) {
  create("c", {test_item("a")});
  now_ = 20'000;
  commit(test_turn("r"));
  ASSERT_TRUE(store_->commit_turn("bob", test_turn("r")).ok());
  const auto stats = store_->stats();
  ASSERT_TRUE(stats.ok()) << stats.status().to_string();
  ASSERT_EQ(stats->size(), 2u);
  const TenantStats& ann = (*stats)[0];
  EXPECT_EQ(ann.tenant, "ann");
  EXPECT_EQ(ann.conversations, 1u);
  EXPECT_EQ(ann.responses, 1u);
  EXPECT_EQ(ann.items, 3u);
  EXPECT_EQ(ann.oldest_active_at, 10'000);
  EXPECT_EQ(ann.newest_active_at, 20'000);
  EXPECT_EQ((*stats)[0].size_bytes + (*stats)[1].size_bytes, store_->size_bytes().value());
  ASSERT_TRUE(store_->delete_item(kTenant, "c", "a").ok());
  EXPECT_EQ(store_->stats().value()[0].size_bytes + (*stats)[1].size_bytes, store_->size_bytes().value());
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreLimitContract, testing::Values(StoreKind::kSqlite, StoreKind::kPostgres),
                         [](const auto& kind) { return testing::PrintToString(kind.param); });

}  // namespace
}  // namespace loci
