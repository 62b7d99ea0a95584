// SPDX-License-Identifier: Apache-2.0
// How tools and calls are told to a model whose template does not write them itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "loci/serve/conversation/output_syntax.h"
#include "loci/serve/conversation/tool_use.h"
#include "loci/serve/wire/json.h"

namespace loci {

// A call as the model is to write it, in the syntax's notation.
std::string call_text(const OutputSyntax& syntax, std::string_view name, const Json& arguments);

// The text of a system message that describes the tools and says how they are called.
std::string tools_text(const OutputSyntax& syntax, const std::vector<Tool>& tools);

// JSON as Python's json.dumps writes it, a blank behind ',' and ':': what templates and models know.
std::string spaced_json(const Json& json);

}  // namespace loci
