// SPDX-License-Identifier: Apache-2.0
// Anthropic's messages and their blocks of content as messages of a conversation. No networking here.
#pragma once

#include <string>
#include <vector>

#include "loci/base/status.h"
#include "loci/serve/conversation/conversation.h"
#include "loci/serve/wire/json.h"

namespace loci {

// `system`: a string or an array of text blocks, as one text, but for Claude Code's line of its accounts.
Result<std::string> read_system(const Json& system);

// Neighbours of one role are one turn; each tool_result is a message of its own; tool_use blocks are the
// turn's calls; thinking is its reasoning. What has the role system is the system prompt before all turns,
// and part of the user's turn later. A last message of the assistant's is left out if it is empty. Errors:
// kInvalidArgument naming the block (a kind that is not served is refused by name).
Result<std::vector<Message>> read_messages(const Json& messages);

}  // namespace loci
