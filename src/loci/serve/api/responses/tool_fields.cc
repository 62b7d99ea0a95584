// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/tool_fields.h"

#include <fmt/format.h>

#include <cstddef>
#include <string>
#include <utility>

#include "loci/serve/conversation/allowed_tools.h"
#include "loci/serve/conversation/tool_parameters.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

namespace {

bool is_mode(const Json& value) { return value == "none" || value == "auto" || value == "required"; }

Status read_tool(const Json& json, const std::string& field, Json& echo, ToolUse& out) {
  FieldReader reader(json, field);
  Tool tool;
  std::string type;
  std::string description;
  reader.text("type", type);
  if (reader.ok() && type.empty()) reader.fail("type", "is required");
  if (reader.ok() && type != "function") {
    out.leave_out(type);
    return {};
  }
  reader.text("name", tool.name);
  if (reader.ok() && tool.name.empty()) reader.fail("name", "is required");
  reader.text("description", description);
  reader.boolean("strict", tool.strict);
  read_tool_parameters(reader, "parameters");
  LOCI_RETURN_IF_ERROR(reader.status());

  Json shown = {{"type", "function"}};
  tool.function = Json::object();
  for (const char* key : {"name", "description", "parameters", "strict"}) {
    const Json* value = reader.find(key);
    shown[key] = value == nullptr ? Json() : Json(*value);
    if (value != nullptr) tool.function[key] = *value;
  }
  echo.push_back(std::move(shown));
  return out.add(std::move(tool), field + ".name");
}

// The name in {"type": "function", "name"}; it must be one of the tools'.
Result<std::string> read_named(const Json& choice, const std::string& field, const ToolUse& use) {
  FieldReader reader(choice, field);
  std::string type;
  std::string name;
  reader.text("type", type);
  if (reader.ok() && type != "function") {
    return unimplemented(
        fmt::format("expected \"function\", the only kind of tool that this server has; got {}",
                    json_excerpt(choice.value("type", Json()))),
        field + ".type");
  }
  reader.text("name", name);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (!use.has(name)) {
    return invalid_argument(
        fmt::format("expected the name of one of the tools; got {}", json_excerpt(Json(name))),
        field + ".name");
  }
  return name;
}

Status read_choice(const Json& choice, Json& echo, ToolUse& out) {
  if (choice.is_string()) {
    if (!is_mode(choice)) {
      return invalid_argument(
          fmt::format("expected none, auto, required or an object that names a tool; got {}",
                      json_excerpt(choice)),
          "tool_choice");
    }
    if (choice == "required" && out.tools.empty())
      return invalid_argument("is only allowed with tools; got \"required\" and none", "tool_choice");
    if (choice == "none") out.choice = ToolChoice::kNone;
    if (choice == "required") out.choice = ToolChoice::kRequired;
  } else if (choice.is_object() && choice.value("type", Json()) == "allowed_tools") {
    const auto read_name = [&](const Json& tool, const std::string& at) { return read_named(tool, at, out); };
    LOCI_RETURN_IF_ERROR(read_allowed_tools(choice, "tool_choice", read_name, out));
  } else {
    LOCI_ASSIGN_OR_RETURN(out.named, read_named(choice, "tool_choice", out));
    out.choice = ToolChoice::kNamed;
  }
  echo["tool_choice"] = choice;
  return {};
}

}  // namespace

Status read_tool_fields(FieldReader& reader, Json& echo, ToolUse& out) {
  echo["tools"] = Json::array();
  echo["tool_choice"] = "auto";
  if (const Json* tools = reader.find("tools")) {
    if (!tools->is_array()) {
      reader.expected("tools", "an array of tools", *tools);
    } else if (tools->size() > kToolsMax) {
      reader.fail("tools", fmt::format("expected at most {} tools; got {}", kToolsMax, tools->size()));
    }
    LOCI_RETURN_IF_ERROR(reader.status());
    for (std::size_t i = 0; i < tools->size(); ++i) {
      LOCI_RETURN_IF_ERROR(read_tool((*tools)[i], fmt::format("tools[{}]", i), echo["tools"], out));
    }
  }
  if (const Json* choice = reader.find("tool_choice")) {
    LOCI_RETURN_IF_ERROR(read_choice(*choice, echo, out));
  }
  reader.boolean("parallel_tool_calls", out.parallel);
  echo["parallel_tool_calls"] = out.parallel;
  return reader.status();
}

}  // namespace loci
