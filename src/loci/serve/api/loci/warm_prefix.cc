// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/loci/warm_prefix.h"

#include <fmt/format.h>

#include <future>
#include <memory>
#include <utility>

#include "loci/base/clock.h"
#include "loci/serve/api/openai/tokens.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

GenerationRequest public_prefix_request(std::string tenant, std::vector<TokenId> tokens) {
  return {.tenant = std::move(tenant),
          .prompt = std::move(tokens),
          .sampling = {},
          .max_new_tokens = 1,
          .stop_tokens = {},
          .time_limit = {},
          .scope = SharingScope::kPublic};
}

std::string warm_body(std::string_view name, std::string_view file_text) {
  Json body = json_or_null(file_text);
  if (body.is_array()) {
    body = {{"messages", std::move(body)}};
  } else if (!body.is_object() || !body.contains("messages")) {
    body = {{"prompt", std::string(file_text)}};
  }
  body["name"] = std::string(name);
  return dump_json(body);
}

std::variant<std::vector<TokenId>, ApiError> public_prefix_tokens(std::string_view body,
                                                                  const ServedModel& served) {
  Result<Json> json = parse_json(body);
  if (!json.ok()) return api_error(json.status());
  if (!json->is_object()) return api_error(invalid_argument("expected an object"));
  if (!json->contains("prompt") && !json->contains("messages")) {
    return api_error(invalid_argument("expected the field messages or prompt; got neither", "messages"));
  }
  const char* field = json->contains("messages") ? "messages" : "prompt";
  if (json->contains("messages")) (*json)["add_generation_prompt"] = false;
  Result<std::vector<TokenId>> tokens = tokens_of_request(*json, served);
  if (!tokens.ok()) return api_error(tokens.status());
  if (tokens->empty()) return api_error(invalid_argument("expected at least one token; got none", field));
  if (tokens->size() >= served.context_tokens)
    return context_length_error(tokens->size(), served.context_tokens, field);
  return std::move(*tokens);
}

Status warm_and_wait(const ServedModel& served, PublicPrefixes& prefixes, const std::string& name,
                     const std::string& body) {
  auto tokens = public_prefix_tokens(body, served);
  if (const auto* error = std::get_if<ApiError>(&tokens)) return invalid_argument(error->message);
  auto& prompt = std::get<std::vector<TokenId>>(tokens);
  const auto count = static_cast<std::uint32_t>(prompt.size());
  if (!prefixes.begin(name)) return invalid_argument(fmt::format("there is a public prefix '{}'", name));
  const auto ended = std::make_shared<std::promise<GenerationEnded>>();
  std::future<GenerationEnded> end = ended->get_future();
  const RequestId id = served.engine->submit(public_prefix_request("default", std::move(prompt)),
                                             [ended](const GenerationEvent& event) {
                                               if (const auto* last = std::get_if<GenerationEnded>(&event))
                                                 ended->set_value(*last);
                                             });
  const GenerationEnded outcome = end.get();
  if (outcome.status.ok() && outcome.reason == FinishReason::kStop) {
    prefixes.finish({.name = name, .id = id, .tokens = count, .created = seconds_since_1970()});
    return {};
  }
  prefixes.abandon(name);
  return outcome.status.ok() ? internal_error("the prefix could not be computed") : outcome.status;
}

}  // namespace loci
