// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/reply_head.h"

#include "loci/serve/wire/json.h"
#include "loci/serve/wire/sse.h"

namespace loci {

namespace {

Json token_json(const std::string& bytes, float logprob) {
  Json values = Json::array();
  for (const char c : bytes) values.push_back(static_cast<unsigned char>(c));
  return {{"token", bytes}, {"logprob", logprob}, {"bytes", std::move(values)}};
}

}  // namespace

Json head_json(const ReplyHead& head, std::string_view object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint}};
}

Json usage_json(const ReplyUsage& usage) {
  Json prompt = {{"cached_tokens", usage.cached_tokens}};
  if (usage.dropped_tokens > 0) prompt["dropped_tokens"] = usage.dropped_tokens;
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", std::move(prompt)},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

std::string usage_event(const ReplyHead& head, std::string_view object, const ReplyUsage& usage) {
  if (!head.include_usage && !usage.explanation.wanted) return {};
  Json json = head_json(head, object);
  json["choices"] = Json::array();
  if (head.include_usage) json["usage"] = usage_json(usage);
  add_explanation(json, usage.explanation);
  return sse_event(dump_json(json));
}

void UsageSoFar::set_tokens(std::uint32_t choice, std::uint64_t tokens) {
  if (choice_tokens_.size() <= choice) choice_tokens_.resize(choice + 1);
  completion_tokens_ += tokens - choice_tokens_[choice];
  choice_tokens_[choice] = tokens;
}

Json UsageSoFar::json() const {
  return {{"prompt_tokens", prompt_tokens_},
          {"completion_tokens", completion_tokens_},
          {"total_tokens", prompt_tokens_ + completion_tokens_}};
}

std::string chunk_event(const ReplyHead& head, std::string_view object, Json choices,
                        const UsageSoFar& usage) {
  Json json = head_json(head, object);
  json["choices"] = std::move(choices);
  if (head.continuous_usage)
    json["usage"] = usage.json();
  else if (head.include_usage)
    json["usage"] = nullptr;
  return sse_event(dump_json(json));
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

}  // namespace loci
