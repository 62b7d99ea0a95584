// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/anthropic/message_content.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {
namespace {

// A string that has to be there; it may be empty.
Result<std::string> required_text(const Json& object, const std::string& path, std::string_view name) {
  FieldReader reader(object, path);
  std::string text;
  if (reader.ok() && reader.find(name) == nullptr) reader.fail(name, "is required");
  reader.text(name, text);
  LOCI_RETURN_IF_ERROR(reader.status());
  return text;
}

// One that names something: not empty.
Result<std::string> required_name(const Json& object, const std::string& path, std::string_view name) {
  LOCI_ASSIGN_OR_RETURN(std::string text, required_text(object, path, name));
  if (text.empty())
    return invalid_argument("expected a string that is not empty", fmt::format("{}.{}", path, name));
  return text;
}

Status check_cache_control(const Json& block, const std::string& path) {
  FieldReader reader(block, path);
  const Json* control = reader.find("cache_control");
  // Every prefix is cached here, wherever the client sets its marks.
  if (control != nullptr && !control->is_object()) reader.expected("cache_control", "an object", *control);
  return reader.status();
}

Status refused_block(const Json& block, const std::string& path, std::string_view taken) {
  return invalid_argument(
      fmt::format("expected {}; got {}", taken, json_excerpt(block.value("type", Json()))), path + ".type");
}

// A string or an array of text blocks, one line each.
Result<std::string> read_text_blocks(const Json& content, const std::string& path) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) {
    return invalid_argument(
        fmt::format("expected a string or an array of text blocks; got {}", json_excerpt(content)), path);
  }
  std::string out;
  for (std::size_t i = 0; i < content.size(); ++i) {
    const std::string field = fmt::format("{}[{}]", path, i);
    LOCI_ASSIGN_OR_RETURN(const std::string type, required_text(content[i], field, "type"));
    if (type != "text") return refused_block(content[i], field, "\"text\", the only kind served here");
    LOCI_ASSIGN_OR_RETURN(const std::string text, required_text(content[i], field, "text"));
    LOCI_RETURN_IF_ERROR(check_cache_control(content[i], field));
    if (i > 0) out += '\n';
    out += text;
  }
  return out;
}

// Claude Code begins its system prompt with a line of its accounts, in which `cch`, a checksum of the
// request, is another one each time. No state behind it would ever be found, and it says nothing to a model.
// What is not of its form stays.
std::string_view without_billing(std::string_view text) {
  constexpr std::string_view kBegins = "x-anthropic-billing-header:";
  if (!text.starts_with(kBegins)) return text;
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t checksum = line.find("cch=");
  const std::size_t end = checksum == line.npos ? line.npos : line.find(';', checksum);
  if (end == line.npos) return text;
  text.remove_prefix(end + 1);
  if (text.starts_with('\n')) text.remove_prefix(1);
  return text;
}

bool is_empty(const Message& message) {
  return message.content.empty() && message.calls.empty() && !message.reasoning;
}

// Builds the messages turn by turn.
class Turns {
 public:
  Status add(const Json& message, const std::string& path);
  std::vector<Message> take() {
    end_turn();
    if (!system_.empty())
      messages_.insert(messages_.begin(), Message{.role = Role::kSystem, .content = std::move(system_)});
    return std::move(messages_);
  }

 private:
  Status add_system(const Json& message, const std::string& path);
  Status add_block(const Json& block, const std::string& path);
  Status add_user_block(const std::string& type, const Json& block, const std::string& path);
  Status add_assistant_block(const std::string& type, const Json& block, const std::string& path);
  Status add_tool_use(const Json& block, const std::string& path);
  Status add_tool_result(const Json& block, const std::string& path);
  void add_text(std::string_view text);
  void end_turn();

  std::vector<Message> messages_;
  std::string system_;                             // of messages before the first turn
  std::map<std::string, std::string> tool_names_;  // of each call's id
  std::string role_;                               // of the turn that is being read
  Message turn_;
  bool has_text_ = false;
};

Status Turns::add(const Json& message, const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string role, required_text(message, path, "role"));
  if (role == "system") return add_system(message, path);
  if (role != "user" && role != "assistant") {
    return invalid_argument(
        fmt::format("expected user, assistant or system; got {}", json_excerpt(Json(role))), path + ".role");
  }
  if (role != role_) end_turn();
  role_ = role;
  const FieldReader reader(message, path);
  const Json* content = reader.find("content");
  if (content == nullptr) return invalid_argument("is required", path + ".content");
  if (content->is_string()) {
    add_text(content->get_ref<const std::string&>());
    return {};
  }
  if (!content->is_array()) {
    return invalid_argument(
        fmt::format("expected a string or an array of blocks; got {}", json_excerpt(*content)),
        path + ".content");
  }
  for (std::size_t i = 0; i < content->size(); ++i)
    LOCI_RETURN_IF_ERROR(add_block((*content)[i], fmt::format("{}.content[{}]", path, i)));
  return {};
}

// What the operator says before all turns belongs to the system prompt. Later it becomes part of the user's
// turn, marked as Claude Code marks such texts: many templates have a place for one system prompt alone, and
// what was said before keeps its tokens.
Status Turns::add_system(const Json& message, const std::string& path) {
  const FieldReader reader(message, path);
  const Json* content = reader.find("content");
  if (content == nullptr) return invalid_argument("is required", path + ".content");
  LOCI_ASSIGN_OR_RETURN(const std::string whole, read_text_blocks(*content, path + ".content"));
  const std::string_view text = without_billing(whole);
  if (text.empty()) return {};
  if (role_.empty()) {
    if (!system_.empty()) system_ += '\n';
    system_ += text;
    return {};
  }
  if (role_ != "user") end_turn();
  role_ = "user";
  add_text(fmt::format("<system-reminder>\n{}\n</system-reminder>", text));
  return {};
}

Status Turns::add_block(const Json& block, const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string type, required_text(block, path, "type"));
  LOCI_RETURN_IF_ERROR(check_cache_control(block, path));
  if (type == "text") {
    LOCI_ASSIGN_OR_RETURN(const std::string text, required_text(block, path, "text"));
    add_text(text);
    return {};
  }
  return role_ == "user" ? add_user_block(type, block, path) : add_assistant_block(type, block, path);
}

Status Turns::add_user_block(const std::string& type, const Json& block, const std::string& path) {
  if (type == "tool_result") return add_tool_result(block, path);
  return refused_block(block, path, "text or tool_result, the kinds of a user's blocks that are served here");
}

Status Turns::add_assistant_block(const std::string& type, const Json& block, const std::string& path) {
  if (type == "tool_use") return add_tool_use(block, path);
  if (type == "thinking") {
    LOCI_ASSIGN_OR_RETURN(const std::string thinking, required_text(block, path, "thinking"));
    if (!turn_.reasoning) turn_.reasoning.emplace();
    *turn_.reasoning += thinking;
    return {};
  }
  // Encrypted for another provider: nobody here can read it.
  if (type == "redacted_thinking") return {};
  return refused_block(block, path,
                       "text, tool_use, thinking or redacted_thinking, the kinds of an assistant's blocks");
}

Status Turns::add_tool_use(const Json& block, const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string id, required_name(block, path, "id"));
  LOCI_ASSIGN_OR_RETURN(const std::string name, required_name(block, path, "name"));
  FieldReader reader(block, path);
  const Json* input = reader.find("input");
  if (input == nullptr) return invalid_argument("is required", path + ".input");
  if (!input->is_object()) reader.expected("input", "an object", *input);
  LOCI_RETURN_IF_ERROR(reader.status());
  tool_names_[id] = name;
  turn_.calls.push_back({.id = id, .name = name, .arguments = *input});
  return {};
}

Status Turns::add_tool_result(const Json& block, const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string id, required_name(block, path, "tool_use_id"));
  const auto called = tool_names_.find(id);
  if (called == tool_names_.end()) {
    return invalid_argument(
        fmt::format("expected the id of a tool_use block before; got {}", json_excerpt(Json(id))),
        path + ".tool_use_id");
  }
  FieldReader reader(block, path);
  bool is_error = false;
  reader.boolean("is_error", is_error);
  LOCI_RETURN_IF_ERROR(reader.status());
  std::string text;
  if (const Json* content = reader.find("content")) {
    LOCI_ASSIGN_OR_RETURN(text, read_text_blocks(*content, path + ".content"));
  }
  end_turn();  // what stands before it in the same turn comes before it
  role_ = "user";
  messages_.push_back(
      {.role = Role::kTool, .content = std::move(text), .call_id = id, .name = called->second});
  return {};
}

void Turns::add_text(std::string_view text) {
  if (has_text_) turn_.content += '\n';
  turn_.content += text;
  has_text_ = true;
}

void Turns::end_turn() {
  if (turn_.reasoning && turn_.reasoning->empty()) turn_.reasoning.reset();
  if (has_text_ || !turn_.calls.empty() || turn_.reasoning) {
    turn_.role = role_ == "user" ? Role::kUser : Role::kAssistant;
    messages_.push_back(std::move(turn_));
  }
  turn_ = {};
  has_text_ = false;
}

}  // namespace

Result<std::string> read_system(const Json& system) {
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_text_blocks(system, "system"));
  return std::string(without_billing(text));
}

Result<std::vector<Message>> read_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return invalid_argument(
        fmt::format("expected an array of at least one message; got {}", json_excerpt(messages)), "messages");
  }
  Turns turns;
  for (std::size_t i = 0; i < messages.size(); ++i)
    LOCI_RETURN_IF_ERROR(turns.add(messages[i], fmt::format("messages[{}]", i)));
  std::vector<Message> out = turns.take();
  // Nothing that a reply could begin with: Anthropic lets the last message alone be empty.
  if (!out.empty() && out.back().role == Role::kAssistant && is_empty(out.back())) out.pop_back();
  if (out.empty()) return invalid_argument("expected a message with content; all are empty", "messages");
  if (out.size() == 1 && out.front().role == Role::kSystem)
    return invalid_argument("expected a message of the role user; there are none but the system's",
                            "messages");
  return out;
}

}  // namespace loci
