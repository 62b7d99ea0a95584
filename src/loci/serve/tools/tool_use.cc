// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tools/tool_use.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/serve/request/field_reader.h"
#include "loci/serve/request/generation_fields.h"
#include "loci/serve/request/json.h"
#include "loci/serve/request/json_parse.h"

namespace loci {
namespace {

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kToolNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                  c == '-' || c == '.';
         });
}

Result<Tool> read_tool(const Json& json, const std::string& field) {
  FieldReader reader(json, field);
  std::string type;
  reader.text("type", type);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (type != "function") {
    return invalid_argument(fmt::format("expected \"function\", the only kind of tool that is served; got {}",
                                        json_excerpt(json.value("type", Json()))),
                            field + ".type");
  }
  const Json* function = reader.find("function");
  if (function == nullptr) return invalid_argument("is required", field + ".function");
  FieldReader inner(*function, field + ".function");
  Tool tool;
  std::string description;
  inner.text("name", tool.name);
  inner.text("description", description);
  inner.boolean("strict", tool.strict);
  if (const Json* parameters = inner.find("parameters"); parameters && !parameters->is_object())
    inner.expected("parameters", "a JSON Schema (an object)", *parameters);
  LOCI_RETURN_IF_ERROR(inner.status());
  if (!is_name(tool.name)) {
    return invalid_argument(fmt::format("expected 1 to {} letters, digits, '_', '-' and '.'; got {}",
                                        kToolNameBytesMax, json_excerpt(function->value("name", Json()))),
                            field + ".function.name");
  }
  tool.function = *function;
  return tool;
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
    const auto is_it = [&](const Tool& tool) { return tool.name == out.named; };
    if (std::none_of(out.tools.begin(), out.tools.end(), is_it)) {
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

Json Tool::parameters() const {
  const auto at = function.find("parameters");
  if (at == function.end() || !at->is_object()) return Json::object();
  return *at;
}

Result<ToolUse> read_tool_use(const Json& request) {
  FieldReader reader(request);
  ToolUse out;
  if (const Json* tools = reader.find("tools")) {
    if (!tools->is_array() || tools->size() > kToolsMax) {
      reader.expected("tools", fmt::format("an array of at most {} tools", kToolsMax), *tools);
      return reader.status();
    }
    for (std::size_t i = 0; i < tools->size(); ++i) {
      const std::string field = fmt::format("tools[{}]", i);
      LOCI_ASSIGN_OR_RETURN(Tool tool, read_tool((*tools)[i], field));
      const auto same = [&](const Tool& other) { return other.name == tool.name; };
      if (std::any_of(out.tools.begin(), out.tools.end(), same)) {
        return invalid_argument(fmt::format("expected a name that no other tool has; got '{}'", tool.name),
                                field + ".function.name");
      }
      out.tools.push_back(std::move(tool));
    }
  }
  reader.boolean("parallel_tool_calls", out.parallel);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (const Json* choice = reader.find("tool_choice")) LOCI_RETURN_IF_ERROR(read_choice(*choice, out));
  return out;
}

}  // namespace loci
