// SPDX-License-Identifier: Apache-2.0
// Anthropic's messages and their blocks of content as messages of OpenAI's chat. No networking here.
#pragma once

#include <string>

#include "loci/base/status.h"
#include "loci/serve/request/json.h"

namespace loci {

// `system`: a string or an array of text blocks, as one text.
Result<std::string> read_system(const Json& system);

// `messages` as chat messages: neighbours of one role are one turn; each tool_result is a message of the
// role "tool"; tool_use blocks are the turn's tool_calls; thinking is its reasoning_content.
// Errors: kInvalidArgument naming the block (a kind that is not served is refused by name).
Result<Json> read_messages(const Json& messages);

}  // namespace loci
