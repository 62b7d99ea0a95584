// SPDX-License-Identifier: Apache-2.0
// A reply that goes on with the conversation's last message (vLLM's continue_final_message, and Anthropic's
// last message of the assistant). The prompt must end where that message's text ends, and only the template
// knows what it writes behind it. So the text gets a mark at its end, and the rendered prompt is cut there,
// as transformers does it:
//
//   message:   Once upon
//   rendered:  <|im_start|>assistant\nOnce uponMARK <|im_end|>\n
//   prompt:    <|im_start|>assistant\nOnce upon
//
// A template may trim the text. Then the blank at the mark's end is missing, and the white space at the end
// of the text goes too.
#pragma once

#include <string_view>
#include <vector>

#include "loci/base/status.h"
#include "loci/model/chat_template.h"
#include "loci/serve/conversation/conversation.h"

namespace loci {

// Of a conversation that is not empty.
void mark_final_message(Conversation& conversation);

// Leaves what a template rendered up to the mark. `text`: the message's, without the mark. Errors:
// kInvalidArgument if the template has not written the text's end.
Status cut_at_mark(std::string_view text, std::vector<ChatSegment>& segments);

}  // namespace loci
