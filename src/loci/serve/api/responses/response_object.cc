// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/response_object.h"

#include <algorithm>

#include "loci/serve/api/responses/ids.h"
#include "loci/serve/wire/json.h"

namespace loci {

namespace {

Json output_token_json(const std::string& bytes, float logprob) {
  Json values = Json::array();
  for (const char c : bytes) values.push_back(static_cast<unsigned char>(c));
  return {{"token", bytes}, {"bytes", std::move(values)}, {"logprob", logprob}};
}

Json response_usage_json(const ReplyUsage& usage) {
  // Whatever is computed is kept for the next turn.
  Json details = {
      {"cached_tokens", usage.cached_tokens},
      {"cache_write_tokens", usage.prompt_tokens - std::min(usage.cached_tokens, usage.prompt_tokens)}};
  if (usage.dropped_tokens > 0) details["dropped_tokens"] = usage.dropped_tokens;
  return {{"input_tokens", usage.prompt_tokens},
          {"input_tokens_details", std::move(details)},
          {"output_tokens", usage.completion_tokens},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
}

}  // namespace

Json response_json(const ResponseHead& head, const ResponseEnd& end) {
  Json json = {{"id", head.id},
               {"object", "response"},
               {"created_at", head.created_at},
               {"status", end.status},
               {"completed_at", nullptr},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"model", head.model},
               {"conversation", nullptr},
               {"output", Json::array()},
               {"usage", nullptr}};
  if (end.completed_at != 0) json["completed_at"] = end.completed_at;
  if (end.error) json["error"] = response_error_json(*end.error);
  if (end.status == "incomplete") json["incomplete_details"] = {{"reason", "max_output_tokens"}};
  if (!head.conversation.empty()) json["conversation"] = {{"id", head.conversation}};
  for (const Item& item : end.output) json["output"].push_back(item);
  if (end.usage) {
    json["usage"] = response_usage_json(*end.usage);
    add_explanation(json, end.usage->explanation);
  }
  for (const auto& [name, value] : head.echo.items()) json[name] = value;
  return json;
}

Json response_json(const ResponseHead& head, const std::string& status) {
  return response_json(
      head, ResponseEnd{.status = status, .completed_at = 0, .output = {}, .usage = {}, .error = {}});
}

Json logprobs_json(const std::vector<LogprobEntry>& entries) {
  Json list = Json::array();
  for (const LogprobEntry& entry : entries) {
    Json token = output_token_json(entry.bytes, entry.logprob);
    Json top = Json::array();
    for (const auto& [bytes, logprob] : entry.top) top.push_back(output_token_json(bytes, logprob));
    token["top_logprobs"] = std::move(top);
    list.push_back(std::move(token));
  }
  return list;
}

Item output_text_part(const std::string& text, const std::vector<LogprobEntry>& logprobs) {
  return {{"type", "output_text"},
          {"text", text},
          {"annotations", Json::array()},
          {"logprobs", logprobs_json(logprobs)}};
}

Item reasoning_text_part(const std::string& text) { return {{"type", "reasoning_text"}, {"text", text}}; }

Item message_item(const std::string& id, const std::string& status, const std::string& text,
                  const std::vector<LogprobEntry>& logprobs) {
  return {{"id", id},
          {"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content", Json::array({output_text_part(text, logprobs)})}};
}

Item reasoning_item(const std::string& id, const std::string& status, const std::string& text) {
  return {{"id", id},
          {"type", "reasoning"},
          {"status", status},
          {"summary", Json::array()},
          {"content", Json::array({reasoning_text_part(text)})}};
}

Item call_item(const std::string& id, const std::string& status, const ToolCall& call) {
  return {{"id", id},           {"type", "function_call"}, {"status", status},
          {"call_id", call.id}, {"name", call.name},       {"arguments", call.arguments}};
}

std::vector<LogprobEntry> logprobs_of_text(const std::vector<LogprobEntry>& all, std::string_view text,
                                           bool first, bool last) {
  if (first && last) return all;
  std::vector<LogprobEntry> out;
  if (!first && !last) return out;
  std::size_t bytes = 0;
  const auto take = [&](const LogprobEntry& entry) {
    if (bytes >= text.size()) return false;
    bytes += entry.bytes.size();
    out.push_back(entry);
    return true;
  };
  if (first) {
    for (const LogprobEntry& entry : all) {
      if (!take(entry)) break;
    }
  } else {
    for (auto entry = all.rbegin(); entry != all.rend() && take(*entry);) ++entry;
    std::reverse(out.begin(), out.end());
  }
  return out;
}

std::vector<Item> output_items(const ResponseHead& head, const FinishedChoice& choice) {
  const auto& parts = choice.output.parts;
  const bool cut = choice.finish == ReplyFinish::kLength;
  std::vector<Item> items;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const bool last = i + 1 == parts.size();
    const std::string status = cut && last ? "incomplete" : "completed";
    if (const auto* text = std::get_if<TextPiece>(&parts[i])) {
      std::vector<LogprobEntry> logprobs;
      if (head.logprobs) logprobs = logprobs_of_text(choice.output.logprobs, text->text, i == 0, last);
      items.push_back(message_item(output_item_id("msg_", head.id, i), status, text->text, logprobs));
    } else if (const auto* reasoning = std::get_if<ReasoningPiece>(&parts[i])) {
      items.push_back(reasoning_item(output_item_id("rs_", head.id, i), status, reasoning->text));
    } else {
      items.push_back(call_item(output_item_id("fc_", head.id, i), status, std::get<ToolCall>(parts[i])));
    }
  }
  if (items.empty()) {
    items.push_back(message_item(output_item_id("msg_", head.id, 0), cut ? "incomplete" : "completed", "",
                                 head.logprobs ? choice.output.logprobs : std::vector<LogprobEntry>()));
  }
  return items;
}

std::vector<Item> without_logprobs(const std::vector<Item>& items) {
  std::vector<Item> out;
  for (const Item& item : items) {
    Item& copy = out.emplace_back(Item::object());
    for (const auto& [name, value] : item.items()) {
      if (name != "content") {
        copy[name] = value;
        continue;
      }
      Json& parts = copy[name] = Json::array();
      for (const Json& part : value) {
        Json& copied = parts.emplace_back(Json::object());
        for (const auto& [field, of_part] : part.items())
          copied[field] = field == "logprobs" ? Json::array() : of_part;
      }
    }
  }
  return out;
}

Json response_error_json(const ApiError& error) {
  std::string code = "server_error";
  if (error.http_status == 429) code = "rate_limit_exceeded";
  if (error.http_status == 400) code = "invalid_prompt";
  return {{"code", std::move(code)}, {"message", error.message}};
}

}  // namespace loci
