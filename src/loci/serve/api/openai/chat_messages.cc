// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/openai/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

// A message's content as one string: the text parts of a list, a line each. The assistant's may be refusals.
Result<std::string> read_content(const Json& content, Role role, const std::string& field) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return invalid_argument(
        fmt::format("expected a string or an array of text parts; got {}", json_excerpt(content)), field);
  }
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const Json& part = content[i];
    const std::string name = fmt::format("{}[{}]", field, i);
    FieldReader reader(part, name);
    std::string type;
    reader.text("type", type);
    LOCI_RETURN_IF_ERROR(reader.status());
    const bool is_refusal = type == "refusal" && role == Role::kAssistant;
    if (type != "text" && !is_refusal) {
      return invalid_argument(
          fmt::format("expected \"text\", the only kind of part that is supported; got {}",
                      json_excerpt(part.value("type", Json()))),
          name + ".type");
    }
    if (reader.find(type) == nullptr) return invalid_argument("is required", name + "." + type);
    std::string piece;
    reader.text(type, piece);
    LOCI_RETURN_IF_ERROR(reader.status());
    if (i > 0) text += '\n';
    text += piece;
  }
  return text;
}

Result<PastCall> read_call(const Json& call, const std::string& field) {
  FieldReader reader(call, field);
  std::string id;
  std::string name;
  reader.text("id", id);
  const Json* function = reader.find("function");
  LOCI_RETURN_IF_ERROR(reader.status());
  if (function == nullptr) return invalid_argument("is required", field + ".function");
  FieldReader inner(*function, field + ".function");
  inner.text("name", name);
  const Json* arguments = inner.find("arguments");
  LOCI_RETURN_IF_ERROR(inner.status());
  if (name.empty()) return invalid_argument("is required", field + ".function.name");
  if (arguments != nullptr && !arguments->is_string() && !arguments->is_object()) {
    return invalid_argument(fmt::format("expected a string of JSON; got {}", json_excerpt(*arguments)),
                            field + ".function.arguments");
  }
  PastCall out{.id = std::move(id), .name = std::move(name)};
  if (arguments != nullptr && arguments->is_string())
    out.arguments = call_arguments(arguments->get_ref<const std::string&>());
  else if (arguments != nullptr)
    out.arguments = *arguments;
  return out;
}

constexpr std::array<std::pair<std::string_view, Role>, 5> kRoles = {{
    {"system", Role::kSystem},
    {"developer", Role::kSystem},  // templates know the older name alone
    {"user", Role::kUser},
    {"assistant", Role::kAssistant},
    {"tool", Role::kTool},
}};

Result<Role> read_role(const Json& message, FieldReader& reader) {
  std::string name;
  reader.text("role", name);
  LOCI_RETURN_IF_ERROR(reader.status());
  const auto found = std::ranges::find(kRoles, name, &std::pair<std::string_view, Role>::first);
  if (found != kRoles.end()) return found->second;
  return invalid_argument(fmt::format("expected system, developer, user, assistant or tool; got {}",
                                      json_excerpt(message.value("role", Json()))),
                          reader.full_name("role"));
}

Status read_calls(const Json& calls, const std::string& field, std::vector<PastCall>& out) {
  if (!calls.is_array() || calls.size() > kMessageCallsMax) {
    return invalid_argument(
        fmt::format("expected an array of at most {} calls; got {}", kMessageCallsMax, json_excerpt(calls)),
        field);
  }
  for (std::size_t i = 0; i < calls.size(); ++i) {
    LOCI_ASSIGN_OR_RETURN(PastCall call, read_call(calls[i], fmt::format("{}[{}]", field, i)));
    out.push_back(std::move(call));
  }
  return {};
}

// Where the other members of a message belong.
void read_rest(const Json& message, Message& out) {
  for (const auto& [key, value] : message.items()) {
    if (key == "role" || key == "content" || key == "tool_calls" || value.is_null()) continue;
    const bool of_tool = out.role == Role::kTool;
    if (of_tool && key == "tool_call_id") continue;
    if (key == "reasoning_content" && value.is_string())
      out.reasoning = value.get<std::string>();
    else if (of_tool && key == "name" && value.is_string())
      out.name = value.get<std::string>();
    else
      out.extra[key] = value;
  }
  // vLLM's newer name. The template gets both, as with vLLM: some know only one.
  const auto renamed = out.extra.find("reasoning");
  if (!out.reasoning && renamed != out.extra.end() && renamed->is_string())
    out.reasoning = renamed->get<std::string>();
}

Result<Message> read_message(const Json& message, const std::string& field) {
  FieldReader reader(message, field);
  LOCI_ASSIGN_OR_RETURN(const Role role, read_role(message, reader));
  Message out{.role = role};
  const Json* content = reader.find("content");
  const Json* calls = role == Role::kAssistant ? reader.find("tool_calls") : nullptr;
  const bool calling = calls != nullptr && !(calls->is_array() && calls->empty());
  // (A reply that was cut off while the model reasoned comes back without content.)
  if (content == nullptr && role != Role::kAssistant)
    return invalid_argument("is required", field + ".content");
  if (content != nullptr) {
    LOCI_ASSIGN_OR_RETURN(out.content, read_content(*content, role, field + ".content"));
  }
  if (role == Role::kTool) {
    reader.text("tool_call_id", out.call_id);
    LOCI_RETURN_IF_ERROR(reader.status());
    if (out.call_id.empty())
      return invalid_argument("is required: the id of the call whose result this is",
                              field + ".tool_call_id");
  }
  read_rest(message, out);
  if (calling) LOCI_RETURN_IF_ERROR(read_calls(*calls, field + ".tool_calls", out.calls));
  return out;
}

}  // namespace

Result<std::vector<Message>> read_chat_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return invalid_argument(
        fmt::format("expected an array of at least one message; got {}", json_excerpt(messages)), "messages");
  }
  std::vector<Message> out;
  out.reserve(messages.size());
  for (std::size_t i = 0; i < messages.size(); ++i) {
    LOCI_ASSIGN_OR_RETURN(Message message, read_message(messages[i], fmt::format("messages[{}]", i)));
    out.push_back(std::move(message));
  }
  return out;
}

}  // namespace loci
