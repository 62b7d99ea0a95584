// SPDX-License-Identifier: Apache-2.0
// POST /v1/chat/completions: the request's JSON as plain values. No networking here.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/serve/request/generation_fields.h"
#include "loci/serve/tools/template_support.h"
#include "loci/serve/tools/tool_use.h"

namespace loci {

struct ChatRequest {
  GenerationFields fields;
  std::string template_context;  // what the chat template is rendered with (tools/template_context.h)
  ToolUse tools;
  std::vector<std::string> unknown_fields;  // for the log
};

// `syntax`: of the model that the context is for. `ordered_tools`: as read_tool_use(). `sampling`: of what
// the request does not say. Errors: kInvalidArgument naming field, value and limit.
Result<ChatRequest> parse_chat_request(const nlohmann::json& request, const ChatSyntax& syntax = {},
                                       const nlohmann::ordered_json& ordered_tools = nullptr,
                                       const RequestDefaults& defaults = {});

// The template's context of a request that holds "messages" and maybe "tools" (also used by /tokenize).
Result<std::string> read_template_context(const nlohmann::json& request, const ChatSyntax& syntax = {});

}  // namespace loci
