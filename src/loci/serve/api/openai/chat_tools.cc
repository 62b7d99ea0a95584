// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/chat_tools.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#include "loci/serve/conversation/tool_parameters.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

Status read_tool(const Json& json, const std::string& field, ToolUse& out) {
  FieldReader reader(json, field);
  std::string type;
  reader.text("type", type);
  if (reader.ok() && type.empty()) reader.fail("type", "is required");
  LOCI_RETURN_IF_ERROR(reader.status());
  if (type != "function") {
    out.leave_out(type);
    return {};
  }
  const Json* function = reader.find("function");
  if (function == nullptr) return invalid_argument("is required", field + ".function");
  FieldReader inner(*function, field + ".function");
  Tool tool;
  std::string description;
  inner.text("name", tool.name);
  inner.text("description", description);
  inner.boolean("strict", tool.strict);
  read_tool_parameters(inner, "parameters");
  LOCI_RETURN_IF_ERROR(inner.status());
  tool.function = *function;
  return out.add(std::move(tool), field + ".function.name");
}

Status read_choice(const Json& choice, ToolUse& out) {
  const auto fail = [&] {
    return invalid_argument(
        fmt::format(
            "expected none, auto, required or {{\"type\": \"function\", \"function\": {{\"name\": ...}}}}; "
            "got {}",
            json_excerpt(choice)),
        "tool_choice");
  };
  if (choice == "auto") return {};
  if (choice == "none") {
    out.choice = ToolChoice::kNone;
    return {};
  }
  if (choice == "required") {
    out.choice = ToolChoice::kRequired;
  } else {
    if (!choice.is_object() || choice.value("type", Json()) != "function" || !choice.contains("function")) {
      return fail();
    }
    FieldReader reader(choice["function"], "tool_choice.function");
    reader.text("name", out.named);
    LOCI_RETURN_IF_ERROR(reader.status());
    if (!out.has(out.named)) {
      return invalid_argument(
          fmt::format("expected the name of one of the tools; got '{}'", utf8_prefix(out.named, 64)),
          "tool_choice.function.name");
    }
    out.choice = ToolChoice::kNamed;
  }
  if (out.tools.empty()) return invalid_argument("is only allowed where tools are given", "tool_choice");
  return {};
}

}  // namespace

Result<ToolUse> read_chat_tools(const Json& request) {
  FieldReader reader(request);
  ToolUse out;
  if (const Json* tools = reader.find("tools")) {
    if (!tools->is_array() || tools->size() > kToolsMax) {
      reader.expected("tools", fmt::format("an array of at most {} tools", kToolsMax), *tools);
      return reader.status();
    }
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const std::string field = fmt::format("tools[{}]", i);
      LOCI_RETURN_IF_ERROR(read_tool((*tools)[i], field, out));
    }
  }
  reader.boolean("parallel_tool_calls", out.parallel);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (const Json* choice = reader.find("tool_choice")) LOCI_RETURN_IF_ERROR(read_choice(*choice, out));
  return out;
}

}  // namespace loci
