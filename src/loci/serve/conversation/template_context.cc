// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/conversation/template_context.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/serve/conversation/call_text.h"
#include "loci/serve/wire/json.h"

namespace loci {
namespace {

std::string_view name_of(Role role) {
  switch (role) {
    case Role::kSystem: return "system";
    case Role::kUser: return "user";
    case Role::kAssistant: return "assistant";
    case Role::kTool: return "tool";
  }
  return "user";
}

// A message as templates know it: OpenAI's, with arguments as values.
Json to_json(Message message) {
  Json out = {{"role", name_of(message.role)}, {"content", std::move(message.content)}};
  if (message.reasoning) out["reasoning_content"] = std::move(*message.reasoning);
  if (message.role == Role::kTool) out["tool_call_id"] = std::move(message.call_id);
  if (!message.name.empty()) out["name"] = std::move(message.name);
  for (auto& [key, value] : message.extra.items()) out[key] = std::move(value);
  if (message.calls.empty()) return out;
  Json& calls = out["tool_calls"] = Json::array();
  for (PastCall& call : message.calls) {
    calls.push_back(
        {{"id", std::move(call.id)},
         {"type", "function"},
         {"function", {{"name", std::move(call.name)}, {"arguments", std::move(call.arguments)}}}});
  }
  return out;
}

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
  Json& content = message["content"];
  if (!content.is_string()) content = "";
  auto& joined = content.get_ref<std::string&>();
  if (!joined.empty() && !text.empty()) joined += "\n\n";
  joined += text;
}

class Writer {
 public:
  explicit Writer(const ChatSyntax& syntax) : syntax_(syntax), support_(syntax.support) {}

  void add(Json message) {
    const std::string role = message["role"].get<std::string>();
    if (role == "system" && !support_.system) return hold(message);
    if (role == "user" && held_.is_object()) {
      append_text(held_, message["content"].get<std::string>());
      message["content"] = std::move(held_["content"]);
      held_ = nullptr;
    }
    give_held();
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
  Json take() {
    give_held();
    return std::move(messages_);
  }

 private:
  void push(Json message) {
    messages_.push_back(std::move(message));
    last_is_result_ = false;
  }
  // What the system says to a template that has no place for it (Gemma 2's refuses it) stands before the
  // words of the user that follow.
  void hold(const Json& message) {
    if (!held_.is_object()) held_ = {{"role", "user"}, {"content", ""}};
    append_text(held_, message["content"].get<std::string>());
  }
  void give_held() {
    if (held_.is_object()) push(std::exchange(held_, nullptr));
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
  Json held_;  // a message of the user's that begins with what the system said; null: there is none
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
  give_held();
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

std::string make_template_context(Conversation conversation, const ChatSyntax& syntax) {
  Writer writer(syntax);
  for (Message& message : conversation.messages) writer.add(to_json(std::move(message)));
  Json context = Json::object();
  if (!conversation.tools.tools.empty()) writer.add_tools(conversation.tools.tools, context);
  context["messages"] = writer.take();
  context["add_generation_prompt"] = conversation.add_generation_prompt;
  add_reasoning_effort(conversation.reasoning_effort, context);
  for (auto& [key, value] : conversation.template_arguments.items()) {
    if (key != "messages") context[key] = std::move(value);
  }
  return dump_json(context);
}

}  // namespace loci
