// SPDX-License-Identifier: Apache-2.0
// What was said so far, as one value: each API's parser makes it, and the template's context is made of it
// (template_context.h). Parsers check it, because errors name the client's fields.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/conversation/tool_use.h"
#include "loci/serve/wire/json.h"

namespace loci {

inline constexpr std::size_t kMessageCallsMax = 1024;

enum class Role : std::uint8_t { kSystem, kUser, kAssistant, kTool };

// A call that the model made.
struct PastCall {
  std::string id;
  std::string name;
  Json arguments = Json::object();  // a string where the model wrote what is no JSON object
};

struct Message {
  Role role = Role::kUser;
  std::string content;
  std::optional<std::string> reasoning;  // the assistant's, before the content
  std::vector<PastCall> calls;           // the assistant's, after the content
  std::string call_id;                   // kTool: of the call whose result the content is
  std::string name;                      // kTool: of the tool; empty: the call says it
  // Whatever else the client gave, as it stands: a template may know it.
  Json extra = Json::object();
};

struct Conversation {
  std::vector<Message> messages;
  ToolUse tools;
  Json template_arguments = Json::object();  // chat_template_kwargs: win over the rest
  std::string reasoning_effort;              // none, minimal, low ...; empty: not said
  bool add_generation_prompt = true;
  // The reply goes on with the last message (final_message.h), without a generation prompt.
  bool continue_final_message = false;
};

// The arguments of a call as a value: an object; or the text as it is, where it is no JSON object.
Json call_arguments(std::string_view text);

// What every conversation must be. `field` holds its messages. Errors: kInvalidArgument (there is no message,
// or one with more than kMessageCallsMax calls).
Status check_conversation(const Conversation& conversation, std::string_view field);

}  // namespace loci
