// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/anthropic/message_content.h"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

#include "loci/serve/request/field_reader.h"
#include "loci/serve/request/json.h"
#include "loci/serve/request/json_parse.h"

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

// Builds the chat's messages turn by turn.
class ChatBuilder {
 public:
  Status add(const Json& message, const std::string& path);
  Json take() {
    end_turn();
    return std::move(messages_);
  }
  const std::string& last_role() const { return role_; }

 private:
  Status add_block(const Json& block, const std::string& path);
  Status add_user_block(const std::string& type, const Json& block, const std::string& path);
  Status add_assistant_block(const std::string& type, const Json& block, const std::string& path);
  Status add_tool_use(const Json& block, const std::string& path);
  Status add_tool_result(const Json& block, const std::string& path);
  void add_text(std::string_view text);
  void end_turn();

  Json messages_ = Json::array();
  std::map<std::string, std::string> tool_names_;  // of each call's id
  // The turn that is being read.
  std::string role_;
  std::string text_;
  std::string reasoning_;
  Json calls_ = Json::array();
  bool has_text_ = false;
};

Status ChatBuilder::add(const Json& message, const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string role, required_text(message, path, "role"));
  if (role != "user" && role != "assistant") {
    return invalid_argument(
        fmt::format("expected user or assistant (a system prompt is the field system); got {}",
                    json_excerpt(Json(role))),
        path + ".role");
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

Status ChatBuilder::add_block(const Json& block, const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string type, required_text(block, path, "type"));
  LOCI_RETURN_IF_ERROR(check_cache_control(block, path));
  if (type == "text") {
    LOCI_ASSIGN_OR_RETURN(const std::string text, required_text(block, path, "text"));
    add_text(text);
    return {};
  }
  return role_ == "user" ? add_user_block(type, block, path) : add_assistant_block(type, block, path);
}

Status ChatBuilder::add_user_block(const std::string& type, const Json& block, const std::string& path) {
  if (type == "tool_result") return add_tool_result(block, path);
  return refused_block(block, path, "text or tool_result, the kinds of a user's blocks that are served here");
}

Status ChatBuilder::add_assistant_block(const std::string& type, const Json& block, const std::string& path) {
  if (type == "tool_use") return add_tool_use(block, path);
  if (type == "thinking") {
    LOCI_ASSIGN_OR_RETURN(const std::string thinking, required_text(block, path, "thinking"));
    reasoning_ += thinking;
    return {};
  }
  // Encrypted for another provider: nobody here can read it.
  if (type == "redacted_thinking") return {};
  return refused_block(block, path,
                       "text, tool_use, thinking or redacted_thinking, the kinds of an assistant's blocks");
}

Status ChatBuilder::add_tool_use(const Json& block, const std::string& path) {
  LOCI_ASSIGN_OR_RETURN(const std::string id, required_name(block, path, "id"));
  LOCI_ASSIGN_OR_RETURN(const std::string name, required_name(block, path, "name"));
  FieldReader reader(block, path);
  const Json* input = reader.find("input");
  if (input == nullptr) return invalid_argument("is required", path + ".input");
  if (!input->is_object()) reader.expected("input", "an object", *input);
  LOCI_RETURN_IF_ERROR(reader.status());
  tool_names_[id] = name;
  calls_.push_back(
      {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", input->dump()}}}});
  return {};
}

Status ChatBuilder::add_tool_result(const Json& block, const std::string& path) {
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
      {{"role", "tool"}, {"tool_call_id", id}, {"name", called->second}, {"content", std::move(text)}});
  return {};
}

void ChatBuilder::add_text(std::string_view text) {
  if (has_text_) text_ += '\n';
  text_ += text;
  has_text_ = true;
}

void ChatBuilder::end_turn() {
  if (has_text_ || !calls_.empty() || !reasoning_.empty()) {
    Json message = {{"role", role_}, {"content", std::move(text_)}};
    if (!reasoning_.empty()) message["reasoning_content"] = std::move(reasoning_);
    if (!calls_.empty()) message["tool_calls"] = std::move(calls_);
    messages_.push_back(std::move(message));
  }
  text_.clear();
  reasoning_.clear();
  calls_ = Json::array();
  has_text_ = false;
}

}  // namespace

Result<std::string> read_system(const Json& system) { return read_text_blocks(system, "system"); }

Result<Json> read_messages(const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    return invalid_argument(
        fmt::format("expected an array of at least one message; got {}", json_excerpt(messages)), "messages");
  }
  ChatBuilder builder;
  for (std::size_t i = 0; i < messages.size(); ++i)
    LOCI_RETURN_IF_ERROR(builder.add(messages[i], fmt::format("messages[{}]", i)));
  if (builder.last_role() == "assistant") {
    return invalid_argument(
        "expected a last message of the user; the beginning of a reply cannot be given here",
        fmt::format("messages[{}].role", messages.size() - 1));
  }
  Json out = builder.take();
  if (out.empty()) return invalid_argument("expected a message with content; all are empty", "messages");
  return out;
}

}  // namespace loci
