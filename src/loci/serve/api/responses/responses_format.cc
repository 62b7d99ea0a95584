// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/responses_format.h"

#include "loci/base/clock.h"
#include "loci/serve/api/responses/ids.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/sse.h"

namespace loci {

// --- the record ---

const ResponseEnd& ResponseRecord::finish(const FinishedChoice& choice, const ReplyUsage& usage) {
  if (!end_) {
    end_ = ResponseEnd{.status = choice.finish == ReplyFinish::kLength ? "incomplete" : "completed",
                       .completed_at = seconds_since_1970(),
                       .output = output_items(head_, choice),
                       .usage = usage,
                       .error = {}};
  }
  return *end_;
}

const ResponseEnd& ResponseRecord::fail(const ApiError& error) {
  end_ = ResponseEnd{.status = "failed", .completed_at = 0, .output = {}, .usage = {}, .error = error};
  return *end_;
}

const ResponseEnd& ResponseRecord::cancel() {
  end_ = ResponseEnd{.status = "cancelled", .completed_at = 0, .output = {}, .usage = {}, .error = {}};
  return *end_;
}

// --- events ---

namespace {

std::string numbered_event(std::string_view type, std::uint64_t number, Json fields) {
  Json json = {{"type", type}, {"sequence_number", number}};
  for (auto& [name, value] : fields.items()) json[name] = std::move(value);
  return "event: " + std::string(type) + "\n" + sse_event(dump_json(json));
}

}  // namespace

std::string failed_event(const ResponseHead& head, const ResponseEnd& end, std::uint64_t number) {
  return numbered_event("response.failed", number, {{"response", response_json(head, end)}});
}

std::string ResponsesFormat::event(std::string_view type, Json fields) {
  return numbered_event(type, sequence_++, std::move(fields));
}

std::string ResponsesFormat::response_event(std::string_view type, Json response) {
  return event(type, {{"response", std::move(response)}});
}

std::string ResponsesFormat::call_event(std::string_view type, Json fields) {
  Json all = {{"item_id", item_id_}, {"output_index", items_ - 1}};
  for (auto& [name, value] : fields.items()) all[name] = std::move(value);
  return event(type, std::move(all));
}

std::string ResponsesFormat::part_event(std::string_view type, Json fields) {
  Json all = {{"item_id", item_id_}, {"output_index", items_ - 1}, {"content_index", 0}};
  for (auto& [name, value] : fields.items()) all[name] = std::move(value);
  return event(type, std::move(all));
}

std::string ResponsesFormat::queued() {
  begun_ = true;
  const Json response = response_json(record_->head(), "queued");
  std::string events = response_event("response.created", response);
  return events += response_event("response.queued", response);
}

std::string ResponsesFormat::begin(const ReplyUsage&) {
  const Json response = response_json(record_->head(), "in_progress");
  std::string events;
  if (!begun_) events = response_event("response.created", response);
  begun_ = true;
  return events + response_event("response.in_progress", response);
}

std::string ResponsesFormat::begin_choice(std::uint32_t) { return {}; }

// --- items ---

Item ResponsesFormat::open_item(const std::string& status) const {
  if (kind_ == Kind::kCall) return call_item(item_id_, status, call_);
  Item item = kind_ == Kind::kReasoning ? reasoning_item(item_id_, status, text_)
                                        : message_item(item_id_, status, text_, item_logprobs_);
  // Its part is added by an event of its own.
  if (status == "in_progress") item["content"] = Json::array();
  return item;
}

std::string ResponsesFormat::open(Kind kind, ToolCall call) {
  std::string events = close("completed", false);
  kind_ = kind;
  text_.clear();
  item_logprobs_.clear();
  call_ = std::move(call);
  const char* prefix = kind == Kind::kCall ? "fc_" : kind == Kind::kReasoning ? "rs_" : "msg_";
  item_id_ = output_item_id(prefix, record_->head().id, items_++);
  events +=
      event("response.output_item.added", {{"output_index", items_ - 1}, {"item", open_item("in_progress")}});
  if (kind == Kind::kCall) return events;
  Item part = kind == Kind::kText ? output_text_part("", {}) : reasoning_text_part("");
  return events + part_event("response.content_part.added", {{"part", std::move(part)}});
}

std::string ResponsesFormat::close(const std::string& status, bool last) {
  std::string events;
  if (kind_ == Kind::kNone) return events;
  if (kind_ == Kind::kCall) {
    events = call_event("response.function_call_arguments.done",
                        {{"name", call_.name}, {"arguments", call_.arguments}});
  } else if (kind_ == Kind::kReasoning) {
    events = part_event("response.reasoning_text.done", {{"text", text_}});
    events += part_event("response.content_part.done", {{"part", reasoning_text_part(text_)}});
  } else {
    if (record_->head().logprobs) item_logprobs_ = logprobs_of_text(logprobs_, text_, items_ == 1, last);
    events = part_event("response.output_text.done",
                        {{"text", text_}, {"logprobs", logprobs_json(item_logprobs_)}});
    events += part_event("response.content_part.done", {{"part", output_text_part(text_, item_logprobs_)}});
  }
  events += event("response.output_item.done", {{"output_index", items_ - 1}, {"item", open_item(status)}});
  kind_ = Kind::kNone;
  return events;
}

std::string ResponsesFormat::text_delta(Kind kind, const std::string& text) {
  if (text.empty()) return {};
  std::string events = kind_ == kind ? std::string() : open(kind, {});
  text_ += text;
  if (kind == Kind::kReasoning) {
    waiting_.clear();
    return events + part_event("response.reasoning_text.delta", {{"delta", text}});
  }
  Json logprobs = logprobs_json(waiting_);
  waiting_.clear();
  return events +
         part_event("response.output_text.delta", {{"delta", text}, {"logprobs", std::move(logprobs)}});
}

std::string ResponsesFormat::piece(const OutputPiece& piece) {
  if (const auto* text = std::get_if<TextPiece>(&piece)) return text_delta(Kind::kText, text->text);
  if (const auto* text = std::get_if<ReasoningPiece>(&piece)) return text_delta(Kind::kReasoning, text->text);
  if (const auto* start = std::get_if<ToolCallStart>(&piece))
    return open(Kind::kCall, {.id = start->id, .name = start->name, .arguments = {}});
  const auto* part = std::get_if<ToolCallPiece>(&piece);
  if (part == nullptr || part->arguments.empty() || kind_ != Kind::kCall) return {};
  waiting_.clear();
  call_.arguments += part->arguments;
  return call_event("response.function_call_arguments.delta", {{"delta", part->arguments}});
}

std::string ResponsesFormat::delta(std::uint32_t, const OutputDelta& delta) {
  if (record_->head().logprobs) {
    logprobs_.insert(logprobs_.end(), delta.logprobs.begin(), delta.logprobs.end());
    waiting_.insert(waiting_.end(), delta.logprobs.begin(), delta.logprobs.end());
  }
  std::string events;
  for (const OutputPiece& one : delta.pieces) events += piece(one);
  return events;
}

std::string ResponsesFormat::finish_choice(const FinishedChoice& choice) {
  std::string events;
  if (items_ == 0) events = open(Kind::kText, {});
  return events + close(choice.finish == ReplyFinish::kLength ? "incomplete" : "completed", true);
}

// --- ends ---

std::string ResponsesFormat::end(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) {
  const ResponseEnd& end = record_->finish(choices.front(), usage);
  return response_event("response." + end.status, response_json(record_->head(), end));
}

std::string ResponsesFormat::stream_error(const ApiError& error) {
  if (begun_) return response_event("response.failed", response_json(record_->head(), record_->fail(error)));
  const auto text_or_null = [](const std::string& text) { return text.empty() ? Json() : Json(text); };
  return event(
      "error",
      {{"code", text_or_null(error.code)}, {"message", error.message}, {"param", text_or_null(error.param)}});
}

std::string ResponsesFormat::whole(const std::vector<FinishedChoice>& choices, const ReplyUsage& usage) {
  return dump_json(response_json(record_->head(), record_->finish(choices.front(), usage)));
}

}  // namespace loci
