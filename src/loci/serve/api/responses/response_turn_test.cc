// SPDX-License-Identifier: Apache-2.0
// What a turn reads of the store, and what it writes there.
#include "loci/serve/api/responses/response_turn.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loci/serve/store/stored_text.h"
#include "loci/serve/store/stores_testing.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

class ResponseTurnTest : public testing::Test {
 protected:
  void SetUp() override {
    place_ = make_store_place(StoreKind::kSqliteInMemory);
    auto store = place_->open({});
    ASSERT_TRUE(store.ok()) << store.status().to_string();
    store_ = std::move(store).value();
  }

  std::variant<ResponseHistory, ApiError> load(const ResponseRequest& request, std::uint64_t bytes_max) {
    return load_history(*store_, "ann", request, bytes_max);
  }
  static StoredItem message(const std::string& id, std::size_t bytes) {
    const Item item = {
        {"id", id},
        {"type", "message"},
        {"role", "user"},
        {"content", Json::array({{{"type", "input_text"}, {"text", std::string(bytes, 'x')}}})}};
    return {.id = id, .json = dump_json(item)};
  }

  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<ConversationStore> store_;
};

TEST_F(ResponseTurnTest, AHistoryLongerThanTheLimitIsRefusedByName) {
  ASSERT_TRUE(store_->create_conversation("ann", {.id = "conv_1"}, {message("a", 5'000)}).ok());
  StoredTurn turn = test_turn("resp_1");
  turn.input = {message("b", 5'000)};
  turn.output = {};
  ASSERT_TRUE(store_->commit_turn("ann", turn).ok());
  ResponseRequest of_conversation, of_response;
  of_conversation.conversation = "conv_1";
  of_response.previous_response_id = "resp_1";
  for (const auto& [request, field] :
       {std::pair(of_conversation, "conversation"), std::pair(of_response, "previous_response_id")}) {
    const auto loaded = load(request, 6'000);
    ASSERT_TRUE(std::holds_alternative<ResponseHistory>(loaded)) << std::get<ApiError>(loaded).message;
    EXPECT_EQ(std::get<ResponseHistory>(loaded).items.size(), 1u);
    const auto refused = load(request, 5'000);
    ASSERT_TRUE(std::holds_alternative<ApiError>(refused)) << field;
    const ApiError& error = std::get<ApiError>(refused);
    EXPECT_EQ(error.http_status, 400);
    EXPECT_EQ(error.param, field);
    EXPECT_EQ(error.code, "context_length_exceeded");
    EXPECT_NE(error.message.find("at most 5,000 bytes"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("max_body"), std::string::npos) << error.message;
  }
}

TEST_F(ResponseTurnTest, ReferencesBringNoMoreThanAHistoryMayHave) {
  StoredTurn turn = test_turn("resp_1");
  turn.input = {message("a", 5'000)};
  turn.output = {};
  ASSERT_TRUE(store_->commit_turn("ann", turn).ok());
  ResponseRequest request;
  request.previous_response_id = "resp_1";
  request.input.assign(2, {{"type", "item_reference"}, {"id", "a"}});
  auto history = load(request, 6'000);
  ASSERT_TRUE(std::holds_alternative<ResponseHistory>(history)) << std::get<ApiError>(history).message;
  // It is refused before the model is asked for anything.
  TokenHistory tokens;
  const auto refused = prepare_response(request, std::get<ResponseHistory>(history), ServedModel{}, tokens,
                                        "ann", store_.get(), 0, {});
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  const ApiError& error = std::get<ApiError>(refused);
  EXPECT_EQ(error.http_status, 400);
  EXPECT_EQ(error.param, "input[1].id");
  EXPECT_EQ(error.code, "context_length_exceeded");
  for (const char* part : {"at most 6,000 bytes", "max_body"})
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
}

TEST_F(ResponseTurnTest, AHistoryIsAsLongAsABodyOrTheContext) {
  EXPECT_EQ(history_bytes_max(8'000, 100), 8'000u);
  EXPECT_EQ(history_bytes_max(8'000, 1'000), 64'000u);
}

// --- what is stored ---

FinishedChoice said(std::size_t tokens, std::size_t alternatives) {
  const std::string token = "word ";
  LogprobEntry entry{.bytes = token, .logprob = -0.5f, .top = {}};
  for (std::size_t i = 0; i < alternatives; ++i) entry.top.emplace_back(token, -1.5f);
  FinishedChoice choice;
  std::string text;
  for (std::size_t i = 0; i < tokens; ++i) {
    text += token;
    choice.output.logprobs.push_back(entry);
  }
  choice.output.parts = {TextPiece{text}};
  return choice;
}

ResponseTurn turn_with_logprobs() {
  ResponseTurn turn;
  turn.record = std::make_shared<ResponseRecord>(ResponseHead{.id = "resp_1",
                                                              .created_at = 5,
                                                              .model = "m",
                                                              .conversation = {},
                                                              .echo = Json::object(),
                                                              .logprobs = true});
  return turn;
}

// Items are read by each turn that follows, and no turn needs their log-probabilities.
TEST_F(ResponseTurnTest, LogProbabilitiesAreStoredWithTheResponseAlone) {
  const ResponseTurn turn = turn_with_logprobs();
  const StoredTurn stored = turn.ended(turn.record->finish(said(10, 2), {}), {});
  const Json response = Json::parse(stored.response.json);
  EXPECT_EQ(response["output"][0]["content"][0]["logprobs"].size(), 10u);
  ASSERT_EQ(stored.output.size(), 1u);
  Json item = Json::parse(stored.output[0].json);
  EXPECT_EQ(item["content"][0]["logprobs"], Json::array());
  item["content"][0]["logprobs"] = response["output"][0]["content"][0]["logprobs"];
  EXPECT_EQ(item, response["output"][0]) << "all else is the same";
}

TEST_F(ResponseTurnTest, AResponseThatIsTooLongToStoreLeavesOutItsLogProbabilities) {
  ResponseTurn turn = turn_with_logprobs();
  EXPECT_EQ(turn.response_bytes_max, kStoredJsonBytesMax);
  const ResponseEnd& end = turn.record->finish(said(100, 20), {});
  const std::string whole = dump_json(response_json(turn.record->head(), end));
  turn.response_bytes_max = whole.size();
  EXPECT_EQ(turn.ended(end, {}).response.json, whole);
  turn.response_bytes_max = whole.size() - 1;
  Json shorter = Json::parse(turn.ended(end, {}).response.json);
  Json& logprobs = shorter["output"][0]["content"][0]["logprobs"];
  EXPECT_TRUE(logprobs.is_array() && logprobs.empty());
  logprobs = Json::parse(whole)["output"][0]["content"][0]["logprobs"];
  EXPECT_EQ(dump_json(shorter), whole) << "all else is the same";
}

}  // namespace
}  // namespace loci
