// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/call_text.h"

#include <fmt/format.h>

#include "loci/serve/wire/json.h"

namespace loci {
namespace {

void write_spaced(const Json& json, std::string& out) {
  if (!json.is_structured()) {
    out += dump_json(json);
    return;
  }
  const bool object = json.is_object();
  out += object ? '{' : '[';
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    if (!first) out += ", ";
    first = false;
    if (object) out += dump_json(Json(key)) + ": ";
    write_spaced(value, out);
  }
  out += object ? '}' : ']';
}

}  // namespace

std::string spaced_json(const Json& json) {
  std::string out;
  write_spaced(json, out);
  return out;
}

std::string call_text(const OutputSyntax& syntax, std::string_view name, const Json& arguments) {
  const std::string json = spaced_json({{"name", name}, {"arguments", arguments}});
  switch (syntax.dialect) {
    case ToolDialect::kHermes: return fmt::format("<tool_call>\n{}\n</tool_call>", json);
    case ToolDialect::kPhi4: return fmt::format("<|tool_call|>[{}]<|/tool_call|>", json);
    case ToolDialect::kGranite: return fmt::format("<|tool_call|>[{}]", json);
    case ToolDialect::kBareJson: return spaced_json({{"name", name}, {"parameters", arguments}});
    case ToolDialect::kKimi:
      return fmt::format("<|tool_call_begin|>functions.{}:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
                         name, spaced_json(arguments));
    case ToolDialect::kMistral: return fmt::format("[TOOL_CALLS][{}]", json);
    default: return json;
  }
}

std::string tools_text(const OutputSyntax& syntax, const std::vector<Tool>& tools) {
  std::string text =
      "You can call functions. To call one, reply with nothing but a JSON object of its name and its "
      "arguments, one line for each call:\n";
  text += call_text(syntax, "function_name", {{"argument_name", "value"}});
  text += "\nIf no function helps, reply in plain words. These are the functions:\n";
  for (const Tool& tool : tools) text += spaced_json(tool.function) + "\n";
  return text;
}

}  // namespace loci
