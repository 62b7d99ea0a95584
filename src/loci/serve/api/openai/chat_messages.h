// SPDX-License-Identifier: Apache-2.0
// The messages of a chat completion.
#pragma once

#include <vector>

#include "loci/base/status.h"
#include "loci/serve/conversation/conversation.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Roles system, developer, user, assistant (with tool_calls, and reasoning_content or reasoning) and tool;
// content a string, null or an array of text parts. Errors: kInvalidArgument naming the field
// ("messages[2].content"), what was expected and found. Thread-safe.
Result<std::vector<Message>> read_chat_messages(const Json& messages);

}  // namespace loci
