// SPDX-License-Identifier: Apache-2.0
// Queries, and what stored responses and conversations answer, on a real store.
#include "loci/serve/api/responses/stored_objects.h"
#include "loci/serve/wire/json.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "loci/base/eventually_testing.h"
#include "loci/serve/api/responses/query.h"
#include "loci/serve/store/naive_store_testing.h"
#include "loci/serve/store/stores_testing.h"

namespace loci {
namespace {

TEST(Query, ReadsPages) {
  const Result<ItemPage> page = read_page(Query("/x?limit=5&order=asc&after=msg%5F1&include[]=a&limit=7"));
  ASSERT_TRUE(page.ok());
  EXPECT_EQ(page.value().limit, 7u);
  EXPECT_EQ(page.value().after, "msg_1");
  EXPECT_FALSE(page.value().newest_first);
  const Result<ItemPage> plain = read_page(Query("/x"));
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(plain.value().limit, 20u);
  EXPECT_TRUE(plain.value().newest_first && plain.value().after.empty());
  for (const char* limit : {"0", "101", "x", "", "-1", "1x"})
    EXPECT_EQ(read_page(Query(std::string("/x?limit=") + limit)).status().field(), "limit") << limit;
  EXPECT_TRUE(read_page(Query("/x?limit=100&&=&b")).ok());
  const Status order = read_page(Query("/x?order=up")).status();
  EXPECT_EQ(order.field(), "order");
  EXPECT_EQ(order.message(), "expected asc or desc; got \"up\"");
}

TEST(Query, ReadsStreams) {
  EXPECT_FALSE(read_response_query(Query("/x")).value().stream);
  EXPECT_EQ(read_response_query(Query("/x?stream=true")).value().first_event, 0u);
  EXPECT_EQ(read_response_query(Query("/x?stream=true&starting_after=4")).value().first_event, 5u);
  EXPECT_EQ(read_response_query(Query("/x?stream=yes")).status().field(), "stream");
  EXPECT_EQ(read_response_query(Query("/x?starting_after=4")).status().field(), "starting_after");
  EXPECT_EQ(read_response_query(Query("/x?stream=true&starting_after=-1")).status().field(),
            "starting_after");
}

// Counts reads of whole responses.
class ReadCounter final : public NaiveStore {
 public:
  Result<StoredResponse> response(std::string_view tenant, std::string_view id) override {
    ++reads;
    return NaiveStore::response(tenant, id);
  }
  int reads = 0;
};

// Each may have 64 MiB.
TEST(ReadResponses, OnlyWhereTheyAreShown) {
  ReadCounter store;
  ASSERT_TRUE(store.commit_turn("a", test_turn("resp_1")).ok());
  const Answer refused = cancel_ended_response(store, "a", "resp_1");
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).http_status, 400);
  EXPECT_NE(std::get<ApiError>(refused).message.find("it is completed"), std::string::npos);
  EXPECT_TRUE(std::holds_alternative<std::string>(list_input_items(store, "a", "resp_1", {})));
  EXPECT_EQ(store.reads, 0);
  StoredTurn cancelled = test_turn("resp_2");
  cancelled.response.status = "cancelled";
  ASSERT_TRUE(store.commit_turn("a", cancelled).ok());
  EXPECT_EQ(std::get<std::string>(cancel_ended_response(store, "a", "resp_2")), cancelled.response.json);
  EXPECT_EQ(store.reads, 1);
}

class StoredObjects : public testing::Test {
 protected:
  void SetUp() override {
    place_ = make_store_place(StoreKind::kSqlite);
    auto store = place_->open({});
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(store).value();
  }

  Json body(const Answer& answer) {
    const auto* text = std::get_if<std::string>(&answer);
    EXPECT_NE(text, nullptr) << std::get<ApiError>(answer).message;
    return text == nullptr ? Json() : Json::parse(*text);
  }
  ApiError error(const Answer& answer) {
    const auto* found = std::get_if<ApiError>(&answer);
    EXPECT_NE(found, nullptr) << std::get<std::string>(answer);
    return found == nullptr ? ApiError{} : *found;
  }
  std::string conversation(const Json& request) {
    const Result<NewConversation> parsed = parse_conversation(request.dump());
    EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
    return body(create_conversation(*store_, "a", parsed.value()))["id"];
  }

  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<ConversationStore> store_;
};

// The room is asked for before anything is read, for what is read.
TEST_F(StoredObjects, WhatHasNoRoomIsNotRead) {
  const std::string text(100'000, 'x');
  const std::string id =
      conversation({{"items", Json::array({{{"role", "user"}, {"content", text}, {"id", "m1"}},
                                           {{"role", "user"}, {"content", "y"}, {"id", "m2"}}})}});
  StoredTurn turn = test_turn("resp_1");
  turn.response.json = R"({"text":")" + text + R"("})";
  turn.input = {test_item("m1", text)};
  ASSERT_TRUE(store_->commit_turn("a", turn).ok());
  std::vector<std::uint64_t> asked;
  bool has_room = true;
  const ReadRoom room = [&](std::uint64_t bytes) {
    asked.push_back(bytes);
    return has_room;
  };
  const auto all = [&] {
    ItemPage page;
    page.room = room;
    std::vector<Answer> answers;
    answers.push_back(show_response(*store_, "a", "resp_1", room));
    answers.push_back(list_input_items(*store_, "a", "resp_1", page));
    answers.push_back(list_items(*store_, "a", id, page));
    answers.push_back(show_item(*store_, "a", id, "m1", room));
    return answers;
  };
  for (const Answer& answer : all()) {
    ASSERT_TRUE(std::holds_alternative<std::string>(answer)) << std::get<ApiError>(answer).message;
    EXPECT_GE(std::get<std::string>(answer).size(), text.size());
  }
  ASSERT_EQ(asked.size(), 4u);
  for (const std::uint64_t bytes : asked) {
    EXPECT_GE(bytes, text.size());
    EXPECT_LE(bytes, text.size() + 1'000);
  }
  has_room = false;
  for (const Answer& answer : all()) {
    const ApiError refused = error(answer);
    EXPECT_EQ(refused.http_status, 503);
    EXPECT_EQ(refused.code, "too_many_answers");
    EXPECT_EQ(refused.retry_after_seconds, 1u);
  }
}

TEST_F(StoredObjects, AnotherTenantsIsWhatNeverWas) {
  const std::string id = conversation({{"items", {{{"role", "user"}, {"content", "x"}, {"id", "m1"}}}}});
  ASSERT_TRUE(store_->commit_turn("a", test_turn("resp_1")).ok());
  EXPECT_EQ(body(show_conversation(*store_, "a", id))["id"], id);
  const auto same = [&](const Answer& theirs, const Answer& never, const std::string& name,
                        const std::string& other) {
    ApiError got = error(theirs);
    const ApiError wanted = error(never);
    EXPECT_EQ(got.http_status, 404);
    if (const auto at = got.message.find(name); at != std::string::npos)
      got.message.replace(at, name.size(), other);
    EXPECT_EQ(to_json(got), to_json(wanted));
  };
  same(show_conversation(*store_, "b", id), show_conversation(*store_, "b", "no"), id, "no");
  SaidToForget never([](StoredTokens&&) { FAIL() << "nothing was deleted"; });
  same(delete_conversation(*store_, "b", id, never), delete_conversation(*store_, "b", "no", never), id,
       "no");
  same(list_items(*store_, "b", id, {}), list_items(*store_, "b", "no", {}), id, "no");
  same(show_item(*store_, "b", id, "m1"), show_item(*store_, "b", "no", "m1"), id, "no");
  same(delete_item(*store_, "b", id, "m1"), delete_item(*store_, "b", "no", "m1"), id, "no");
  same(update_conversation(*store_, "b", id, Json::object()),
       update_conversation(*store_, "b", "no", Json::object()), id, "no");
  same(show_response(*store_, "b", "resp_1"), show_response(*store_, "b", "no"), "resp_1", "no");
  same(delete_response(*store_, "b", "resp_1"), delete_response(*store_, "b", "no"), "resp_1", "no");
  same(list_input_items(*store_, "b", "resp_1", {}), list_input_items(*store_, "b", "no", {}), "resp_1",
       "no");
  same(cancel_ended_response(*store_, "b", "resp_1"), cancel_ended_response(*store_, "b", "no"), "resp_1",
       "no");
  EXPECT_EQ(body(delete_response(*store_, "a", "resp_1"))["deleted"], true);
}

TEST_F(StoredObjects, ConversationsFromFirstToLast) {
  const std::string id =
      conversation({{"metadata", {{"k", "v"}}}, {"items", {{{"role", "user"}, {"content", "x"}}}}});
  EXPECT_EQ(body(show_conversation(*store_, "a", id))["metadata"]["k"], "v");
  EXPECT_EQ(body(update_conversation(*store_, "a", id, {{"k", "w"}}))["metadata"]["k"], "w");
  const Result<std::vector<Item>> added =
      parse_added_items(Json({{"items", {{{"role", "assistant"}, {"content", "y"}, {"id", "m2"}}}}}).dump());
  ASSERT_TRUE(added.ok()) << added.status().to_string();
  EXPECT_EQ(body(add_items(*store_, "a", id, added.value()))["data"][0]["id"], "m2");
  EXPECT_EQ(error(add_items(*store_, "a", id, added.value())).http_status, 400);  // the same once more
  const Json list = body(list_items(*store_, "a", id, {.after = {}, .limit = 1, .newest_first = true}));
  EXPECT_EQ(list["data"].size(), 1u);
  EXPECT_EQ(list["first_id"], "m2");
  EXPECT_EQ(list["has_more"], true);
  EXPECT_EQ(body(show_item(*store_, "a", id, "m2"))["content"][0]["text"], "y");
  EXPECT_EQ(body(delete_item(*store_, "a", id, "m2"))["object"], "conversation");
  EXPECT_EQ(error(show_item(*store_, "a", id, "m2")).http_status, 404);
  SaidToForget said([](StoredTokens&&) {});
  EXPECT_EQ(body(delete_conversation(*store_, "a", id, said))["object"], "conversation.deleted");
  EXPECT_EQ(error(show_conversation(*store_, "a", id)).http_status, 404);
}

// A thread of the store's, for which others' commits wait, only takes what was said: to forget it takes long.
TEST_F(StoredObjects, WhatWasSaidIsForgottenOnceByAnotherThread) {
  for (const bool stops : {false, true}) {
    const std::string id = conversation(Json::object());
    StoredTurn turn = test_turn(stops ? "resp_8" : "resp_9");
    turn.response.conversation = id;
    ASSERT_TRUE(store_->commit_turn("a", turn).ok());
    std::vector<std::vector<TokenId>> forgotten;
    {
      SaidToForget said([&](StoredTokens&& one) { forgotten.push_back(std::move(one.tokens)); });
      EXPECT_EQ(body(delete_conversation(*store_, "a", id, said))["object"], "conversation.deleted");
      EXPECT_TRUE(forgotten.empty()) << "not by the store's thread";
      if (!stops) said.forget();
      EXPECT_EQ(forgotten.size(), stops ? 0u : 1u);
    }
    ASSERT_EQ(forgotten.size(), 1u) << "a stop does not lose it";
    EXPECT_FALSE(forgotten.front().empty());
  }
}

TEST_F(StoredObjects, CancelsWhatIsCancelledAlone) {
  StoredTurn turn = test_turn("resp_2");
  ASSERT_TRUE(store_->commit_turn("a", turn).ok());
  EXPECT_NE(error(cancel_ended_response(*store_, "a", "resp_2")).message.find("background"),
            std::string::npos);
  turn.response.id = "resp_4";
  turn.response.status = "completed";
  turn.response.json = R"({"id":"resp_4","background":true})";
  ASSERT_TRUE(store_->commit_turn("a", turn).ok());
  EXPECT_EQ(error(cancel_ended_response(*store_, "a", "resp_4")).message,
            "the response can't be cancelled: it is completed, and only a response that was made with "
            "background true can be, until it has ended");
  turn.response.id = "resp_5";
  turn.response.status = "in_progress";
  turn.response.json = R"({"id":"resp_5","background":true})";
  ASSERT_TRUE(store_->commit_turn("a", turn).ok());
  EXPECT_EQ(error(cancel_ended_response(*store_, "a", "resp_5")).message,
            "the response has ended on this server, but its end could not be stored; it can be deleted")
      << "no other server has this store";
  turn.response.id = "resp_3";
  turn.response.status = "cancelled";
  turn.response.json = R"({"id":"resp_3","background":true})";
  ASSERT_TRUE(store_->commit_turn("a", turn).ok());
  EXPECT_EQ(body(cancel_ended_response(*store_, "a", "resp_3"))["id"], "resp_3");
}

TEST(StoredResponses, AreNotDeletedWhileAnotherServerMakesThem) {
  const std::unique_ptr<StorePlace> place = make_store_place(StoreKind::kPostgres);
  if (place == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
  const auto here = place->open({}).value(), there = place->open({}).value();
  StoredTurn turn = test_turn("resp_1");
  turn.response.status = "in_progress";
  ASSERT_TRUE(there->commit_turn("a", turn).ok());
  const Answer refused = delete_response(*here, "a", "resp_1");
  const auto* error = std::get_if<ApiError>(&refused);
  ASSERT_NE(error, nullptr);
  EXPECT_EQ(error->http_status, 409);
  EXPECT_EQ(error->code, "response_running");
  EXPECT_EQ(error->message, "the response 'resp_1' runs on another server: cancel or delete it there");
  EXPECT_TRUE(std::holds_alternative<std::string>(delete_response(*there, "a", "resp_1")));
}

// So that a front finds that server.
TEST(StoredResponses, SayWhoMakesThem) {
  const std::unique_ptr<StorePlace> place = make_store_place(StoreKind::kPostgres);
  if (place == nullptr) GTEST_SKIP() << "there is no PostgreSQL on this machine";
  const auto here = place->open({}).value();
  auto there = place->open({}).value();
  const std::string owner = there->server();
  const auto owner_of = [](const Answer& refused) { return std::get<ApiError>(refused).owner; };
  StoredTurn running = test_turn("resp_1"), ended = test_turn("resp_2");
  for (StoredTurn* turn : {&running, &ended}) {
    turn->response.status = "in_progress";
    ASSERT_TRUE(there->commit_turn("a", *turn).ok());
  }
  ended.response.status = "completed";
  ASSERT_TRUE(there->commit_turn("a", ended).ok());
  const ApiError refused = cannot_stream(*here, "a", "resp_1");
  EXPECT_EQ(std::tie(refused.http_status, refused.code, refused.owner),
            std::make_tuple(409, std::string("response_running"), owner));
  EXPECT_EQ(owner_of(cancel_ended_response(*here, "a", "resp_1")), owner);
  EXPECT_EQ(owner_of(delete_response(*here, "a", "resp_1")), owner);
  EXPECT_EQ(cannot_stream(*there, "a", "resp_1").owner, "") << "nobody else has it";
  for (const ApiError& unstored : {cannot_stream(*there, "a", "resp_1"),
                                   std::get<ApiError>(cancel_ended_response(*there, "a", "resp_1"))}) {
    EXPECT_EQ(unstored.http_status, 409);
    EXPECT_NE(unstored.message.find("could not be stored; it can be deleted"), std::string::npos)
        << unstored.message;
  }
  const ApiError late = cannot_stream(*here, "a", "resp_2");
  EXPECT_EQ(std::tie(late.http_status, late.param, late.owner),
            std::make_tuple(400, std::string("stream"), owner))
      << "it has ended, and its events may be kept there";
  EXPECT_EQ(owner_of(cancel_ended_response(*here, "a", "resp_2")), "");
  EXPECT_EQ(cannot_stream(*here, "b", "resp_1").http_status, 404) << "another tenant's";
  // Its server ends. The response has not failed yet. The database releases that server's lock, which showed
  // that it lives, only when it notices the closed connection.
  there.reset();
  ApiError interrupted;
  ASSERT_TRUE(eventually([&] {
    interrupted = cannot_stream(*here, "a", "resp_1");
    return interrupted.message.find("seems to have ended") != std::string::npos;
  })) << interrupted.message;
  EXPECT_EQ(interrupted.http_status, 409);
  EXPECT_EQ(interrupted.owner, owner) << "it may live, without the database: a front knows who is a member";
  ASSERT_EQ(here->fail_interrupted({}, {}).value(), 1u);
  EXPECT_EQ(cannot_stream(*here, "a", "resp_1").owner, "") << "its events went with it";
}

TEST(StoredRequests, NameTheFieldAtFault) {
  const auto field = [](const auto& result) { return result.status().field(); };
  EXPECT_TRUE(parse_conversation("").ok());
  EXPECT_EQ(field(parse_conversation(R"({"items":3})")), "items");
  EXPECT_EQ(field(parse_conversation(R"({"metadata":3})")), "metadata");
  EXPECT_FALSE(parse_conversation("[]").ok());
  EXPECT_EQ(field(parse_added_items("{}")), "items");
  EXPECT_EQ(field(parse_added_items(R"({"items":[]})")), "items");
  EXPECT_EQ(field(parse_metadata_update("{}")), "metadata");
  const Status reference = parse_added_items(R"({"items":[{"type":"item_reference","id":"x"}]})").status();
  EXPECT_EQ(reference.field(), "items[0].type");
  EXPECT_EQ(reference.message(), "expected an item itself: references are not taken here");
  const Status twice =
      parse_added_items(
          R"({"items":[{"role":"user","content":"a","id":"x"},{"role":"user","content":"b","id":"x"}]})")
          .status();
  EXPECT_EQ(twice.field(), "items[1].id");
  EXPECT_EQ(twice.message(), "expected ids that differ; got 'x' twice");
  const Json one = {{"role", "user"}, {"content", "x"}};
  EXPECT_TRUE(parse_added_items(Json({{"items", Json(kItemsAddedMax, one)}}).dump()).ok());
  EXPECT_EQ(field(parse_added_items(Json({{"items", Json(kItemsAddedMax + 1, one)}}).dump())), "items");
}

}  // namespace
}  // namespace loci
