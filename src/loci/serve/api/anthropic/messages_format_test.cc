// SPDX-License-Identifier: Apache-2.0
// Anthropic's replies: the events of a stream in their order, and that together they are the whole.
#include "loci/serve/api/anthropic/messages_format.h"
#include "loci/serve/wire/json.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace loci {
namespace {

// Parses "event: NAME\ndata: JSON\n\n" ...; the name is the data's type.
std::vector<Json> events(const std::string& stream) {
  std::vector<Json> out;
  std::size_t at = 0;
  while (at < stream.size()) {
    const std::size_t end = stream.find("\n\n", at);
    const std::string one = stream.substr(at, end - at);
    const std::size_t line = one.find('\n');
    EXPECT_TRUE(one.starts_with("event: ")) << one;
    EXPECT_EQ(one.substr(line + 1, 6), "data: ") << one;
    out.push_back(Json::parse(one.substr(line + 7)));
    const std::string name = one.substr(7, line - 7);
    EXPECT_EQ(out.back()["type"], name);
    at = end + 2;
  }
  return out;
}

std::vector<std::string> types(const std::vector<Json>& list) {
  std::vector<std::string> out;
  for (const Json& one : list) out.push_back(one["type"]);
  return out;
}

const ReplyUsage kPrompt{.prompt_tokens = 12, .cached_tokens = 8};
const ReplyUsage kUsage{.prompt_tokens = 12, .cached_tokens = 8, .completion_tokens = 5};

// What a model that thinks, speaks and calls two tools gives, piece by piece.
std::vector<OutputDelta> deltas() {
  std::vector<OutputDelta> out(6);
  out[0].pieces = {ReasoningPiece{"h"}, ReasoningPiece{"m"}};
  out[1].pieces = {TextPiece{"I "}};
  out[2].pieces = {TextPiece{"see"}, ToolCallStart{"c1", "f"}};
  out[3].pieces = {ToolCallPiece{"{\"a\":"}};
  out[4].pieces = {ToolCallPiece{"1}"}, ToolCallEnd{}};
  out[5].pieces = {ToolCallStart{"c2", "g"}, ToolCallPiece{"{}"}, ToolCallEnd{}};
  return out;
}

FinishedChoice finished(ReplyFinish finish) {
  FinishedChoice choice{.finish = finish, .stop_string = {}};
  for (OutputDelta& delta : deltas()) choice.output.append(std::move(delta));
  return choice;
}

std::string streamed(const std::unique_ptr<ReplyFormat>& format, const FinishedChoice& choice) {
  std::string out = format->begin(kPrompt) + format->begin_choice(0);
  for (const OutputDelta& delta : deltas()) out += format->delta(0, delta);
  return out + format->finish_choice(choice) + format->end({choice}, kUsage);
}

TEST(MessagesFormat, WholeHasBlocksInOrder) {
  const std::unique_ptr<ReplyFormat> format = make_messages_format("msg_1", "m");
  const Json body = Json::parse(format->whole({finished(ReplyFinish::kToolCalls)}, kUsage));
  EXPECT_EQ(body, Json::parse(R"({"id": "msg_1", "type": "message", "role": "assistant", "model": "m",
      "content": [{"type": "thinking", "thinking": "hm", "signature": ""}, {"type": "text", "text": "I see"},
                  {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                  {"type": "tool_use", "id": "c2", "name": "g", "input": {}}],
      "stop_reason": "tool_use", "stop_sequence": null,
      "usage": {"input_tokens": 4, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 8,
                "output_tokens": 5}})"));
}

TEST(MessagesFormat, StreamHasTheEventsInOrder) {
  const std::unique_ptr<ReplyFormat> format = make_messages_format("msg_1", "m");
  const std::vector<Json> list = events(streamed(format, finished(ReplyFinish::kToolCalls)));
  const std::string start = "content_block_start";
  const std::string delta = "content_block_delta";
  const std::string stop = "content_block_stop";
  EXPECT_EQ(types(list), (std::vector<std::string>{
                             "message_start", "ping",        start, delta, delta, delta, stop,  start, delta,
                             delta,           stop,          start, delta, delta, stop,  start, delta, stop,
                             "message_delta", "message_stop"}));
  EXPECT_EQ(list[0]["message"]["usage"]["input_tokens"], 4);
  EXPECT_EQ(list[0]["message"]["usage"]["cache_read_input_tokens"], 8);
  EXPECT_EQ(list[0]["message"]["content"], Json::array());
  EXPECT_EQ(list[18]["delta"], Json::parse(R"({"stop_reason": "tool_use", "stop_sequence": null})"));
  EXPECT_EQ(list[18]["usage"]["output_tokens"], 5);
}

// As the official client puts a message together.
TEST(MessagesFormat, StreamAddsUpToTheWhole) {
  const std::unique_ptr<ReplyFormat> format = make_messages_format("msg_1", "m");
  const FinishedChoice choice = finished(ReplyFinish::kToolCalls);
  Json message;
  std::string arguments;
  for (const Json& event : events(streamed(format, choice))) {
    const std::string type = event["type"];
    if (type == "message_start") message = event["message"];
    if (type == "content_block_start") {
      ASSERT_EQ(event["index"], message["content"].size());
      message["content"].push_back(event["content_block"]);
      arguments.clear();
    }
    if (type == "content_block_delta") {
      ASSERT_EQ(event["index"], message["content"].size() - 1);
      Json& block = message["content"].back();
      const Json& delta = event["delta"];
      if (delta["type"] == "text_delta")
        block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
      if (delta["type"] == "thinking_delta")
        block["thinking"] = block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
      if (delta["type"] == "input_json_delta") {
        arguments += delta["partial_json"].get<std::string>();
        if (Json::accept(arguments)) block["input"] = Json::parse(arguments);
      }
    }
    if (type == "message_delta") {
      message.update(event["delta"]);
      message["usage"] = event["usage"];
    }
  }
  EXPECT_EQ(message, Json::parse(format->whole({choice}, kUsage)));
}

TEST(MessagesFormat, SaysWhyItStopped) {
  const std::unique_ptr<ReplyFormat> format = make_messages_format("msg_1", "m");
  const auto reason = [&](ReplyFinish finish) {
    FinishedChoice choice{.finish = finish, .stop_string = finish == ReplyFinish::kStopString ? "END" : ""};
    const Json body = Json::parse(format->whole({choice}, kUsage));
    return std::pair(body["stop_reason"].get<std::string>(), body["stop_sequence"]);
  };
  EXPECT_EQ(reason(ReplyFinish::kStop), std::pair(std::string("end_turn"), Json()));
  EXPECT_EQ(reason(ReplyFinish::kLength), std::pair(std::string("max_tokens"), Json()));
  EXPECT_EQ(reason(ReplyFinish::kToolCalls), std::pair(std::string("tool_use"), Json()));
  EXPECT_EQ(reason(ReplyFinish::kStopString), std::pair(std::string("stop_sequence"), Json("END")));
}

TEST(MessagesFormat, ACallThatWasCutOffStaysReadable) {
  const std::unique_ptr<ReplyFormat> format = make_messages_format("msg_1", "m");
  FinishedChoice choice{.finish = ReplyFinish::kLength, .stop_string = {}};
  choice.output.parts.emplace_back(ToolCall{"c1", "f", "{\"a\": [1,"});
  const Json body = Json::parse(format->whole({choice}, kUsage));
  EXPECT_EQ(body["content"][0]["input"], Json({{"unfinished_json", "{\"a\": [1,"}}));
}

TEST(MessagesFormat, ErrorsInAStreamAreEvents) {
  const std::unique_ptr<ReplyFormat> format = make_messages_format("msg_1", "m");
  const std::vector<Json> list = events(format->stream_error(http_error(503, "stopping")));
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(
      list[0],
      Json::parse(R"({"type": "error", "error": {"type": "overloaded_error", "message": "stopping"}})"));
}

TEST(MessagesErrors, SayWhatIsMissingForAThread) {
  ApiError error = api_error(unimplemented("is not supported", "thread"));
  EXPECT_EQ(
      Json::parse(to_json(error, ErrorStyle::kAnthropic)),
      Json::parse(
          R"({"type": "error", "error": {"type": "invalid_request_error", "message": "thread: is not supported"}})"));
  error.code = kThreadUnsupported;
  EXPECT_EQ(Json::parse(to_json(error, ErrorStyle::kAnthropic))["error"]["details"],
            Json::parse(R"({"error_code": "thread_unsupported_request"})"));
  EXPECT_EQ(Json::parse(to_json(error))["error"]["code"], kThreadUnsupported);
}

}  // namespace
}  // namespace loci
