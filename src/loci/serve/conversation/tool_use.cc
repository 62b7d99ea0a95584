// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/tool_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kToolNameBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
                  c == '-' || c == '.';
         });
}

}  // namespace

Json Tool::parameters() const {
  const auto at = function.find("parameters");
  if (at == function.end() || !at->is_object()) return Json::object();
  return *at;
}

bool ToolUse::has(std::string_view name) const {
  return std::ranges::any_of(tools, [&](const Tool& tool) { return tool.name == name; });
}

bool ToolUse::may_call(std::string_view name) const {
  if (choice == ToolChoice::kNamed) return name == named;
  return allowed.empty() || std::ranges::find(allowed, name) != allowed.end();
}

void ToolUse::leave_out(std::string_view type) {
  constexpr std::size_t kNamedMax = 16;
  std::string name = fmt::format("tools of type {}", json_excerpt(Json(type)));
  if (left_out.size() == kNamedMax) return;
  if (std::ranges::find(left_out, name) == left_out.end()) left_out.push_back(std::move(name));
}

Status ToolUse::add(Tool tool, std::string_view name_field) {
  if (!is_name(tool.name)) {
    return invalid_argument(fmt::format("expected 1 to {} letters, digits, '_', '-' and '.'; got {}",
                                        kToolNameBytesMax, json_excerpt(Json(tool.name))),
                            std::string(name_field));
  }
  if (has(tool.name)) {
    return invalid_argument(fmt::format("expected a name that no other tool has; got '{}'", tool.name),
                            std::string(name_field));
  }
  tools.push_back(std::move(tool));
  return {};
}

}  // namespace loci
