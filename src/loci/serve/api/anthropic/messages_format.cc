// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/anthropic/messages_format.h"

#include <fmt/format.h>

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"
#include "loci/serve/wire/sse.h"

namespace loci {

namespace {

std::string event(std::string_view type, Json members) {
  Json json = {{"type", type}};
  json.update(members);
  return fmt::format("event: {}\n{}", type, sse_event(dump_json(json)));
}

// Tokens that came from the state that was there count apart from those that were computed.
Json messages_usage_json(const ReplyUsage& usage) {
  Json json = {{"input_tokens", usage.prompt_tokens - usage.cached_tokens},
               {"cache_creation_input_tokens", 0},
               {"cache_read_input_tokens", usage.cached_tokens},
               {"output_tokens", usage.completion_tokens}};
  if (usage.dropped_tokens > 0) json["dropped_input_tokens"] = usage.dropped_tokens;
  return json;
}

std::string_view stop_reason_name(ReplyFinish finish) {
  switch (finish) {
    case ReplyFinish::kStopString: return "stop_sequence";
    case ReplyFinish::kLength: return "max_tokens";
    case ReplyFinish::kToolCalls: return "tool_use";
    case ReplyFinish::kStop: break;
  }
  return "end_turn";
}

Json stop_json(const FinishedChoice& choice) {
  Json json = {{"stop_reason", stop_reason_name(choice.finish)}, {"stop_sequence", nullptr}};
  if (choice.finish == ReplyFinish::kStopString) json["stop_sequence"] = choice.stop_string;
  return json;
}

// The arguments of a call as an object. A call that max_tokens cut off is no JSON: its text stays readable.
Json input_json(const std::string& arguments) {
  Json json = json_or_null(arguments);
  if (json.is_object()) return json;
  if (arguments.empty()) return Json::object();
  return {{"unfinished_json", arguments}};
}

Json text_block(std::string_view text) { return {{"type", "text"}, {"text", text}}; }
Json thinking_block(std::string_view text) {
  return {{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
}
Json tool_use_block(const std::string& id, const std::string& name, Json input) {
  return {{"type", "tool_use"}, {"id", id}, {"name", name}, {"input", std::move(input)}};
}

Json content_json(const ModelOutput& output) {
  Json content = Json::array();
  for (const auto& part : output.parts) {
    if (const auto* text = std::get_if<TextPiece>(&part))
      content.push_back(text_block(text->text));
    else if (const auto* reasoning = std::get_if<ReasoningPiece>(&part))
      content.push_back(thinking_block(reasoning->text));
    else if (const auto* call = std::get_if<ToolCall>(&part))
      content.push_back(tool_use_block(call->id, call->name, input_json(call->arguments)));
  }
  return content;
}

class MessagesFormat final : public ReplyFormat {
 public:
  MessagesFormat(std::string id, std::string model) : id_(std::move(id)), model_(std::move(model)) {}

  std::string begin(const ReplyUsage& prompt) override;
  std::string begin_choice(std::uint32_t index) override;
  std::string delta(std::uint32_t index, const OutputDelta& delta) override;
  std::string finish_choice(const FinishedChoice& choice) override;
  std::string end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;
  std::string stream_error(const ApiError& error) override;
  std::string whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;

 private:
  enum class Block : std::uint8_t { kNone, kText, kThinking, kToolUse };

  Json message() const;
  // Ends the open block and begins one, which is of `kind` and looks like `json`.
  std::string start_block(Block kind, Json json);
  std::string block_delta(Json json) const;
  std::string end_block();

  std::string id_;
  std::string model_;
  Block open_ = Block::kNone;
  std::uint32_t next_block_ = 0;
};

Json MessagesFormat::message() const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", Json::array()},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr}};
}

std::string MessagesFormat::begin(const ReplyUsage& prompt) {
  Json json = message();
  json["usage"] = messages_usage_json(prompt);
  return event("message_start", {{"message", std::move(json)}}) + event("ping", Json::object());
}

std::string MessagesFormat::begin_choice(std::uint32_t) { return {}; }

std::string MessagesFormat::start_block(Block kind, Json json) {
  std::string events = end_block();
  open_ = kind;
  return events +
         event("content_block_start", {{"index", next_block_++}, {"content_block", std::move(json)}});
}

std::string MessagesFormat::block_delta(Json json) const {
  return event("content_block_delta", {{"index", next_block_ - 1}, {"delta", std::move(json)}});
}

std::string MessagesFormat::end_block() {
  if (open_ == Block::kNone) return {};
  std::string events;
  if (open_ == Block::kThinking) events = block_delta({{"type", "signature_delta"}, {"signature", ""}});
  open_ = Block::kNone;
  return events + event("content_block_stop", {{"index", next_block_ - 1}});
}

std::string MessagesFormat::delta(std::uint32_t, const OutputDelta& delta) {
  std::string events;
  for (const OutputPiece& piece : delta.pieces) {
    if (const auto* text = std::get_if<TextPiece>(&piece)) {
      if (open_ != Block::kText) events += start_block(Block::kText, text_block(""));
      events += block_delta({{"type", "text_delta"}, {"text", text->text}});
    } else if (const auto* reasoning = std::get_if<ReasoningPiece>(&piece)) {
      if (open_ != Block::kThinking) events += start_block(Block::kThinking, thinking_block(""));
      events += block_delta({{"type", "thinking_delta"}, {"thinking", reasoning->text}});
    } else if (const auto* start = std::get_if<ToolCallStart>(&piece)) {
      events += start_block(Block::kToolUse, tool_use_block(start->id, start->name, Json::object()));
    } else if (const auto* part = std::get_if<ToolCallPiece>(&piece)) {
      if (open_ == Block::kToolUse)
        events += block_delta({{"type", "input_json_delta"}, {"partial_json", part->arguments}});
    } else {
      events += end_block();
    }
  }
  return events;
}

std::string MessagesFormat::finish_choice(const FinishedChoice&) { return end_block(); }

std::string MessagesFormat::end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) {
  Json json = {{"delta", stop_json(choices.front())}, {"usage", messages_usage_json(usage)}};
  add_explanation(json, usage.explanation);
  return event("message_delta", std::move(json)) + event("message_stop", Json::object());
}

std::string MessagesFormat::stream_error(const ApiError& error) {
  return fmt::format("event: error\n{}", sse_event(to_json(error, ErrorStyle::kAnthropic)));
}

std::string MessagesFormat::whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) {
  const FinishedChoice& choice = choices.front();
  Json json = message();
  json["content"] = content_json(choice.output);
  json.update(stop_json(choice));
  json["usage"] = messages_usage_json(usage);
  add_explanation(json, usage.explanation);
  return dump_json(json);
}

}  // namespace

std::unique_ptr<ReplyFormat> make_messages_format(std::string id, std::string model) {
  return std::make_unique<MessagesFormat>(std::move(id), std::move(model));
}

}  // namespace loci
