// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/chat_tools.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#include "loci/serve/conversation/allowed_tools.h"
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

// The name in {"type": "function", "function": {"name"}}; it must be one of the tools'.
Result<std::string> read_named(const Json& json, const std::string& field, const ToolUse& use) {
  FieldReader reader(json, field);
  const Json* type = reader.find("type");
  if (reader.ok() && (type == nullptr || *type != "function"))
    reader.expected("type", "\"function\"", type == nullptr ? Json() : *type);
  const Json* function = reader.find("function");
  if (function == nullptr) reader.fail("function", "is required");
  LOCI_RETURN_IF_ERROR(reader.status());
  FieldReader inner(*function, field + ".function");
  std::string name;
  inner.text("name", name);
  LOCI_RETURN_IF_ERROR(inner.status());
  if (use.has(name)) return name;
  return invalid_argument(
      fmt::format("expected the name of one of the tools; got '{}'", utf8_prefix(name, 64)),
      field + ".function.name");
}

Status read_choice(const Json& choice, ToolUse& out) {
  const auto fail = [&] {
    return invalid_argument(
        fmt::format(
            "expected none, auto, required, {{\"type\": \"function\", \"function\": {{\"name\": ...}}}} or "
            "{{\"type\": \"allowed_tools\", \"allowed_tools\": {{\"mode\": ..., \"tools\": [...]}}}}; got {}",
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
    const Json type = choice.is_object() ? choice.value("type", Json()) : Json();
    if ((type != "function" && type != "allowed_tools") || !choice.contains(type.get<std::string>()))
      return fail();
    if (type == "allowed_tools") {
      const auto read_name = [&](const Json& tool, const std::string& at) {
        return read_named(tool, at, out);
      };
      return read_allowed_tools(choice["allowed_tools"], "tool_choice.allowed_tools", read_name, out);
    }
    LOCI_ASSIGN_OR_RETURN(out.named, read_named(choice, "tool_choice", out));
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
