// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/chat_format.h"

#include <string>
#include <utility>
#include <vector>

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/sse.h"

namespace loci {

namespace {

constexpr std::string_view kChunk = "chat.completion.chunk";

Json message_json(const ModelOutput& output) {
  const std::string text = output.text();
  const std::vector<ToolCall> calls = output.tool_calls();
  Json message = {{"role", "assistant"}, {"content", nullptr}, {"refusal", nullptr}};
  if (!text.empty() || calls.empty()) message["content"] = text;
  if (const std::string reasoning = output.reasoning(); !reasoning.empty())
    message["reasoning_content"] = reasoning;
  if (calls.empty()) return message;
  Json list = Json::array();
  for (const ToolCall& call : calls) {
    list.push_back({{"id", call.id},
                    {"type", "function"},
                    {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  message["tool_calls"] = std::move(list);
  return message;
}

class ChatFormat final : public ReplyFormat {
 public:
  explicit ChatFormat(ReplyHead head) : head_(std::move(head)) {}

  std::string begin(const ReplyUsage& prompt) override;
  std::string begin_choice(std::uint32_t index) override;
  std::string delta(std::uint32_t index, const OutputDelta& delta) override;
  std::string finish_choice(const FinishedChoice& choice) override;
  std::string end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;
  std::string stream_error(const ApiError& error) override;
  std::string whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) override;

 private:
  std::string chunk(std::uint32_t index, Json delta, const std::vector<LogprobEntry>* logprobs);

  ReplyHead head_;
  UsageSoFar usage_;
  std::vector<std::uint32_t> calls_;  // of each choice, so far
};

std::string ChatFormat::chunk(std::uint32_t index, Json delta, const std::vector<LogprobEntry>* logprobs) {
  Json choice = {{"index", index}, {"delta", std::move(delta)}, {"logprobs", nullptr}};
  if (head_.logprobs && logprobs != nullptr) choice["logprobs"] = chat_logprobs_json(*logprobs);
  choice["finish_reason"] = nullptr;
  return chunk_event(head_, kChunk, Json::array({std::move(choice)}), usage_);
}

std::string ChatFormat::begin(const ReplyUsage& prompt) {
  usage_.begin(prompt);
  return {};
}

std::string ChatFormat::begin_choice(std::uint32_t index) {
  return chunk(index, {{"role", "assistant"}, {"content", ""}}, nullptr);
}

std::string ChatFormat::delta(std::uint32_t index, const OutputDelta& delta) {
  if (calls_.size() <= index) calls_.resize(index + 1);
  usage_.set_tokens(index, delta.tokens);
  std::string events;
  // The tokens' log-probabilities go with the first chunk of what they spell.
  const std::vector<LogprobEntry>* logprobs = &delta.logprobs;
  const auto add = [&](Json json) {
    events += chunk(index, std::move(json), logprobs);
    logprobs = nullptr;
  };
  const auto add_call = [&](Json call) { add(Json{{"tool_calls", Json::array({std::move(call)})}}); };
  for (const OutputPiece& piece : delta.pieces) {
    if (const auto* text = std::get_if<TextPiece>(&piece)) {
      add({{"content", text->text}});
    } else if (const auto* reasoning = std::get_if<ReasoningPiece>(&piece)) {
      add({{"reasoning_content", reasoning->text}});
    } else if (const auto* start = std::get_if<ToolCallStart>(&piece)) {
      add_call({{"index", calls_[index]++},
                {"id", start->id},
                {"type", "function"},
                {"function", {{"name", start->name}, {"arguments", ""}}}});
    } else if (const auto* part = std::get_if<ToolCallPiece>(&piece)) {
      add_call({{"index", calls_[index] - 1}, {"function", {{"arguments", part->arguments}}}});
    }
  }
  if (events.empty() && head_.logprobs && !delta.logprobs.empty()) add({{"content", ""}});
  return events;
}

std::string ChatFormat::finish_choice(const FinishedChoice& choice) {
  usage_.set_tokens(choice.index, choice.tokens.size());
  Json json = {{"index", choice.index},
               {"delta", Json::object()},
               {"logprobs", nullptr},
               {"finish_reason", finish_reason_name(choice.finish)}};
  return chunk_event(head_, kChunk, Json::array({std::move(json)}), usage_);
}

std::string ChatFormat::end(const std::vector<FinishedChoice>&, const ReplyUsage& usage) {
  return usage_event(head_, kChunk, usage) + sse_event(kSseDone);
}

std::string ChatFormat::stream_error(const ApiError& error) {
  return sse_event(to_json(error)) + sse_event(kSseDone);
}

std::string ChatFormat::whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) {
  Json list = Json::array();
  for (const FinishedChoice& choice : choices) {
    Json one = {{"index", choice.index}, {"message", message_json(choice.output)}, {"logprobs", nullptr}};
    if (head_.logprobs) one["logprobs"] = chat_logprobs_json(choice.output.logprobs);
    one["finish_reason"] = finish_reason_name(choice.finish);
    list.push_back(std::move(one));
  }
  Json json = head_json(head_, "chat.completion");
  json["choices"] = std::move(list);
  json["usage"] = usage_json(usage);
  add_explanation(json, usage.explanation);
  return dump_json(json);
}

}  // namespace

std::unique_ptr<ReplyFormat> make_chat_format(ReplyHead head) {
  return std::make_unique<ChatFormat>(std::move(head));
}

}  // namespace loci
