#include "loci/serve/response_json.h"

#include <nlohmann/json.hpp>

namespace loci {
namespace {

using Json = nlohmann::ordered_json;

// A token's bytes need not be whole characters: what is none becomes U+FFFD.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json usage_json(const ReplyUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}}};
}

Json bytes_json(const std::string& bytes) {
  Json out = Json::array();
  for (const char c : bytes) out.push_back(static_cast<unsigned char>(c));
  return out;
}

Json token_json(const std::string& bytes, float logprob) {
  return {{"token", bytes}, {"logprob", logprob}, {"bytes", bytes_json(bytes)}};
}

Json chat_logprobs_json(const std::vector<LogprobEntry>& entries) {
  Json content = Json::array();
  for (const LogprobEntry& entry : entries) {
    Json token = token_json(entry.bytes, entry.logprob);
    Json top = Json::array();
    for (const auto& [bytes, logprob] : entry.top) top.push_back(token_json(bytes, logprob));
    token["top_logprobs"] = std::move(top);
    content.push_back(std::move(token));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs_json(const std::vector<LogprobEntry>& entries) {
  Json tokens = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const LogprobEntry& entry : entries) {
    tokens.push_back(entry.bytes);
    logprobs.push_back(entry.logprob);
    Json top = Json::object();
    for (const auto& [bytes, logprob] : entry.top) top[bytes] = logprob;
    tops.push_back(std::move(top));
    offsets.push_back(entry.text_offset);
  }
  return {{"tokens", std::move(tokens)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json logprobs_json(ApiShape shape, const std::vector<LogprobEntry>& entries, bool wanted) {
  if (!wanted) return nullptr;
  return shape == ApiShape::kChat ? chat_logprobs_json(entries) : completion_logprobs_json(entries);
}

Json head_json(const ReplyHead& head, bool chunk) {
  const char* object = "text_completion";
  if (head.shape == ApiShape::kChat) object = chunk ? "chat.completion.chunk" : "chat.completion";
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint}};
}

Json chunk_json(const ReplyHead& head, Json choices) {
  Json json = head_json(head, true);
  json["choices"] = std::move(choices);
  if (head.include_usage) json["usage"] = nullptr;
  return json;
}

}  // namespace

std::string reply_json(const ReplyHead& head, const std::vector<ReplyChoice>& choices, bool logprobs,
                       const ReplyUsage& usage) {
  Json list = Json::array();
  for (const ReplyChoice& choice : choices) {
    Json one = {{"index", choice.index}};
    if (head.shape == ApiShape::kChat) {
      one["message"] = {{"role", "assistant"}, {"content", choice.content.text}, {"refusal", nullptr}};
    } else {
      one["text"] = choice.content.text;
    }
    one["logprobs"] = logprobs_json(head.shape, choice.content.logprobs, logprobs);
    one["finish_reason"] = choice.finish_reason;
    list.push_back(std::move(one));
  }
  Json json = head_json(head, false);
  json["choices"] = std::move(list);
  json["usage"] = usage_json(usage);
  return dump(json);
}

std::string role_chunk_json(const ReplyHead& head, std::uint32_t index) {
  Json choice = {{"index", index},
                 {"delta", {{"role", "assistant"}, {"content", ""}}},
                 {"logprobs", nullptr},
                 {"finish_reason", nullptr}};
  Json choices = Json::array();
  choices.push_back(std::move(choice));
  return dump(chunk_json(head, std::move(choices)));
}

std::string delta_chunk_json(const ReplyHead& head, std::uint32_t index, const Delta& delta, bool logprobs) {
  Json choice = {{"index", index}};
  if (head.shape == ApiShape::kChat)
    choice["delta"] = {{"content", delta.text}};
  else
    choice["text"] = delta.text;
  choice["logprobs"] = logprobs_json(head.shape, delta.logprobs, logprobs);
  choice["finish_reason"] = nullptr;
  Json choices = Json::array();
  choices.push_back(std::move(choice));
  return dump(chunk_json(head, std::move(choices)));
}

std::string finish_chunk_json(const ReplyHead& head, std::uint32_t index, std::string_view finish_reason) {
  Json choice = {{"index", index}};
  if (head.shape == ApiShape::kChat)
    choice["delta"] = Json::object();
  else
    choice["text"] = "";
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = finish_reason;
  Json choices = Json::array();
  choices.push_back(std::move(choice));
  return dump(chunk_json(head, std::move(choices)));
}

std::string usage_chunk_json(const ReplyHead& head, const ReplyUsage& usage) {
  Json json = head_json(head, true);
  json["choices"] = Json::array();
  json["usage"] = usage_json(usage);
  return dump(json);
}

}  // namespace loci
