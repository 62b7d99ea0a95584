// SPDX-License-Identifier: Apache-2.0
// From a request's body to tokens: the part of a generation that is done on a worker. No networking.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "loci/model/grammar.h"
#include "loci/serve/history/token_history.h"
#include "loci/serve/reply/json_parts.h"
#include "loci/serve/reply/reply_format.h"
#include "loci/serve/request/api_error.h"
#include "loci/serve/request/generation_fields.h"
#include "loci/serve/request/json.h"
#include "loci/serve/served_model.h"
#include "loci/serve/tenants/tenant_limiter.h"
#include "loci/serve/tools/output_parser.h"

namespace loci {

struct PreparedGeneration {
  GenerationFields fields;
  // Whole histories; what is left of each after its cuts fits the context with at least one new token.
  std::vector<std::vector<TokenId>> prompts;
  std::vector<std::vector<TokenRange>> dropped;  // of each prompt: its cuts (policy/truncation.h)
  std::optional<ContextOverflow> overflow;       // the request's own wish
  std::uint32_t front_tokens = 0;                // of prompts that are cut: the system prompt, which stays
  std::vector<TokenId> stop_tokens;              // what ends a reply
  std::shared_ptr<const Grammar> grammar;        // what each reply must be; null: anything
  std::vector<std::string> unknown_fields;       // of the request, for the log
  // How the reply is read (ServedModel::chat says in which syntax). Absent: all of it is text.
  std::optional<OutputParserOptions> parser;
  // How likely each of the prompt's tokens is, is computed too: one by one, as a reply's are.
  bool scores_prompt = false;
  bool one_call = false;                // the reply ends with its first call
  std::optional<TenantTicket> ticket;   // of the tenant; set before run_generation()
  std::unique_ptr<ReplyFormat> format;  // set by the endpoint, at the latest
  // Makes the reply durable: called on a thread of the store's when all choices have ended, before the last
  // event is sent. An error takes the place of the reply's end. Null: nothing is stored.
  std::function<Status(const std::vector<FinishedChoice>&, const ReplyUsage&)> commit;
};

// Tokens of a prompt whose state is computed: all but what is dropped.
inline std::size_t kept_tokens(const PreparedGeneration& prepared, std::size_t prompt) {
  return prepared.prompts[prompt].size() - tokens_of(prepared.dropped[prompt]);
}

using Prepared = std::variant<PreparedGeneration, ApiError>;

// All of these: thread-safe.

// Checks what needs the model, says what ends a reply and compiles what it must be (unless `grammar` is set:
// tools that must be called come first). `field` names the prompt in errors.
Prepared check_generation(PreparedGeneration prepared, const ServedModel& served, std::string_view field);
// 404 where `name` is not the served model; "" and "default" are.
std::optional<ApiError> check_model(const std::string& name, const ServedModel& served);

Prepared prepare_chat(std::string_view body, const ServedModel& served, TokenHistory& history,
                      std::string_view tenant);
// The same of a body that was parsed, or made of another API's request. `overflow`: what the
// request says of a conversation that outgrows the context.
Prepared prepare_chat_request(const Json& json, const ServedModel& served, TokenHistory& history,
                              std::string_view tenant, std::optional<ContextOverflow> overflow = {});
// `head` names the reply; what the request says of it is filled in. The format is set here.
Prepared prepare_completion(std::string_view body, const ServedModel& served, ReplyHead head);

// The answers of /tokenize and /detokenize.
std::variant<std::string, ApiError> tokenize(std::string_view body, const ServedModel& served);
std::variant<std::string, ApiError> detokenize(std::string_view body, const ServedModel& served);

}  // namespace loci
