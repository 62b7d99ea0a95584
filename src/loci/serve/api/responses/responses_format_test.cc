// SPDX-License-Identifier: Apache-2.0
// The response object and its stream: what the events add up to is the object that is sent whole.
#include "loci/serve/api/responses/responses_format.h"
#include "loci/serve/wire/json.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "loci/serve/api/responses/response_request.h"
#include "loci/serve/wire/sse.h"

namespace loci {
namespace {

std::shared_ptr<ResponseRecord> record(bool logprobs = false) {
  Result<ResponseRequest> request = parse_response_request({{"input", "x"}}, true);
  EXPECT_TRUE(request.ok());
  return std::make_shared<ResponseRecord>(ResponseHead{.id = "resp_1",
                                                       .created_at = 5,
                                                       .model = "m",
                                                       .conversation = {},
                                                       .echo = request->echo,
                                                       .logprobs = logprobs});
}

// The objects of a stream; each one's line of its name must agree with it.
std::vector<Json> events_of(const std::string& stream) {
  std::vector<Json> out;
  SseParser parser;
  for (const std::string& data : parser.push(stream)) out.push_back(Json::parse(data));
  std::size_t at = 0;
  for (const Json& event : out) {
    const std::string line = "event: " + event["type"].get<std::string>() + "\ndata: ";
    at = stream.find(line, at);
    EXPECT_NE(at, std::string::npos) << line;
    ++at;
  }
  return out;
}

struct Told {
  std::vector<Json> events;
  Json whole;
};

// The same reply as a stream and whole.
Told tell(const std::vector<OutputDelta>& deltas, ReplyFinish finish, bool logprobs = false) {
  const auto shared = record(logprobs);
  ResponsesFormat format(shared);
  const ReplyUsage usage{
      .prompt_tokens = 9, .cached_tokens = 4, .completion_tokens = 3, .reasoning_tokens = 1};
  FinishedChoice choice;
  choice.finish = finish;
  std::string stream = format.begin(usage);
  stream += format.begin_choice(0);
  for (const OutputDelta& delta : deltas) {
    stream += format.delta(0, delta);
    choice.output.append(delta);
  }
  stream += format.finish_choice(choice);
  stream += format.end({choice}, usage);
  return {.events = events_of(stream), .whole = Json::parse(ResponsesFormat(shared).whole({choice}, usage))};
}

// Checks numbers and nesting, and returns the items that the stream says are done.
Json items_of(const Told& told) {
  Json done = Json::array();
  for (std::size_t i = 0; i < told.events.size(); ++i) {
    const Json& event = told.events[i];
    EXPECT_EQ(event["sequence_number"], i);
    const std::string type = event["type"];
    if (event.contains("output_index")) {
      EXPECT_EQ(event["output_index"], done.size()) << type;
    }
    if (type == "response.output_item.done") done.push_back(event["item"]);
  }
  return done;
}

std::string joined(const Told& told, const std::string& type) {
  std::string out;
  for (const Json& event : told.events) {
    if (event["type"] == type) out += event["delta"].get<std::string>();
  }
  return out;
}

TEST(ResponsesFormat, TextAsAStreamAndWhole) {
  const Told told =
      tell({{.pieces = {TextPiece{"Hel"}}, .logprobs = {}}, {.pieces = {TextPiece{"lo"}}, .logprobs = {}}},
           ReplyFinish::kStop);
  std::vector<std::string> types;
  for (const Json& event : told.events) types.push_back(event["type"]);
  EXPECT_EQ(types, (std::vector<std::string>{"response.created", "response.in_progress",
                                             "response.output_item.added", "response.content_part.added",
                                             "response.output_text.delta", "response.output_text.delta",
                                             "response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.completed"}));
  EXPECT_EQ(items_of(told), told.whole["output"]);
  EXPECT_EQ(told.events.back()["response"], told.whole);
  EXPECT_EQ(joined(told, "response.output_text.delta"), "Hello");
  EXPECT_EQ(told.whole["output"][0]["content"][0]["text"], "Hello");
  EXPECT_EQ(told.whole["status"], "completed");
  EXPECT_EQ(told.whole["object"], "response");
  EXPECT_GT(told.whole["completed_at"], 0);
  EXPECT_TRUE(told.whole["error"].is_null() && told.whole["incomplete_details"].is_null());
  EXPECT_EQ(told.whole["usage"]["input_tokens"], 9);
  EXPECT_EQ(told.whole["usage"]["input_tokens_details"]["cached_tokens"], 4);
  EXPECT_EQ(told.whole["usage"]["output_tokens_details"]["reasoning_tokens"], 1);
  EXPECT_EQ(told.whole["usage"]["total_tokens"], 12);
  EXPECT_EQ(told.events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(told.events[0]["response"]["output"], Json::array());
  EXPECT_TRUE(told.events[0]["response"]["usage"].is_null());
}

TEST(ResponsesFormat, ReasoningCallsAndTextInTurn) {
  const Told told = tell({{.pieces = {ReasoningPiece{"so"}, ReasoningPiece{"..."}, TextPiece{"I call"},
                                      ToolCallStart{"c1", "f"}, ToolCallPiece{"{\"a\""}},
                           .logprobs = {}},
                          {.pieces = {ToolCallPiece{":1}"}, ToolCallEnd{}, ToolCallStart{"c2", "g"},
                                      ToolCallPiece{"{}"}, ToolCallEnd{}},
                           .logprobs = {}}},
                         ReplyFinish::kToolCalls);
  const Json items = items_of(told);
  EXPECT_EQ(items, told.whole["output"]);
  ASSERT_EQ(items.size(), 4u);
  EXPECT_EQ(items[0]["type"], "reasoning");
  EXPECT_EQ(items[0]["content"][0]["text"], "so...");
  EXPECT_TRUE(items[0]["id"].get<std::string>().starts_with("rs_"));
  EXPECT_EQ(items[1]["content"][0]["text"], "I call");
  EXPECT_EQ(items[2]["arguments"], "{\"a\":1}");
  EXPECT_EQ(items[2]["call_id"], "c1");
  EXPECT_TRUE(items[2]["id"].get<std::string>().starts_with("fc_"));
  EXPECT_EQ(items[3]["name"], "g");
  EXPECT_EQ(joined(told, "response.reasoning_text.delta"), "so...");
  EXPECT_EQ(joined(told, "response.function_call_arguments.delta"), "{\"a\":1}{}");
  EXPECT_EQ(told.whole["status"], "completed");
}

TEST(ResponsesFormat, CutOffIsIncomplete) {
  const Told told = tell({{.pieces = {TextPiece{"Hel"}}, .logprobs = {}}}, ReplyFinish::kLength);
  EXPECT_EQ(told.events.back()["type"], "response.incomplete");
  EXPECT_EQ(told.events.back()["response"], told.whole);
  EXPECT_EQ(told.whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(told.whole["output"][0]["status"], "incomplete");
  EXPECT_EQ(items_of(told), told.whole["output"]);
}

TEST(ResponsesFormat, NothingSaidIsAnEmptyMessage) {
  const Told told = tell({}, ReplyFinish::kStop);
  ASSERT_EQ(items_of(told).size(), 1u);
  EXPECT_EQ(items_of(told), told.whole["output"]);
  EXPECT_EQ(told.whole["output"][0]["content"][0]["text"], "");
}

TEST(ResponsesFormat, LogprobsOfTheText) {
  const auto entry = [](const char* bytes) {
    return LogprobEntry{.bytes = bytes, .logprob = -0.5f, .top = {{bytes, -0.5f}}, .text_offset = 0};
  };
  const Told one = tell({{.pieces = {TextPiece{"ab"}}, .logprobs = {entry("a"), entry("b")}},
                         {.pieces = {}, .logprobs = {entry("c")}}},
                        ReplyFinish::kStop, true);
  EXPECT_EQ(one.whole["output"][0]["content"][0]["logprobs"].size(), 3u);
  EXPECT_EQ(items_of(one), one.whole["output"]);
  EXPECT_EQ(one.events[4]["logprobs"][1]["token"], "b");
  EXPECT_EQ(one.events[4]["logprobs"][1]["top_logprobs"][0]["logprob"], -0.5);
  EXPECT_EQ(one.whole["output"][0]["content"][0]["logprobs"][0]["bytes"], Json::array({97}));
  // Tokens of reasoning and of calls are not the text's.
  const Told last = tell({{.pieces = {ReasoningPiece{"x"}}, .logprobs = {entry("x")}},
                          {.pieces = {TextPiece{"ab"}}, .logprobs = {entry("a"), entry("b")}}},
                         ReplyFinish::kStop, true);
  EXPECT_EQ(last.whole["output"][1]["content"][0]["logprobs"].size(), 2u);
  EXPECT_EQ(items_of(last), last.whole["output"]);
  const Told first =
      tell({{.pieces = {TextPiece{"ab"}}, .logprobs = {entry("a"), entry("b")}},
            {.pieces = {ToolCallStart{"c", "f"}, ToolCallPiece{"{}"}}, .logprobs = {entry("z")}}},
           ReplyFinish::kToolCalls, true);
  EXPECT_EQ(first.whole["output"][0]["content"][0]["logprobs"].size(), 2u);
  EXPECT_EQ(items_of(first), first.whole["output"]);
}

TEST(ResponsesFormat, ErrorsOfAStream) {
  ResponsesFormat format(record());
  const Json early = events_of(format.stream_error(api_error(invalid_argument("bad", "input")))).at(0);
  EXPECT_EQ(early["type"], "error");
  EXPECT_EQ(early["param"], "input");
  std::string stream = format.begin({});
  stream += format.stream_error(api_error(Status(StatusCode::kUnavailable, "stopping")));
  const Json failed = events_of(stream).back();
  EXPECT_EQ(failed["type"], "response.failed");
  EXPECT_EQ(failed["response"]["status"], "failed");
  EXPECT_EQ(failed["response"]["error"]["code"], "server_error");
  EXPECT_EQ(failed["response"]["error"]["message"], "stopping");
}

TEST(ResponsesFormat, QueuedComesFirst) {
  ResponsesFormat format(record());
  std::string stream = format.queued();
  stream += format.begin({});
  const std::vector<Json> events = events_of(stream);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0]["type"], "response.created");
  EXPECT_EQ(events[0]["response"]["status"], "queued");
  EXPECT_EQ(events[1]["type"], "response.queued");
  EXPECT_EQ(events[2]["type"], "response.in_progress");
  EXPECT_EQ(events[2]["sequence_number"], 2);
}

}  // namespace
}  // namespace loci
