#include "loci/serve/request/chat_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "loci/serve/request/json_parse.h"

namespace loci {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

// A message's content as one string: the text parts of a list, a line each.
Result<std::string> read_content(const nlohmann::json& content, const std::string& field) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return invalid_argument(
        fmt::format("expected a string or an array of text parts; got {}", json_excerpt(content)), field);
  }
  std::string text;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const nlohmann::json& part = content[i];
    const std::string name = fmt::format("{}[{}]", field, i);
    FieldReader reader(part, name);
    std::string type;
    reader.text("type", type);
    LOCI_RETURN_IF_ERROR(reader.status());
    if (type != "text") {
      return invalid_argument(
          fmt::format("expected \"text\", the only kind of part that is supported; got {}",
                      json_excerpt(part.value("type", nlohmann::json()))),
          name + ".type");
    }
    if (!part.contains("text")) return invalid_argument("is required", name + ".text");
    std::string piece;
    reader.text("text", piece);
    LOCI_RETURN_IF_ERROR(reader.status());
    if (i > 0) text += '\n';
    text += piece;
  }
  return text;
}

Result<nlohmann::json> read_message(const nlohmann::json& message, const std::string& field) {
  FieldReader reader(message, field);
  std::string role;
  reader.text("role", role);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    return invalid_argument(fmt::format("expected system, developer, user, assistant or tool; got {}",
                                        json_excerpt(message.value("role", nlohmann::json()))),
                            field + ".role");
  }
  nlohmann::json out = message;
  // Templates know the older name alone.
  out["role"] = role == "developer" ? "system" : role;
  const nlohmann::json* content = reader.find("content");
  const bool may_be_empty = role == "assistant" && reader.find("tool_calls") != nullptr;
  if (content == nullptr && !may_be_empty) return invalid_argument("is required", field + ".content");
  if (content == nullptr) {
    out["content"] = "";
    return out;
  }
  LOCI_ASSIGN_OR_RETURN(std::string text, read_content(*content, field + ".content"));
  out["content"] = std::move(text);
  return out;
}

}  // namespace

Result<std::string> read_template_context(const nlohmann::json& request) {
  FieldReader reader(request);
  const nlohmann::json* messages = reader.find("messages");
  LOCI_RETURN_IF_ERROR(reader.status());
  if (messages == nullptr) return invalid_argument("is required", "messages");
  if (!messages->is_array() || messages->empty()) {
    return invalid_argument(
        fmt::format("expected an array of at least one message; got {}", json_excerpt(*messages)),
        "messages");
  }
  nlohmann::json context = nlohmann::json::object();
  if (const nlohmann::json* extra = reader.find("chat_template_kwargs")) {
    if (!extra->is_object())
      reader.expected("chat_template_kwargs", "an object", *extra);
    else
      context = *extra;
  }
  bool add_generation_prompt = true;
  reader.boolean("add_generation_prompt", add_generation_prompt);
  LOCI_RETURN_IF_ERROR(reader.status());
  nlohmann::json list = nlohmann::json::array();
  for (std::size_t i = 0; i < messages->size(); ++i) {
    LOCI_ASSIGN_OR_RETURN(nlohmann::json message,
                          read_message((*messages)[i], fmt::format("messages[{}]", i)));
    list.push_back(std::move(message));
  }
  context["messages"] = std::move(list);
  context["add_generation_prompt"] = add_generation_prompt;
  return context.dump();
}

Result<ChatRequest> parse_chat_request(const nlohmann::json& request) {
  ChatRequest out;
  FieldReader reader(request);
  read_generation_fields(reader, out.fields);
  refuse_completion_fields(reader, out.fields);
  reader.boolean("logprobs", out.fields.sampling.logprobs);
  reader.unsigned_integer("top_logprobs", 0, kTopLogprobsMax, out.fields.sampling.top_logprobs);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (out.fields.sampling.top_logprobs > 0 && !out.fields.sampling.logprobs) {
    return invalid_argument("is only allowed where logprobs is true", "top_logprobs");
  }
  LOCI_ASSIGN_OR_RETURN(out.template_context, read_template_context(request));
  return out;
}

}  // namespace loci
