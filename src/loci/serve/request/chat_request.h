// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions: the request's JSON as plain values. No networking here.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/serve/request/generation_fields.h"
#include "loci/serve/request/json.h"
#include "loci/serve/tools/template_support.h"
#include "loci/serve/tools/tool_use.h"

namespace loci {

struct ChatRequest {
  GenerationFields fields;
  std::string template_context;  // what the chat template is rendered with (tools/template_context.h)
  ToolUse tools;
  std::vector<std::string> unknown_fields;  // for the log
};

// `syntax`: of the model that the context is for. `defaults`: of what the request does
// not say. Errors: kInvalidArgument naming field, value and limit.
Result<ChatRequest> parse_chat_request(const Json& request, const ChatSyntax& syntax = {},
                                       const RequestDefaults& defaults = {});

// The template's context of a request that holds "messages" and maybe "tools" (also used by /tokenize).
Result<std::string> read_template_context(const Json& request, const ChatSyntax& syntax = {});

}  // namespace loci
