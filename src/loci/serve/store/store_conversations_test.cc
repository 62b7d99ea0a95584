// SPDX-License-Identifier: Apache-2.0
// Conversations are made, read in pages, changed and deleted. On every kind of store.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "loci/serve/store/store_contract_testing.h"
#include "loci/serve/store/stored_text.h"

namespace loci {
namespace {

class StoreConversationContract : public StoreContract {};

TEST_P(StoreConversationContract, ListsATenantsConversationsTheLastActiveFirst) {
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

TEST_P(StoreConversationContract, AConversationHasItsItemsInOrder) {
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
  EXPECT_EQ(store_->conversation_item(kTenant, "c", "d", {})->json, test_item("d").json);
  ASSERT_TRUE(store_->delete_item(kTenant, "c", "d").ok());
  ASSERT_TRUE(store_->delete_item(kTenant, "c", "r_in").ok());
  EXPECT_EQ(conversation_history("c"), "a b c r_out");
  EXPECT_EQ(store_->conversation_item(kTenant, "c", "d", {}).status().code(), StatusCode::kNotFound);
  // What a response was given is still the response's.
  EXPECT_EQ(history("r"), "r_in r_out");
}

// Items may be megabytes: a page of a hundred of them would be the memory of a server.
TEST_P(StoreConversationContract, APageIsBoundedByItsBytes) {
  const std::string megabyte(1 << 20, 'x');
  std::vector<StoredItem> items;
  for (const char* id : {"a", "b", "c", "d", "e"}) items.push_back(test_item(id, megabyte));
  items.push_back(test_item("huge", std::string(kPageBytesMax + 1, 'x')));
  items.push_back(test_item("small"));
  create("c", items);
  EXPECT_EQ(page("c", {.limit = 100}), "a b c ...");
  EXPECT_EQ(page("c", {.limit = 3}), "a b c ...");
  EXPECT_EQ(page("c", {.limit = 2}), "a b ...");
  EXPECT_EQ(page("c", {.after = "c", .limit = 100}), "d e ...");
  EXPECT_EQ(page("c", {.after = "e", .limit = 100}), "huge ...") << "at least one";
  EXPECT_EQ(page("c", {.after = "huge", .limit = 100}), "small");
  EXPECT_EQ(page("c", {.limit = 100, .newest_first = true}), "small ...");
  EXPECT_EQ(page("c", {.after = "huge", .limit = 100, .newest_first = true}), "e d c ...");
  StoredTurn turn = test_turn("r");
  turn.input = items;
  commit(turn);
  const auto input = store_->input_items(kTenant, "r", {.after = "c", .limit = 100});
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(ids_of(input->items), "d e");
  EXPECT_TRUE(input->has_more);
}

TEST_P(StoreConversationContract, MetadataChanges) {
  create("c");
  EXPECT_EQ(store_->conversation(kTenant, "c")->metadata, "{}");
  EXPECT_EQ(store_->conversation(kTenant, "c")->created_at, 5);
  ASSERT_TRUE(store_->set_metadata(kTenant, "c", R"({"topic":"x"})").ok());
  EXPECT_EQ(store_->conversation(kTenant, "c")->metadata, R"({"topic":"x"})");
  EXPECT_EQ(store_->set_metadata(kTenant, "d", "{}").code(), StatusCode::kNotFound);
}

TEST_P(StoreConversationContract, DeletingAConversationDeletesAllOfItsThread) {
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

TEST_P(StoreConversationContract, ADeletedConversationTellsWhatWasSaid) {
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

TEST_P(StoreConversationContract, WhatWasSaidIsToldUpToALimit) {
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

TEST_P(StoreConversationContract, DeletingAResponseLeavesTheConversationsItems) {
  create("c");
  StoredTurn turn = test_turn("r");
  turn.response.conversation = "c";
  commit(turn);
  ASSERT_TRUE(store_->delete_response(kTenant, "r").ok());
  EXPECT_EQ(conversation_history("c"), "r_in r_out");
  EXPECT_EQ(store_->delete_response(kTenant, "r").code(), StatusCode::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(Kinds, StoreConversationContract,
                         testing::Values(StoreKind::kSqlite, StoreKind::kPostgres),
                         [](const auto& kind) { return testing::PrintToString(kind.param); });

}  // namespace
}  // namespace loci
