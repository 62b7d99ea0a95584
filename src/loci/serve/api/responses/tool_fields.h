// SPDX-License-Identifier: Apache-2.0
// The tools of a response's request.
#pragma once

#include "loci/base/status.h"
#include "loci/serve/conversation/tool_use.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"

namespace loci {

// Reads tools, tool_choice and parallel_tool_calls: into `out`, and into `echo` as the response object shows
// them.
Status read_tool_fields(FieldReader& reader, Json& echo, ToolUse& out);

}  // namespace loci
