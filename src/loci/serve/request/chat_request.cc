// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/request/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "loci/serve/request/json.h"
#include "loci/serve/request/json_parse.h"
#include "loci/serve/request/unknown_fields.h"
#include "loci/serve/tools/template_context.h"

namespace loci {
namespace {

constexpr std::array<std::string_view, 6> kEfforts = {"none", "minimal", "low", "medium", "high", "xhigh"};

Result<std::string> read_context(const Json& request, const ToolUse& tools, const ChatSyntax& syntax) {
  FieldReader reader(request);
  const Json* messages = reader.find("messages");
  LOCI_RETURN_IF_ERROR(reader.status());
  if (messages == nullptr) return invalid_argument("is required", "messages");
  ContextInput input{.messages = *messages, .tools = tools, .extra = {}, .reasoning_effort = {}};
  input.extra = Json::object();
  if (const Json* extra = reader.find("chat_template_kwargs")) {
    if (!extra->is_object())
      reader.expected("chat_template_kwargs", "an object", *extra);
    else
      input.extra = *extra;
  }
  reader.boolean("add_generation_prompt", input.add_generation_prompt);
  reader.text("reasoning_effort", input.reasoning_effort);
  const bool known = std::find(kEfforts.begin(), kEfforts.end(), input.reasoning_effort) != kEfforts.end();
  if (!input.reasoning_effort.empty() && !known)
    reader.expected("reasoning_effort", "none, minimal, low, medium, high or xhigh",
                    Json(input.reasoning_effort));
  LOCI_RETURN_IF_ERROR(reader.status());
  return make_template_context(input, syntax);
}

constexpr auto kChatNames = std::to_array<std::string_view>(
    {"add_generation_prompt", "chat_template_kwargs", "function_call", "functions", "messages", "modalities",
     "parallel_tool_calls", "reasoning_effort", "tool_choice", "tools", "top_logprobs"});

}  // namespace

Result<std::string> read_template_context(const Json& request, const ChatSyntax& syntax) {
  LOCI_ASSIGN_OR_RETURN(const ToolUse tools, read_tool_use(request));
  return read_context(request, tools, syntax);
}

Result<ChatRequest> parse_chat_request(const Json& request, const ChatSyntax& syntax,
                                       const RequestDefaults& defaults) {
  ChatRequest out;
  FieldReader reader(request);
  read_generation_fields(reader, defaults, out.fields);
  refuse_completion_fields(reader, out.fields);
  reader.boolean("logprobs", out.fields.sampling.logprobs);
  reader.unsigned_integer("top_logprobs", 0, kTopLogprobsMax, out.fields.sampling.top_logprobs);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (out.fields.sampling.top_logprobs > 0 && !out.fields.sampling.logprobs) {
    return invalid_argument("is only allowed where logprobs is true", "top_logprobs");
  }
  out.unknown_fields = unknown_fields(request, {generation_field_names(), kChatNames});
  LOCI_ASSIGN_OR_RETURN(out.tools, read_tool_use(request));
  LOCI_ASSIGN_OR_RETURN(out.template_context, read_context(request, out.tools, syntax));
  return out;
}

}  // namespace loci
