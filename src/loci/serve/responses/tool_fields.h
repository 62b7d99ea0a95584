// SPDX-License-Identifier: Apache-2.0
// The fields of a response's request that concern tools.
#pragma once

#include "loci/base/status.h"
#include "loci/serve/request/field_reader.h"
#include "loci/serve/request/json.h"

namespace loci {

// Reads tools, tool_choice and parallel_tool_calls: into `echo` as the response object shows them, into
// `chat` as a chat completion has them. Of {"type": "allowed_tools"} the model sees the allowed ones alone.
// Errors: kInvalidArgument naming field and value; kUnimplemented for tools that a server runs itself.
Status read_tool_fields(FieldReader& reader, Json& echo, Json& chat);

}  // namespace loci
