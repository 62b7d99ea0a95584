// SPDX-License-Identifier: Apache-2.0
// From a conversation in the form of OpenAI's chat completions to the context that a model's chat template
// is rendered with. Other APIs (responses, messages) write their conversations in that form and call this.
#pragma once

#include <string>

#include "loci/base/status.h"
#include "loci/serve/request/json.h"
#include "loci/serve/tools/template_support.h"
#include "loci/serve/tools/tool_use.h"

namespace loci {

struct ContextInput {
  // OpenAI's chat messages: roles system, developer, user, assistant (with tool_calls, reasoning_content)
  // and tool; content a string, null or an array of text parts.
  const Json& messages;
  const ToolUse& tools;
  Json extra = Json::object();   // chat_template_kwargs: win over the rest
  std::string reasoning_effort;  // none, minimal, low ...; empty: not said
  bool add_generation_prompt = true;
};

// What ChatTemplate::encode takes. Where the template knows no tools, calls or results they are written
// into the messages' text, in the syntax that the parser (output_parser.h) reads.
// Errors: kInvalidArgument naming the field ("messages[2].content"), what was expected and found.
// Thread-safe.
Result<std::string> make_template_context(const ContextInput& input, const ChatSyntax& syntax);

}  // namespace loci
