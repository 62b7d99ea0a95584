// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/responses/tool_fields.h"
#include "loci/serve/request/generation_fields.h"
#include "loci/serve/request/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "loci/serve/request/json_parse.h"
#include "loci/serve/responses/response_request.h"

namespace loci {

namespace {

bool is_mode(const Json& value) { return value == "none" || value == "auto" || value == "required"; }

Json named_choice(const std::string& name) { return {{"type", "function"}, {"function", {{"name", name}}}}; }

Status read_tool(const Json& tool, const std::string& field, Json& echo, Json& chat) {
  FieldReader reader(tool, field);
  std::string type;
  std::string name;
  std::string description;
  bool strict = false;
  reader.text("type", type);
  if (reader.ok() && type != "function") {
    return unimplemented(
        fmt::format("expected \"function\", the only kind of tool that this server has; got {}",
                    json_excerpt(tool.value("type", Json()))),
        field + ".type");
  }
  reader.text("name", name);
  if (reader.ok() && name.empty()) reader.fail("name", "is required");
  reader.text("description", description);
  reader.boolean("strict", strict);
  const Json* parameters = reader.find("parameters");
  if (parameters != nullptr && !parameters->is_object())
    reader.expected("parameters", "an object, a JSON schema", *parameters);
  LOCI_RETURN_IF_ERROR(reader.status());

  Json shown = {{"type", "function"}};
  Json function = Json::object();
  for (const char* key : {"name", "description", "parameters", "strict"}) {
    const Json* value = reader.find(key);
    shown[key] = value == nullptr ? Json() : Json(*value);
    if (value != nullptr) function[key] = *value;
  }
  echo.push_back(std::move(shown));
  chat.push_back({{"type", "function"}, {"function", std::move(function)}});
  return {};
}

bool has_tool(const Json& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(),
                     [&](const Json& tool) { return tool["function"]["name"] == name; });
}

// The name in {"type": "function", "name"}; it must be one of the tools'.
Result<std::string> read_named(const Json& choice, const std::string& field, const Json& tools) {
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
  if (!has_tool(tools, name)) {
    return invalid_argument(
        fmt::format("expected the name of one of the tools; got {}", json_excerpt(Json(name))),
        field + ".name");
  }
  return name;
}

// {"type": "allowed_tools", "mode", "tools"}
Status read_allowed(const Json& choice, Json& chat) {
  FieldReader reader(choice, "tool_choice");
  std::string mode;
  reader.text("mode", mode);
  if (reader.ok() && mode != "auto" && mode != "required")
    reader.expected("mode", "auto or required", Json(mode));
  const Json* list = reader.find("tools");
  if (reader.ok() && (list == nullptr || !list->is_array())) {
    reader.expected("tools", "an array of {\"type\": \"function\", \"name\"}",
                    list == nullptr ? Json() : *list);
  }
  LOCI_RETURN_IF_ERROR(reader.status());
  Json allowed = Json::array();
  for (std::size_t i = 0; i < list->size(); ++i) {
    LOCI_ASSIGN_OR_RETURN(const std::string name,
                          read_named((*list)[i], fmt::format("tool_choice.tools[{}]", i), chat["tools"]));
    for (const Json& tool : chat["tools"]) {
      if (tool["function"]["name"] == name) allowed.push_back(tool);
    }
  }
  chat["tools"] = std::move(allowed);
  chat["tool_choice"] = mode;
  return {};
}

Status read_choice(const Json& choice, Json& echo, Json& chat) {
  if (choice.is_string()) {
    if (!is_mode(choice)) {
      return invalid_argument(
          fmt::format("expected none, auto, required or an object that names a tool; got {}",
                      json_excerpt(choice)),
          "tool_choice");
    }
    if (choice == "required" && chat["tools"].empty())
      return invalid_argument("is only allowed with tools; got \"required\" and none", "tool_choice");
    chat["tool_choice"] = choice;
  } else if (choice.is_object() && choice.value("type", Json()) == "allowed_tools") {
    LOCI_RETURN_IF_ERROR(read_allowed(choice, chat));
  } else {
    LOCI_ASSIGN_OR_RETURN(const std::string name, read_named(choice, "tool_choice", chat["tools"]));
    chat["tool_choice"] = named_choice(name);
  }
  echo["tool_choice"] = choice;
  return {};
}

}  // namespace

Status read_tool_fields(FieldReader& reader, Json& echo, Json& chat) {
  echo["tools"] = Json::array();
  echo["tool_choice"] = "auto";
  chat["tools"] = Json::array();
  if (const Json* tools = reader.find("tools")) {
    if (!tools->is_array()) {
      reader.expected("tools", "an array of tools", *tools);
    } else if (tools->size() > kToolsMax) {
      reader.fail("tools", fmt::format("expected at most {} tools; got {}", kToolsMax, tools->size()));
    }
    LOCI_RETURN_IF_ERROR(reader.status());
    for (std::size_t i = 0; i < tools->size(); ++i) {
      LOCI_RETURN_IF_ERROR(read_tool((*tools)[i], fmt::format("tools[{}]", i), echo["tools"], chat["tools"]));
    }
  }
  if (const Json* choice = reader.find("tool_choice")) {
    LOCI_RETURN_IF_ERROR(read_choice(*choice, echo, chat));
  }
  bool parallel = true;
  reader.boolean("parallel_tool_calls", parallel);
  echo["parallel_tool_calls"] = parallel;
  if (chat["tools"].empty()) {
    chat.erase("tools");
    chat.erase("tool_choice");
  } else {
    chat["parallel_tool_calls"] = parallel;
  }
  return reader.status();
}

}  // namespace loci
