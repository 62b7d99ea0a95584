// SPDX-License-Identifier: Apache-2.0
// A tool_choice that lets the reply call only some of the request's tools, in both of OpenAI's APIs. The
// model is told of all of them, so that its prompt, and the state that is kept of it, stay what they were.
#pragma once

#include <functional>
#include <string>

#include "loci/base/status.h"
#include "loci/serve/conversation/tool_use.h"
#include "loci/serve/wire/json.h"

namespace loci {

// The name of the tool that `json` stands for, which `field` holds. Errors name it, or what is in it.
using ReadToolName = std::function<Result<std::string>(const Json& json, const std::string& field)>;

// Reads {"mode", "tools"}, which `field` holds. `read_name` reads each of its tools, and answers for that
// `out` has it. Errors: kInvalidArgument naming field, value and limit; those of `read_name`.
Status read_allowed_tools(const Json& json, const std::string& field, const ReadToolName& read_name,
                          ToolUse& out);

}  // namespace loci
