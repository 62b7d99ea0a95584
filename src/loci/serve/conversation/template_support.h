// SPDX-License-Identifier: Apache-2.0
// What a chat template does with tools, found by rendering small conversations through it when the model
// is loaded; and with it everything that turns a chat request into the template's terms.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/serve/conversation/output_syntax.h"

namespace loci {

struct TemplateSupport {
  bool system = true;           // writes messages of role "system"
  bool tools = true;            // writes the tools that it is given
  bool xml_tools = false;       // as functions, under the name xml_tools (SmolLM3)
  bool message_tools = false;   // as text, in the field `tools` of the system message (Phi-4-mini)
  bool calls = true;            // writes the calls of assistant messages
  bool several_calls = true;    // of one message
  bool text_arguments = false;  // wants a call's arguments as text
  bool null_content = false;    // wants null for the content of a message that only calls
  bool results = true;          // writes messages of role "tool"
  bool short_ids = false;       // takes only ids of nine letters and digits (Mistral)
};

// A default one: a template that does everything as Hugging Face's documentation says.
struct ChatSyntax {
  OutputSyntax output;
  TemplateSupport support;
};

// Renders a template's context (chat_template.h).
using RenderTemplate = std::function<Result<std::string>(std::string_view context)>;

// Thread-safe. Takes some ten renderings.
ChatSyntax find_chat_syntax(std::string_view template_source,
                            const std::function<bool(std::string_view)>& in_vocabulary,
                            const RenderTemplate& render);

}  // namespace loci
