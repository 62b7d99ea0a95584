// SPDX-License-Identifier: Apache-2.0
// What a turn writes to the store.
#include "loci/serve/api/responses/response_turn.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loci/serve/store/stored_text.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

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
TEST(ResponseTurn, LogProbabilitiesAreStoredWithTheResponseAlone) {
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

TEST(ResponseTurn, AResponseThatIsTooLongToStoreLeavesOutItsLogProbabilities) {
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
