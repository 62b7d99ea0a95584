// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/tools/template_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "loci/serve/request/field_reader.h"
#include "loci/serve/request/json.h"
#include "loci/serve/request/json_parse.h"
#include "loci/serve/tools/call_text.h"

namespace loci {
namespace {

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};
constexpr std::size_t kCallsMax = 1024;             // of one message
constexpr std::size_t kArgumentValuesMax = 65'536;  // of one call

// --- reading OpenAI's messages ---

// A message's content as one string: the text parts of a list, a line each.
Result<std::string> read_content(const Json& content, const std::string& field) {
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
    if (type != "text") {
      return invalid_argument(
          fmt::format("expected \"text\", the only kind of part that is supported; got {}",
                      json_excerpt(part.value("type", Json()))),
          name + ".type");
    }
    if (reader.find("text") == nullptr) return invalid_argument("is required", name + ".text");
    std::string piece;
    reader.text("text", piece);
    LOCI_RETURN_IF_ERROR(reader.status());
    if (i > 0) text += '\n';
    text += piece;
  }
  return text;
}

// The arguments as a value: an object; or the text as it is, where a model has written no JSON object.
Json arguments_value(const Json& arguments) {
  if (!arguments.is_string()) return Json(arguments);
  const auto& text = arguments.get_ref<const std::string&>();
  if (text.find_first_not_of(" \n\r\t") == std::string::npos) return Json::object();
  Result<Json> value = parse_json(text, {.values_max = kArgumentValuesMax});
  return value.ok() && value->is_object() ? std::move(*value) : Json(text);
}

Result<Json> read_call(const Json& call, const std::string& field) {
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
  return Json{{"id", id},
              {"type", "function"},
              {"function",
               {{"name", name}, {"arguments", arguments ? arguments_value(*arguments) : Json::object()}}}};
}

// A result says which call it is of.
Status check_call_id(const Json& message, const std::string& field) {
  FieldReader reader(message, field);
  std::string id;
  reader.text("tool_call_id", id);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (!id.empty()) return {};
  return invalid_argument("is required: the id of the call whose result this is", field + ".tool_call_id");
}

Result<Json> read_message(const Json& message, const std::string& field) {
  FieldReader reader(message, field);
  std::string role;
  reader.text("role", role);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    return invalid_argument(fmt::format("expected system, developer, user, assistant or tool; got {}",
                                        json_excerpt(message.value("role", Json()))),
                            field + ".role");
  }
  // Templates know the older name alone.
  Json out = {{"role", role == "developer" ? "system" : role}};
  const Json* content = reader.find("content");
  const Json* calls = role == "assistant" ? reader.find("tool_calls") : nullptr;
  const bool calling = calls != nullptr && !(calls->is_array() && calls->empty());
  if (content == nullptr && !calling) return invalid_argument("is required", field + ".content");
  out["content"] = "";
  if (content != nullptr) {
    LOCI_ASSIGN_OR_RETURN(std::string text, read_content(*content, field + ".content"));
    out["content"] = std::move(text);
  }
  if (role == "tool") LOCI_RETURN_IF_ERROR(check_call_id(message, field));
  for (const auto& [key, value] : message.items()) {
    if (key != "role" && key != "content" && key != "tool_calls" && !value.is_null()) out[key] = value;
  }
  if (!calling) return out;
  if (!calls->is_array() || calls->size() > kCallsMax) {
    return invalid_argument(
        fmt::format("expected an array of at most {} calls; got {}", kCallsMax, json_excerpt(*calls)),
        field + ".tool_calls");
  }
  Json list = Json::array();
  for (std::size_t i = 0; i < calls->size(); ++i) {
    LOCI_ASSIGN_OR_RETURN(Json call, read_call((*calls)[i], fmt::format("{}.tool_calls[{}]", field, i)));
    list.push_back(std::move(call));
  }
  out["tool_calls"] = std::move(list);
  return out;
}

// --- the template's terms ---

// Nine letters and digits that stand for an id of any form: the same for the same id.
std::string short_id(std::string_view id) {
  const bool fits = id.size() == 9 && std::all_of(id.begin(), id.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
                    });
  if (fits) return std::string(id);
  std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  std::string out;
  for (int i = 0; i < 9; ++i, hash /= 36) out += "0123456789abcdefghijklmnopqrstuvwxyz"[hash % 36];
  return out;
}

void append_text(Json& message, std::string_view text) {
  std::string content =
      message["content"].is_string() ? message["content"].get<std::string>() : std::string();
  if (!content.empty() && !text.empty()) content += "\n\n";
  message["content"] = content + std::string(text);
}

class Writer {
 public:
  explicit Writer(const ChatSyntax& syntax) : syntax_(syntax), support_(syntax.support) {}

  void add(Json message) {
    const std::string role = message["role"].get<std::string>();
    if (role == "assistant" && message.contains("tool_calls")) return add_calls(std::move(message));
    if (role == "tool") return add_result(std::move(message));
    if (role == "assistant" && syntax_.output.harmony()) move_reasoning(message);
    // A result that was written as the user's words, and these, are one turn.
    if (role == "user" && last_is_result_) {
      append_text(messages_.back(), message["content"].get<std::string>());
      last_is_result_ = false;
      return;
    }
    push(std::move(message));
  }

  void add_tools(const std::vector<Tool>& tools, Json& context);
  Json take() { return std::move(messages_); }

 private:
  void push(Json message) {
    messages_.push_back(std::move(message));
    last_is_result_ = false;
  }
  // gpt-oss' template calls it so.
  static void move_reasoning(Json& message) {
    if (!message.contains("reasoning_content") || message.contains("thinking")) return;
    message["thinking"] = message["reasoning_content"];
  }
  void add_calls(Json message);
  void push_calling(Json message);
  void add_result(Json message);

  const ChatSyntax& syntax_;
  const TemplateSupport& support_;
  Json messages_ = Json::array();
  bool last_is_result_ = false;
  std::map<std::string, std::string> names_;  // of calls, by id
  // Calls of a message beyond the first, where the template takes one: each follows the last one's result.
  std::vector<Json> waiting_;
};

void Writer::push_calling(Json message) {
  if (syntax_.output.harmony()) {
    move_reasoning(message);
    if (message.contains("thinking")) message["content"] = "";
  }
  if (support_.null_content && message["content"] == "") message["content"] = nullptr;
  push(std::move(message));
}

void Writer::add_calls(Json message) {
  Json& calls = message["tool_calls"];
  for (Json& call : calls) {
    Json& function = call["function"];
    names_[call["id"].get<std::string>()] = function["name"].get<std::string>();
    if (support_.short_ids) call["id"] = short_id(call["id"].get<std::string>());
    if (support_.text_arguments && !function["arguments"].is_string())
      function["arguments"] = spaced_json(function["arguments"]);
  }
  if (!support_.calls) {
    std::string text;
    for (const Json& call : calls) {
      if (!text.empty()) text += '\n';
      text += call_text(syntax_.output, call["function"]["name"].get<std::string>(),
                        call["function"]["arguments"]);
    }
    message.erase("tool_calls");
    append_text(message, text);
    return push(std::move(message));
  }
  const bool harmony = syntax_.output.harmony();
  if ((support_.several_calls && !harmony) || calls.size() == 1) return push_calling(std::move(message));
  waiting_.clear();
  for (std::size_t i = calls.size(); i > 1; --i) {
    waiting_.push_back({{"role", "assistant"}, {"content", ""}, {"tool_calls", Json::array({calls[i - 1]})}});
  }
  calls = Json::array({Json(calls[0])});
  push_calling(std::move(message));
}

void Writer::add_result(Json message) {
  const std::string id = message.contains("tool_call_id") && message["tool_call_id"].is_string()
                             ? message["tool_call_id"].get<std::string>()
                             : std::string();
  const auto known = names_.find(id);
  if (!message.contains("name") && known != names_.end()) message["name"] = known->second;
  if (!support_.results) {
    const std::string name = message.contains("name") && message["name"].is_string()
                                 ? message["name"].get<std::string>()
                                 : std::string("the function");
    const std::string text = fmt::format("Result of {}:\n{}", name, message["content"].get<std::string>());
    if (last_is_result_)
      append_text(messages_.back(), text);
    else
      push({{"role", "user"}, {"content", text}});
    last_is_result_ = true;
    return;
  }
  if (support_.short_ids) message["tool_call_id"] = short_id(id);
  // One call, its result, the next call ...: the call that this result is of comes first.
  const std::string wanted = support_.short_ids ? short_id(id) : id;
  const auto of_this = std::find_if(waiting_.begin(), waiting_.end(),
                                    [&](const Json& one) { return one["tool_calls"][0]["id"] == wanted; });
  if (of_this != waiting_.end()) {
    push_calling(std::move(*of_this));
    waiting_.erase(of_this);
  }
  push(std::move(message));
}

void Writer::add_tools(const std::vector<Tool>& tools, Json& context) {
  Json list = Json::array();
  Json functions = Json::array();
  for (const Tool& tool : tools) {
    list.push_back({{"type", "function"}, {"function", tool.function}});
    functions.push_back(tool.function);
  }
  if (support_.xml_tools) {
    context["xml_tools"] = std::move(functions);
  } else if (support_.tools && !support_.message_tools) {
    context["tools"] = std::move(list);
  } else {
    const bool has_system = !messages_.empty() && messages_[0]["role"] == "system";
    if (!has_system && (support_.system || support_.message_tools))
      messages_.insert(messages_.begin(), Json{{"role", "system"}, {"content", ""}});
    if (support_.message_tools) {
      messages_[0]["tools"] = spaced_json(functions);
    } else if (support_.system || messages_[0]["role"] == "user") {
      append_text(messages_[0], tools_text(syntax_.output, tools));
    } else {
      messages_.insert(messages_.begin(),
                       Json{{"role", "user"}, {"content", tools_text(syntax_.output, tools)}});
    }
  }
}

void add_reasoning_effort(std::string_view effort, Json& context) {
  if (effort.empty()) return;
  context["reasoning_effort"] = effort == "minimal" || effort == "none" ? "low" : effort;
  // What Qwen3, SmolLM3 and DeepSeek V3.1 call it.
  context["enable_thinking"] = effort != "none";
  context["thinking"] = effort != "none";
}

}  // namespace

Result<std::string> make_template_context(const ContextInput& input, const ChatSyntax& syntax) {
  if (!input.messages.is_array() || input.messages.empty()) {
    return invalid_argument(
        fmt::format("expected an array of at least one message; got {}", json_excerpt(input.messages)),
        "messages");
  }
  Writer writer(syntax);
  for (std::size_t i = 0; i < input.messages.size(); ++i) {
    LOCI_ASSIGN_OR_RETURN(Json message, read_message(input.messages[i], fmt::format("messages[{}]", i)));
    writer.add(std::move(message));
  }
  Json context = Json::object();
  if (!input.tools.tools.empty()) writer.add_tools(input.tools.tools, context);
  context["messages"] = writer.take();
  context["add_generation_prompt"] = input.add_generation_prompt;
  add_reasoning_effort(input.reasoning_effort, context);
  for (const auto& [key, value] : input.extra.items()) {
    if (key != "messages") context[key] = value;
  }
  return context.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace loci
