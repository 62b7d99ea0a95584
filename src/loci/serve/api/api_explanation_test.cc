// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/generation/explanation.h"
#include "loci/serve/wire/json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loci/serve/api/anthropic/messages_format.h"
#include "loci/serve/api/openai/chat_format.h"
#include "loci/serve/api/openai/completion_format.h"
#include "loci/serve/api/responses/response_object.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace {

ReplyExplanation sample(bool wanted) {
  ReplyExplanation out{.wanted = wanted, .sources = {}, .queued = 1'500'000, .first_token = {}};
  out.sources = {
      .device = 64, .host = 32, .disk = 96, .shared = 16, .hidden = 32, .computed = {7, 32, 0, 64, 1}};
  out.sources.predicted_load = 2'000'000;
  out.sources.predicted_compute = 3'250'000;
  out.sources.restore = {.rule = RestoreRule::kPensieve,
                         .planned = 4'000'000,
                         .loading_all = 5'000'000,
                         .computing_all = 6'500'000};
  return out;
}

const Json kExpected = Json::parse(R"({
  "tokens": {"device": 64, "host": 32, "disk": 96, "shared": 16, "computed": 104},
  "disk_forms": {"kv": 64, "hidden": 32},
  "computed_because": {"never_seen": 7, "evicted": 32, "expired": 0, "damaged": 64, "too_slow": 1},
  "predicted_ms": {"load": 2.0, "compute": 3.25},
  "restore": {"plan": "pensieve", "planned_ms": 4.0, "loading_all_ms": 5.0, "computing_all_ms": 6.5},
  "real_ms": {"queued": 1.5, "first_token": null}})");

TEST(Explanation, IsJson) { EXPECT_EQ(Json::parse(explanation_json(sample(true)).dump()), kExpected); }

TEST(Explanation, AddsPromptsThatLoadTogether) {
  ContextSources sum = sample(true).sources;
  ContextSources other{.device = 1, .host = 2, .disk = 3, .shared = 4, .computed = {1, 1, 1, 1, 1}};
  other.predicted_load = 9'000'000;
  other.predicted_compute = 1'000'000;
  other.restore = {.rule = RestoreRule::kPensieve,
                   .planned = 3'000'000,
                   .loading_all = 9'000'000,
                   .computing_all = 7'000'000};
  add(sum, other);
  EXPECT_EQ(sum.cached(), 64u + 32 + 96 + 16 + 10);
  EXPECT_EQ(computed_tokens(sum), 109u);
  EXPECT_EQ(sum.predicted_load, 9'000'000);
  EXPECT_EQ(sum.predicted_compute, 4'250'000);
  EXPECT_EQ(sum.restore.rule, RestoreRule::kPensieve);
  EXPECT_EQ(sum.restore.planned, 4'000'000);
  EXPECT_EQ(sum.restore.loading_all, 9'000'000);
  EXPECT_EQ(sum.restore.computing_all, 7'000'000);
}

FinishedChoice choice() {
  FinishedChoice out;
  out.output.parts.emplace_back(TextPiece{"hi"});
  return out;
}

ReplyUsage usage(bool wanted) {
  return {.prompt_tokens = 296, .cached_tokens = 192, .completion_tokens = 2, .explanation = sample(wanted)};
}

// The last object of a stream's events.
Json last_of(const std::string& events) {
  SseParser parser;
  Json out;
  for (const std::string& data : parser.push(events)) {
    if (data != kSseDone) out = Json::parse(data);
  }
  return out;
}

template <class Format>
void expect_explained(Format&& make, const char* what) {
  for (const bool wanted : {true, false}) {
    const Json whole = Json::parse(make()->whole({choice()}, usage(wanted)));
    EXPECT_EQ(whole.contains("loci"), wanted) << what;
    if (wanted) {
      EXPECT_EQ(whole["loci"], kExpected) << what;
    }
  }
}

TEST(Explanation, IsInEveryFormatWhereItIsWanted) {
  const ReplyHead head{.id = "i", .created = 5, .model = "m", .fingerprint = "f"};
  expect_explained([&] { return make_chat_format(head); }, "chat");
  expect_explained([&] { return make_completion_format(head); }, "completions");
  expect_explained([&] { return make_messages_format("msg_1", "m"); }, "messages");
}

TEST(Explanation, IsInTheResponseObject) {
  const ResponseEnd end{
      .status = "completed", .completed_at = 1, .output = {}, .usage = usage(true), .error = {}};
  EXPECT_EQ(Json::parse(response_json({}, end).dump())["loci"], kExpected);
}

TEST(Explanation, EndsAStream) {
  ReplyHead head{.id = "i", .created = 5, .model = "m", .fingerprint = "f", .include_usage = true};
  const Json with_usage = last_of(make_chat_format(head)->end({choice()}, usage(true)));
  EXPECT_EQ(with_usage["loci"], kExpected);
  EXPECT_EQ(with_usage["usage"]["prompt_tokens"], 296);
  head.include_usage = false;
  const Json alone = last_of(make_completion_format(head)->end({choice()}, usage(true)));
  EXPECT_EQ(alone["loci"], kExpected);
  EXPECT_FALSE(alone.contains("usage"));
  EXPECT_TRUE(last_of(make_chat_format(head)->end({choice()}, usage(false))).is_null());
  // The event before message_stop has Anthropic's usage.
  const std::string events = make_messages_format("msg_1", "m")->end({choice()}, usage(true));
  EXPECT_NE(events.find("\"message_delta\""), std::string::npos);
  EXPECT_LT(events.find("\"loci\""), events.find("message_stop"));
}

}  // namespace
}  // namespace loci
