// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/allowed_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "loci/serve/wire/field_reader.h"

namespace loci {

Status read_allowed_tools(const Json& json, const std::string& field, const ReadToolName& read_name,
                          ToolUse& out) {
  FieldReader reader(json, field);
  const Json* mode = reader.find("mode");
  if (mode == nullptr)
    reader.fail("mode", "is required");
  else if (*mode != "auto" && *mode != "required")
    reader.expected("mode", "auto or required", *mode);
  const Json* tools = reader.find("tools");
  if (tools == nullptr)
    reader.fail("tools", "is required");
  else if (!tools->is_array() || tools->empty() || tools->size() > kToolsMax)
    reader.expected("tools", fmt::format("an array of 1 to {} tools", kToolsMax), *tools);
  LOCI_RETURN_IF_ERROR(reader.status());
  for (std::size_t i = 0; i < tools->size(); ++i) {
    LOCI_ASSIGN_OR_RETURN(std::string name, read_name((*tools)[i], fmt::format("{}.tools[{}]", field, i)));
    out.allowed.push_back(std::move(name));
  }
  if (*mode == "required") out.choice = ToolChoice::kRequired;
  // All of them are no restriction.
  if (std::ranges::all_of(out.tools, [&](const Tool& tool) { return out.may_call(tool.name); }))
    out.allowed.clear();
  return {};
}

}  // namespace loci
