// SPDX-License-Identifier: Apache-2.0
// What every kind of store promises (conversation_store.h).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "loci/serve/store/stored_text.h"
#include "loci/serve/store/test_stores.h"

// libpqxx 6.4 forgets the last result of a connection that was lost: one test's server dies.
extern "C" const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libpqxx\n"; }

namespace loci {
namespace {

constexpr const char* kTenant = "ann";

std::string ids_of(const std::vector<StoredItem>& items) {
  std::string out;
  for (const StoredItem& item : items) out += (out.empty() ? "" : " ") + item.id;
  return out;
}

class StoreContract : public testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    place_ = make_store_place(GetParam());
    if (place_ == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
    reopen();
  }
  void reopen() {
    store_.reset();
    StoreOptions options;
    options.now_seconds = [this] { return now_.load(); };
    options.quota_of = [this](std::string_view tenant) { return tenant == "bob" ? StoreQuota() : quota_; };
    options.said_tokens_max = said_tokens_max_;
    options.made_room = [this](std::string_view tenant, std::uint64_t gone) {
      EXPECT_EQ(tenant, kTenant);
      made_room_ += gone;
    };
    auto opened = place_->open(options);
    ASSERT_TRUE(opened.ok()) << opened.status().to_string();
    store_ = std::move(opened).value();
  }
  void commit(const StoredTurn& turn) {
    const Status status = store_->commit_turn(kTenant, turn);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  void create(const std::string& id, const std::vector<StoredItem>& items = {}) {
    const Status status = store_->create_conversation(kTenant, {.id = id, .created_at = 5}, items);
    ASSERT_TRUE(status.ok()) << status.to_string();
  }
  std::string page(const std::string& conversation, const ItemPage& page) {
    const auto list = store_->conversation_items(kTenant, conversation, page);
    if (!list.ok()) return list.status().to_string();
    return ids_of(list->items) + (list->has_more ? " ..." : "");
  }
  std::string history(const std::string& response) {
    const auto items = store_->response_history(kTenant, response);
    return items.ok() ? ids_of(*items) : items.status().message();
  }
  std::string conversation_history(const std::string& id) {
    const auto items = store_->conversation_history(kTenant, id);
    return items.ok() ? ids_of(*items) : items.status().message();
  }

  std::atomic<std::int64_t> now_ = 10'000;
  StoreQuota quota_;  // of all but bob
  std::size_t said_tokens_max_ = StoreOptions().said_tokens_max;
  std::atomic<std::uint64_t> made_room_ = 0;
  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<ConversationStore> store_;
};

TEST_P(StoreContract, ATurnIsClaimedAndItsCommitEndsTheClaim) {
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

TEST_P(StoreContract, ListsATenantsConversationsTheLastActiveFirst) {
  const auto ids = [&](const std::string& after, std::uint32_t limit) {
    const auto list = store_->conversations(kTenant, after, limit);
    if (!list.ok()) return list.status().to_string();
    std::string out;
    for (const ConversationSummary& one : list->conversations)
      out += (out.empty() ? "" : " ") + one.conversation.id;
    return out + (list->has_more ? " ..." : "");
  };
  EXPECT_EQ(ids("", 5), "");
  create("a", {{"i1", "{}"}, {"i2", "{}"}, {"i3", "{}"}, {"i4", "{}"}});
  create("b");
  now_ += 10;
  create("c");
  ASSERT_TRUE(store_->create_conversation("other", {.id = "x", .created_at = 5}, {}).ok());
  EXPECT_EQ(ids("", 5), "c b a");
  EXPECT_EQ(ids("", 2), "c b ...");
  EXPECT_EQ(ids("b", 2), "a");
  now_ += 10;
  ASSERT_TRUE(store_->set_metadata(kTenant, "a", "{}").ok());
  EXPECT_EQ(ids("", 5), "a c b");
  EXPECT_EQ(ids("a", 1), "c ...");
  EXPECT_EQ(store_->conversations(kTenant, "x", 5).status().code(), StatusCode::kInvalidArgument);
  const ConversationSummary newest = store_->conversations(kTenant, "", 1)->conversations[0];
  EXPECT_EQ(newest.items, 4u);
  EXPECT_EQ(newest.first.size(), 3u);
  EXPECT_EQ(newest.first[0].id, "i1");
  EXPECT_GT(newest.size_bytes, 0u);
  EXPECT_EQ(newest.active_at, now_.load());
}

TEST_P(StoreContract, ATurnIsThereAfterReopening) {
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

TEST_P(StoreContract, AChainIsItsHistory) {
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
  EXPECT_EQ(store_->response_history(kTenant, "r4").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(history("r4"), "the response 'r1', which 'r4' continues, was deleted or has expired");
  EXPECT_EQ(history("r0"), "r0_in r0_out");
  EXPECT_EQ(history("r1"), "there is no response 'r1'");
}

TEST_P(StoreContract, AnIdThatComesAgainMakesNoCycle) {
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

TEST_P(StoreContract, TokensThatTurnsShareAreStoredOnce) {
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

TEST_P(StoreContract, AConversationHasItsItemsInOrder) {
  create("c", {test_item("a"), test_item("b")});
  ASSERT_TRUE(store_->add_items(kTenant, "c", {test_item("d"), test_item("c")}).ok());
  StoredTurn turn = test_turn("r");
  turn.response.conversation = "c";
  commit(turn);
  EXPECT_EQ(conversation_history("c"), "a b d c r_in r_out");
  EXPECT_EQ(page("c", {.limit = 2}), "a b ...");
  EXPECT_EQ(page("c", {.after = "b", .limit = 2}), "d c ...");
  EXPECT_EQ(page("c", {.after = "c", .limit = 2}), "r_in r_out");
  EXPECT_EQ(page("c", {.after = "r_out", .limit = 2}), "");
  EXPECT_EQ(page("c", {.limit = 4, .newest_first = true}), "r_out r_in c d ...");
  EXPECT_EQ(page("c", {.after = "d", .limit = 4, .newest_first = true}), "b a");
  EXPECT_EQ(page("c", {.after = "x"}),
            "invalid_argument: after: expected the id of an item of the list, found 'x'");
  EXPECT_EQ(store_->conversation_item(kTenant, "c", "d")->json, test_item("d").json);
  ASSERT_TRUE(store_->delete_item(kTenant, "c", "d").ok());
  ASSERT_TRUE(store_->delete_item(kTenant, "c", "r_in").ok());
  EXPECT_EQ(conversation_history("c"), "a b c r_out");
  EXPECT_EQ(store_->conversation_item(kTenant, "c", "d").status().code(), StatusCode::kNotFound);
  // What a response was given is still the response's.
  EXPECT_EQ(history("r"), "r_in r_out");
}

TEST_P(StoreContract, MetadataChanges) {
  create("c");
  EXPECT_EQ(store_->conversation(kTenant, "c")->metadata, "{}");
  EXPECT_EQ(store_->conversation(kTenant, "c")->created_at, 5);
  ASSERT_TRUE(store_->set_metadata(kTenant, "c", R"({"topic":"x"})").ok());
  EXPECT_EQ(store_->conversation(kTenant, "c")->metadata, R"({"topic":"x"})");
  EXPECT_EQ(store_->set_metadata(kTenant, "d", "{}").code(), StatusCode::kNotFound);
}

TEST_P(StoreContract, DeletingAConversationDeletesAllOfItsThread) {
  create("c", {test_item("a")});
  StoredTurn turn = test_turn("r");
  turn.response.conversation = "c";
  commit(turn);
  StoredTurn fork = test_turn("f");
  fork.response.previous = "r";
  commit(fork);
  ASSERT_TRUE(store_->delete_conversation(kTenant, "c").ok());
  EXPECT_EQ(store_->conversation(kTenant, "c").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(conversation_history("c"), "there is no conversation 'c'");
  EXPECT_EQ(store_->response(kTenant, "r").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->response(kTenant, "f").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(store_->size_bytes().value(), 0u);
  turn = test_turn("r2");
  turn.response.conversation = "c";
  EXPECT_EQ(store_->commit_turn(kTenant, turn).code(), StatusCode::kNotFound);
}

TEST_P(StoreContract, ADeletedConversationTellsWhatWasSaid) {
  const auto run = [](std::uint32_t from, std::uint32_t count) {
    std::vector<TokenId> tokens;
    for (std::uint32_t i = 0; i < count; ++i) tokens.emplace_back(from + i);
    return tokens;
  };
  create("c");
  const auto say = [&](const char* id, std::vector<TokenId> tokens, const char* tokenizer = "t") {
    StoredTurn turn = test_turn(id);
    turn.response.conversation = "c";
    turn.response.tokens = std::move(tokens);
    turn.response.tokenizer = tokenizer;
    commit(turn);
  };
  std::vector<TokenId> forked = run(0, 80);  // stands on the sequence that it parts from
  forked.emplace_back(7);
  for (std::uint32_t turn = 1; turn <= 40; ++turn)  // longer than a chain of rows
    say(fmt::format("r{}", turn).c_str(), run(0, 100 * turn));
  say("forked", forked);
  say("short", run(0, 50));
  say("other", run(0, 50), "another");
  const Result<std::vector<StoredTokens>> said = store_->delete_conversation(kTenant, "c");
  ASSERT_TRUE(said.ok()) << said.status().to_string();
  ASSERT_EQ(said->size(), 3u);
  EXPECT_EQ((*said)[0].tokens, run(0, 50));
  EXPECT_EQ((*said)[0].tokenizer, "another");
  EXPECT_EQ((*said)[1].tokens, forked);
  EXPECT_EQ((*said)[2].tokens, run(0, 4000));
}

TEST_P(StoreContract, WhatWasSaidIsToldUpToALimit) {
  said_tokens_max_ = 150;
  reopen();
  create("c");
  for (std::uint32_t i = 0; i < 4; ++i) {
    StoredTurn turn = test_turn(fmt::format("r{}", i));
    turn.response.conversation = "c";
    turn.response.tokens.assign(70, TokenId(i));
    commit(turn);
  }
  const Result<std::vector<StoredTokens>> said = store_->delete_conversation(kTenant, "c");
  ASSERT_TRUE(said.ok()) << said.status().to_string();
  ASSERT_EQ(said->size(), 2u) << "the newest";
  EXPECT_EQ((*said)[1].tokens.front(), TokenId(2));
  EXPECT_EQ(store_->size_bytes().value(), 0u);
}

TEST_P(StoreContract, DeletingAResponseLeavesTheConversationsItems) {
  create("c");
  StoredTurn turn = test_turn("r");
  turn.response.conversation = "c";
  commit(turn);
  ASSERT_TRUE(store_->delete_response(kTenant, "r").ok());
  EXPECT_EQ(conversation_history("c"), "r_in r_out");
  EXPECT_EQ(store_->delete_response(kTenant, "r").code(), StatusCode::kNotFound);
}

TEST_P(StoreContract, OneInProgressIsReplaced) {
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

TEST_P(StoreContract, TheReplacementOfADeletedConversationsResponseIsKept) {
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

TEST_P(StoreContract, TheInterruptedHaveFailed) {
  StoredTurn turn = test_turn("r");
  turn.response.status = "in_progress";
  turn.response.json = R"({"id":"r","status":"in_progress"})";
  commit(turn);
  commit(test_turn("done"));
  reopen();
  // PostgreSQL notices after a moment that the one before has ended.
  for (int i = 0; i < 200 && store_->response(kTenant, "r")->status != "failed"; ++i) {
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

TEST_P(StoreContract, TenantsSeeNothingOfOneAnother) {
  create("c", {test_item("a")});
  commit(test_turn("r"));
  for (const char* other : {"bob", "", "ann ", "ANN"}) {
    EXPECT_EQ(store_->conversation(other, "c").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->set_metadata(other, "c", "{}").code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->conversation_items(other, "c", {}).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->conversation_item(other, "c", "a").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->conversation_history(other, "c").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->add_items(other, "c", {test_item("b")}).code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->delete_item(other, "c", "a").code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->delete_conversation(other, "c").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->response(other, "r").status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->input_items(other, "r", {}).status().code(), StatusCode::kNotFound);
    EXPECT_EQ(store_->response_history(other, "r").status().code(), StatusCode::kNotFound);
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

TEST_P(StoreContract, WhatCannotBeStoredIsNamed) {
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
  expect_invalid(store_->create_conversation(kTenant, {.id = "n", .metadata = "\xff"}, {}), "metadata");
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

TEST_P(StoreContract, WhatIsAtRestForTooLongGoesWhole) {
  now_ = 100;
  create("old", {test_item("a")});
  commit(test_turn("r0"));
  StoredTurn turn = test_turn("r1");
  turn.response.previous = "r0";
  now_ = 200;
  commit(turn);
  create("new");
  EXPECT_EQ(store_->expire(200, {.age_seconds_max = 100}).value(), 0u);
  EXPECT_EQ(store_->expire(201, {.age_seconds_max = 100}).value(), 1u);
  EXPECT_EQ(store_->conversation(kTenant, "old").status().code(), StatusCode::kNotFound);
  // The chain was active with its last turn.
  EXPECT_EQ(history("r1"), "r0_in r0_out r1_in r1_out");
  EXPECT_EQ(store_->expire(301, {.age_seconds_max = 100}).value(), 3u);
  EXPECT_EQ(store_->size_bytes().value(), 0u);
  EXPECT_EQ(store_->stats()->size(), 0u);
}

TEST_P(StoreContract, TheOldestOfTooMuchGoes) {
  for (int i = 0; i < 400; ++i) {
    now_ = 1'000 + i;
    commit(test_turn(fmt::format("r{:03}", i)));
  }
  const std::uint64_t all = store_->size_bytes().value();
  std::uint64_t gone = 0, calls = 0;
  const StoreLimits limits{.bytes_max = all / 4};
  while (const std::uint64_t deleted = store_->expire(2'000, limits).value()) {
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
TEST_P(StoreContract, TooMuchIsTakenFromWhoHasMoreThanItsShare) {
  for (int i = 0; i < 20; ++i) {
    now_ = 1'000 + i;
    ASSERT_TRUE(store_->commit_turn("bob", test_turn(fmt::format("r{:03}", i))).ok());
  }
  const std::uint64_t of_bob = store_->size_bytes().value();
  for (int i = 0; i < 100; ++i) {
    now_ = 2'000 + i;
    commit(test_turn(fmt::format("r{:03}", i)));
  }
  while (store_->expire(3'000, {.age_seconds_max = {}, .bytes_max = 3 * of_bob}).value() > 0) {
  }
  const auto stats = store_->stats().value();
  ASSERT_EQ(stats.size(), 2u);
  EXPECT_EQ(stats[0].responses, 40u);  // ann's: what bob leaves
  EXPECT_EQ(stats[1].responses, 20u);
  EXPECT_EQ(history("r059"), "there is no response 'r059'");
  EXPECT_EQ(history("r060"), "r060_in r060_out");
  // Where both have more than half, both give; bob's oldest and ann's.
  while (store_->expire(3'000, {.age_seconds_max = {}, .bytes_max = of_bob}).value() > 0) {
  }
  EXPECT_EQ(store_->stats().value()[0].responses, 10u);
  EXPECT_EQ(store_->stats().value()[1].responses, 10u);
}

TEST_P(StoreContract, AWriteOverTheQuotaTakesTheTenantsOldest) {
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

TEST_P(StoreContract, AConversationLargerThanTheQuotaIsRefused) {
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
TEST_P(StoreContract, ExpiryHoldsTheQuota) {
  for (int i = 0; i < 40; ++i) {
    now_ = 20'000 + i;
    commit(test_turn(fmt::format("r{:03}", i)));
  }
  ASSERT_TRUE(store_->commit_turn("bob", test_turn("r000")).ok());
  quota_ = {.bytes_max = {}, .threads_max = 7};
  while (store_->expire(30'000, {}).value() > 0) {
  }
  EXPECT_EQ(store_->stats().value()[0].responses, 7u);
  EXPECT_EQ(store_->stats().value()[1].responses, 1u);
  EXPECT_EQ(history("r033"), "r033_in r033_out");
}

TEST_P(StoreContract, StatsTellEachTenant) {
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

TEST_P(StoreContract, ManyThreadsAtOnce) {
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
        if (!store_->conversation_history(kTenant, "c").ok()) ++failed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed.load(), 0);
  const auto items = store_->conversation_history(kTenant, "c");
  ASSERT_EQ(items->size(), 2u * kThreads * kTurns);
  // A turn's items stand together.
  for (std::size_t i = 0; i < items->size(); i += 2) {
    const std::string id = (*items)[i].id;
    EXPECT_EQ((*items)[i + 1].id, id.substr(0, id.size() - 3) + "_out");
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreContract, testing::Values(StoreKind::kSqlite, StoreKind::kPostgres),
                         [](const auto& kind) { return testing::PrintToString(kind.param); });

}  // namespace
}  // namespace loci
