// SPDX-License-Identifier: Apache-2.0
// The tools of a chat completion.
#pragma once

#include "loci/base/status.h"
#include "loci/serve/conversation/tool_use.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Reads tools, tool_choice and parallel_tool_calls. Errors: kInvalidArgument naming field, value and limit.
Result<ToolUse> read_chat_tools(const Json& request);

}  // namespace loci
