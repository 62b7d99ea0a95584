// SPDX-License-Identifier: Apache-2.0
// From a conversation to the context that a model's chat template is rendered with.
#pragma once

#include <string>

#include "loci/serve/conversation/conversation.h"
#include "loci/serve/conversation/template_support.h"

namespace loci {

// What ChatTemplate::encode takes. Where the template knows no tools, calls or results they are written
// into the messages' text, in the syntax that the parser (output_parser.h) reads. The conversation has passed
// check_conversation(). Thread-safe.
std::string make_template_context(Conversation conversation, const ChatSyntax& syntax);

}  // namespace loci
