// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/chat_request.h"

#include <array>
#include <string>
#include <string_view>

#include "loci/serve/api/openai/chat_messages.h"
#include "loci/serve/api/openai/chat_tools.h"
#include "loci/serve/conversation/reasoning_effort.h"

namespace loci {
namespace {

constexpr auto kChatNames = std::to_array<std::string_view>(
    {"add_generation_prompt", "chat_template_kwargs", "function_call", "functions", "messages", "modalities",
     "parallel_tool_calls", "prediction", "reasoning_effort", "tool_choice", "tools", "top_logprobs"});

// What no other API serves.
constexpr auto kServedInChats =
    std::to_array<std::string_view>({"continue_final_message", "reasoning_format"});

// llama.cpp's. Its deepseek-legacy has the reasoning in both places.
void read_reasoning_format(FieldReader& reader, ReasoningPlace& out) {
  const Json* format = reader.find("reasoning_format");
  if (format == nullptr || *format == "auto" || *format == "deepseek") return;
  if (*format != "none")
    return reader.expected("reasoning_format",
                           "auto or deepseek (reasoning in reasoning_content) or none (in content)", *format);
  out = ReasoningPlace::kInText;
}

// vLLM's. The conversation's messages are read.
Status read_continuation(FieldReader& reader, Conversation& out) {
  const std::string name = "continue_final_message";
  reader.boolean(name, out.continue_final_message);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (!out.continue_final_message) return {};
  if (reader.find("add_generation_prompt") != nullptr && out.add_generation_prompt)
    return invalid_argument("can't be combined with add_generation_prompt: true; leave that out", name);
  if (out.tools.must_call())
    return invalid_argument("can't be combined with a tool_choice that asks for a call: text was begun",
                            name);
  out.add_generation_prompt = false;
  const Message& last = out.messages.back();
  if (last.role == Role::kAssistant && last.calls.empty()) return {};
  return invalid_argument("is only allowed where the last message is the assistant's, without tool_calls",
                          name);
}

}  // namespace

Result<Conversation> read_conversation(const Json& request) {
  Conversation out;
  LOCI_ASSIGN_OR_RETURN(out.tools, read_chat_tools(request));
  FieldReader reader(request);
  const Json* messages = reader.find("messages");
  LOCI_RETURN_IF_ERROR(reader.status());
  if (messages == nullptr) return invalid_argument("is required", "messages");
  if (const Json* arguments = reader.find("chat_template_kwargs")) {
    if (!arguments->is_object())
      reader.expected("chat_template_kwargs", "an object", *arguments);
    else
      out.template_arguments = *arguments;
  }
  reader.boolean("add_generation_prompt", out.add_generation_prompt);
  read_reasoning_effort(reader, "reasoning_effort", kOpenAiEfforts, out.reasoning_effort);
  LOCI_RETURN_IF_ERROR(reader.status());
  LOCI_ASSIGN_OR_RETURN(out.messages, read_chat_messages(*messages));
  LOCI_RETURN_IF_ERROR(read_continuation(reader, out));
  return out;
}

Result<ChatRequest> parse_chat_request(const Json& request, const RequestDefaults& defaults) {
  ChatRequest out;
  FieldReader reader(request);
  read_generation_fields(reader, defaults, out.fields, kServedInChats);
  refuse_completion_fields(reader, out.fields);
  read_reasoning_format(reader, out.reasoning);
  reader.boolean("logprobs", out.fields.sampling.logprobs);
  reader.unsigned_integer("top_logprobs", 0, kTopLogprobsMax, out.fields.sampling.top_logprobs);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (out.fields.sampling.top_logprobs > 0 && !out.fields.sampling.logprobs) {
    return invalid_argument("is only allowed where logprobs is true", "top_logprobs");
  }
  out.unknown_fields = unknown_generation_fields(request, kChatNames);
  LOCI_ASSIGN_OR_RETURN(out.conversation, read_conversation(request));
  return out;
}

}  // namespace loci
