// SPDX-License-Identifier: Apache-2.0
// A turn is claimed, committed, kept and replaced. On every kind of store.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "loci/serve/store/store_contract_testing.h"
#include "loci/serve/store/stored_text.h"

// libpqxx 6.4 forgets the last result of a connection that was lost: one test's server dies.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libpqxx\n"; }

namespace loci {
namespace {

class StoreTurnContract : public StoreContract {};

TEST_P(StoreTurnContract, ATurnIsClaimedAndItsCommitEndsTheClaim) {
  create("c");
  for (const char* id : {"r0", "r1"}) {
    const auto claim = store_->claim_turn(kTenant, "c");
    ASSERT_TRUE(claim.ok()) << claim.status().to_string();
    ASSERT_TRUE(claim->has_value());
    StoredTurn turn = test_turn(id);
    turn.response.conversation = "c";
    turn.claim = **claim;
    commit(turn);
    EXPECT_TRUE(store_->renew_claims({**claim}).ok());
    EXPECT_TRUE(store_->release_turn(kTenant, "c", **claim).ok());
  }
}

TEST_P(StoreTurnContract, ATurnIsThereAfterReopening) {
  StoredTurn turn = test_turn("resp_1");
  turn.response.json = R"({"id":"resp_1","text":"naïve \u0000 😀"})";
  commit(turn);
  reopen();
  const auto found = store_->response(kTenant, "resp_1");
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->json, turn.response.json);
  EXPECT_EQ(found->status, "completed");
  EXPECT_EQ(found->created_at, 1'000);
  EXPECT_EQ(found->tokens, turn.response.tokens);
  EXPECT_EQ(found->tokenizer, "abcd");
  EXPECT_EQ(history("resp_1"), "resp_1_in resp_1_out");
  const auto input = store_->input_items(kTenant, "resp_1", {});
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(ids_of(input->items), "resp_1_in");
  EXPECT_EQ(input->items[0].json, turn.input[0].json);
}

TEST_P(StoreTurnContract, AChainIsItsHistory) {
  for (int i = 0; i < 5; ++i) {
    StoredTurn turn = test_turn(fmt::format("r{}", i));
    if (i > 0) turn.response.previous = fmt::format("r{}", i - 1);
    commit(turn);
  }
  StoredTurn fork = test_turn("fork");
  fork.response.previous = "r1";
  commit(fork);
  EXPECT_EQ(history("r2"), "r0_in r0_out r1_in r1_out r2_in r2_out");
  EXPECT_EQ(history("fork"), "r0_in r0_out r1_in r1_out fork_in fork_out");
  ASSERT_TRUE(store_->delete_response(kTenant, "r1").ok());
  EXPECT_EQ(store_->response_history(kTenant, "r4", UINT64_MAX).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(history("r4"), "the response 'r1', which 'r4' continues, was deleted or has expired");
  EXPECT_EQ(history("r0"), "r0_in r0_out");
  EXPECT_EQ(history("r1"), "there is no response 'r1'");
}

TEST_P(StoreTurnContract, AnIdThatComesAgainMakesNoCycle) {
  commit(test_turn("r0"));
  StoredTurn turn = test_turn("r1");
  turn.response.previous = "r0";
  commit(turn);
  ASSERT_TRUE(store_->delete_response(kTenant, "r0").ok());
  turn = test_turn("r0");
  turn.response.previous = "r1";
  commit(turn);
  EXPECT_EQ(history("r0"), "the response 'r0', which 'r0' continues, was deleted or has expired");
  EXPECT_EQ(history("r1"), "the response 'r0', which 'r1' continues, was deleted or has expired");
}

TEST_P(StoreTurnContract, TokensThatTurnsShareAreStoredOnce) {
  std::vector<TokenId> tokens;
  std::uint64_t first_turn_bytes = 0;
  for (int i = 0; i < 80; ++i) {  // deeper than a chain of sequences may be
    for (int k = 0; k < 500; ++k) tokens.push_back(TokenId(static_cast<std::uint32_t>(i * 1'000 + k)));
    StoredTurn turn = test_turn(fmt::format("r{}", i));
    if (i > 0) turn.response.previous = fmt::format("r{}", i - 1);
    // A template that drops what an old turn reasoned: not all of the former sequence comes again.
    if (i == 40) tokens.resize(tokens.size() - 700);
    turn.response.tokens = tokens;
    commit(turn);
    if (i == 0) first_turn_bytes = store_->size_bytes().value();
    const auto found = store_->response(kTenant, turn.response.id);
    ASSERT_TRUE(found.ok());
    ASSERT_EQ(found->tokens, tokens) << i;
  }
  // Stored whole each, they would take 40 times the tokens of all turns.
  EXPECT_LT(store_->size_bytes().value(), 80 * first_turn_bytes * 4);
  // What a deleted one shares with others stays theirs.
  for (int i = 0; i < 79; ++i) ASSERT_TRUE(store_->delete_response(kTenant, fmt::format("r{}", i)).ok());
  EXPECT_EQ(store_->response(kTenant, "r79")->tokens, tokens);
  ASSERT_TRUE(store_->delete_response(kTenant, "r79").ok());
  EXPECT_EQ(store_->size_bytes().value(), 0u);
}

TEST_P(StoreTurnContract, OneInProgressIsReplaced) {
  create("c");
  StoredTurn turn = test_turn("r");
  turn.response.conversation = "c";
  turn.response.status = "in_progress";
  turn.output.clear();
  turn.response.tokens.clear();
  commit(turn);
  EXPECT_EQ(conversation_history("c"), "r_in");
  EXPECT_TRUE(store_->response(kTenant, "r")->tokens.empty());
  StoredTurn whole = test_turn("r");
  whole.response.conversation = "c";
  commit(whole);
  EXPECT_EQ(conversation_history("c"), "r_in r_out");
  EXPECT_EQ(store_->response(kTenant, "r")->status, "completed");
  EXPECT_EQ(store_->response(kTenant, "r")->tokens, whole.response.tokens);
  const Status again = store_->commit_turn(kTenant, whole);
  EXPECT_EQ(again.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(again.field(), "response.id");
}

TEST_P(StoreTurnContract, TheReplacementOfADeletedConversationsResponseIsKept) {
  create("c");
  StoredTurn turn = test_turn("r");
  turn.response.conversation = "c";
  turn.response.status = "in_progress";
  commit(turn);
  ASSERT_TRUE(store_->delete_conversation(kTenant, "c").ok());
  create("c");  // another one of the same id is not its own
  turn.response.status = "completed";
  commit(turn);
  EXPECT_EQ(conversation_history("c"), "");
  EXPECT_EQ(history("r"), "r_in r_out");
}

TEST_P(StoreTurnContract, TheInterruptedHaveFailed) {
  StoredTurn turn = test_turn("r");
  turn.response.status = "in_progress";
  turn.response.json = R"({"id":"r","status":"in_progress"})";
  commit(turn);
  commit(test_turn("done"));
  reopen();
  // PostgreSQL notices after a moment that the one before has ended.
  for (int i = 0; i < 3'000 && store_->response(kTenant, "r")->status != "failed"; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ASSERT_TRUE(store_->fail_interrupted({}, {}).ok());
  }
  const auto found = store_->response(kTenant, "r");
  EXPECT_EQ(found->status, "failed");
  const auto json = nlohmann::json::parse(found->json);
  EXPECT_EQ(json["status"], "failed");
  EXPECT_EQ(json["error"]["code"], "server_error");
  EXPECT_EQ(store_->response(kTenant, "done")->status, "completed");
}

TEST_P(StoreTurnContract, WhatCannotBeStoredIsNamed) {
  create("c", {test_item("a")});
  const auto expect_invalid = [](const Status& status, std::string_view field) {
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << status.to_string();
    EXPECT_EQ(status.field(), field) << status.to_string();
  };
  const std::string nul("x\0y", 3);
  expect_invalid(store_->create_conversation(kTenant, {.id = "c"}, {}), "conversation.id");
  expect_invalid(store_->create_conversation(kTenant, {.id = nul}, {}), "conversation.id");
  expect_invalid(store_->create_conversation(kTenant, {.id = ""}, {}), "conversation.id");
  expect_invalid(store_->create_conversation(nul, {.id = "n"}, {}), "tenant");
  const Status no_text = store_->create_conversation(kTenant, {.id = "n", .metadata = "\xff"}, {});
  expect_invalid(no_text, "metadata");
  EXPECT_EQ(no_text.message(), "expected UTF-8 without NUL, found the byte 0xff at 0");
  expect_invalid(store_->create_conversation(kTenant, {.id = "n"}, {test_item("a"), test_item("a")}),
                 "items[1].id");
  expect_invalid(store_->set_metadata(kTenant, "c", std::string(kStoredMetadataBytesMax + 1, ' ')),
                 "metadata");
  expect_invalid(store_->add_items(kTenant, "c", {test_item("b"), test_item("a")}), "items[1].id");
  expect_invalid(store_->add_items(kTenant, "c", {{.id = "b", .json = "\xed\xa0\x80"}}), "items[0]");
  expect_invalid(store_->add_items(kTenant, "c", {test_item(std::string(257, 'x'))}), "items[0].id");
  StoredTurn turn = test_turn("r");
  turn.response.conversation = "c";
  turn.output = {test_item("a")};
  expect_invalid(store_->commit_turn(kTenant, turn), "output[0].id");
  turn = test_turn("r");
  turn.response.json = nul;
  expect_invalid(store_->commit_turn(kTenant, turn), "response");
  EXPECT_EQ(store_->response(kTenant, nul).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->response(kTenant, "\xff").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->conversation(kTenant, std::string(100'000, 'x')).status().code(), StatusCode::kNotFound);
  // None of it has left anything behind.
  EXPECT_EQ(conversation_history("c"), "a");
  EXPECT_EQ(history("r"), "there is no response 'r'");
  EXPECT_EQ(store_->conversation(kTenant, "n").status().code(), StatusCode::kNotFound);
}

TEST_P(StoreTurnContract, ManyThreadsAtOnce) {
  create("c");
  constexpr int kThreads = 4, kTurns = 12;
  std::atomic<int> failed = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kTurns; ++i) {
        StoredTurn turn = test_turn(fmt::format("r{}_{}", t, i));
        turn.response.conversation = "c";
        if (!store_->commit_turn(kTenant, turn).ok()) ++failed;
        if (!store_->conversation_history(kTenant, "c", UINT64_MAX).ok()) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
  const auto items = store_->conversation_history(kTenant, "c", UINT64_MAX);
  ASSERT_EQ(items->size(), 2u * kThreads * kTurns);
  // A turn's items stand together.
  for (std::size_t i = 0; i < items->size(); i += 2) {
    const std::string id = (*items)[i].id;
    EXPECT_EQ((*items)[i + 1].id, id.substr(0, id.size() - 3) + "_out");
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreTurnContract, testing::Values(StoreKind::kSqlite, StoreKind::kPostgres),
                         [](const auto& kind) { return testing::PrintToString(kind.param); });

}  // namespace
}  // namespace loci
