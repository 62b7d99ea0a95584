// POST /v1/chat/completions: the request's JSON as plain values. No networking here.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "loci/base/status.h"
#include "loci/serve/request/generation_fields.h"

namespace loci {

struct ChatRequest {
  GenerationFields fields;
  // What the chat template is rendered with: messages (each content one string; a "developer" is a
  // "system"), add_generation_prompt, and the client's chat_template_kwargs.
  std::string template_context;
};

// Errors: kInvalidArgument naming field, value and limit.
Result<ChatRequest> parse_chat_request(const nlohmann::json& request);

// The template's context of a request that holds "messages" (also used by /tokenize).
Result<std::string> read_template_context(const nlohmann::json& request);

}  // namespace loci
