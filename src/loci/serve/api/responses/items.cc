// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/items.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "loci/base/units.h"
#include "loci/serve/api/responses/ids.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

namespace {

constexpr std::array<std::string_view, 4> kItemRoles = {"user", "assistant", "system", "developer"};
constexpr std::array<std::string_view, 3> kStatuses = {"in_progress", "completed", "incomplete"};

template <class List>
bool contains(const List& list, std::string_view value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

Status required(const FieldReader& reader, std::string_view name) {
  return invalid_argument("is required", reader.full_name(name));
}

// A text that must be there.
Result<std::string> required_text(FieldReader& reader, std::string_view name) {
  std::string text;
  const bool there = reader.find(name) != nullptr;
  reader.text(name, text);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (!there) return required(reader, name);
  return text;
}

// The id that the client gives, or "".
Result<std::string> read_id(FieldReader& reader) {
  std::string id;
  reader.text("id", id);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (id.size() > kItemIdBytesMax) {
    return invalid_argument(fmt::format("expected at most {} bytes; got {}", kItemIdBytesMax, id.size()),
                            reader.full_name("id"));
  }
  return id;
}

Result<std::string> read_status(FieldReader& reader) {
  std::string status = "completed";
  reader.text("status", status);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (!contains(kStatuses, status)) {
    reader.fail("status", fmt::format("expected in_progress, completed or incomplete; got {}",
                                      json_excerpt(Json(status))));
  }
  LOCI_RETURN_IF_ERROR(reader.status());
  return status;
}

// One part of a message: "input_text" of whoever asks, "output_text" and "refusal" of the assistant.
Result<Item> read_part(const Json& part, const std::string& field, bool of_assistant) {
  FieldReader reader(part, field);
  LOCI_ASSIGN_OR_RETURN(const std::string type, required_text(reader, "type"));
  if (type == "refusal" && of_assistant) {
    LOCI_ASSIGN_OR_RETURN(std::string refusal, required_text(reader, "refusal"));
    return Item{{"type", "refusal"}, {"refusal", std::move(refusal)}};
  }
  if (type != "input_text" && type != "output_text" && type != "text") {
    return unimplemented(
        fmt::format("expected input_text{}, what this server takes; got {}",
                    of_assistant ? ", output_text or refusal" : " or output_text", json_excerpt(Json(type))),
        field + ".type");
  }
  LOCI_ASSIGN_OR_RETURN(std::string text, required_text(reader, "text"));
  if (!of_assistant) return Item{{"type", "input_text"}, {"text", std::move(text)}};
  return Item{{"type", "output_text"},
              {"text", std::move(text)},
              {"annotations", Item::array()},
              {"logprobs", Item::array()}};
}

// A string, or a list of parts.
Result<Item> read_content(const Json& content, const std::string& field, bool of_assistant) {
  Item parts = Item::array();
  if (content.is_string()) {
    LOCI_ASSIGN_OR_RETURN(
        Item part, read_part({{"type", of_assistant ? "output_text" : "input_text"}, {"text", content}},
                             field, of_assistant));
    parts.push_back(std::move(part));
    return parts;
  }
  if (!content.is_array()) {
    return invalid_argument(
        fmt::format("expected a string or an array of parts; got {}", json_excerpt(content)), field);
  }
  for (std::size_t i = 0; i < content.size(); ++i) {
    LOCI_ASSIGN_OR_RETURN(Item part, read_part(content[i], fmt::format("{}[{}]", field, i), of_assistant));
    parts.push_back(std::move(part));
  }
  return parts;
}

Result<Item> read_message(FieldReader& reader) {
  LOCI_ASSIGN_OR_RETURN(const std::string role, required_text(reader, "role"));
  if (!contains(kItemRoles, role)) {
    return invalid_argument(
        fmt::format("expected user, assistant, system or developer; got {}", json_excerpt(Json(role))),
        reader.full_name("role"));
  }
  const Json* content = reader.find("content");
  if (content == nullptr) return required(reader, "content");
  LOCI_ASSIGN_OR_RETURN(std::string id, read_id(reader));
  LOCI_ASSIGN_OR_RETURN(std::string status, read_status(reader));
  LOCI_ASSIGN_OR_RETURN(Item parts, read_content(*content, reader.full_name("content"), role == "assistant"));
  return Item{{"id", std::move(id)},
              {"type", "message"},
              {"status", std::move(status)},
              {"role", role},
              {"content", std::move(parts)}};
}

Result<Item> read_call(FieldReader& reader) {
  LOCI_ASSIGN_OR_RETURN(std::string id, read_id(reader));
  LOCI_ASSIGN_OR_RETURN(std::string status, read_status(reader));
  LOCI_ASSIGN_OR_RETURN(std::string call_id, required_text(reader, "call_id"));
  LOCI_ASSIGN_OR_RETURN(std::string name, required_text(reader, "name"));
  LOCI_ASSIGN_OR_RETURN(std::string arguments, required_text(reader, "arguments"));
  return Item{{"id", std::move(id)},         {"type", "function_call"},
              {"status", std::move(status)}, {"call_id", std::move(call_id)},
              {"name", std::move(name)},     {"arguments", std::move(arguments)}};
}

Result<Item> read_call_output(FieldReader& reader) {
  LOCI_ASSIGN_OR_RETURN(std::string id, read_id(reader));
  LOCI_ASSIGN_OR_RETURN(std::string status, read_status(reader));
  LOCI_ASSIGN_OR_RETURN(std::string call_id, required_text(reader, "call_id"));
  if (call_id.empty()) return required(reader, "call_id");
  const Json* output = reader.find("output");
  if (output == nullptr) return required(reader, "output");
  Item content = *output;
  if (!output->is_string()) {
    LOCI_ASSIGN_OR_RETURN(content, read_content(*output, reader.full_name("output"), false));
  }
  return Item{{"id", std::move(id)},
              {"type", "function_call_output"},
              {"status", std::move(status)},
              {"call_id", std::move(call_id)},
              {"output", std::move(content)}};
}

// A list of {"type", "text"}, or nothing.
Result<Item> read_texts(FieldReader& reader, std::string_view name, std::string_view type) {
  Item texts = Item::array();
  const Json* list = reader.find(name);
  if (list == nullptr) return texts;
  if (!list->is_array()) reader.expected(name, fmt::format("an array of {} parts", type), *list);
  LOCI_RETURN_IF_ERROR(reader.status());
  for (std::size_t i = 0; i < list->size(); ++i) {
    FieldReader part((*list)[i], fmt::format("{}[{}]", reader.full_name(name), i));
    LOCI_ASSIGN_OR_RETURN(std::string text, required_text(part, "text"));
    texts.push_back({{"type", type}, {"text", std::move(text)}});
  }
  return texts;
}

Result<Item> read_reasoning(FieldReader& reader) {
  LOCI_ASSIGN_OR_RETURN(std::string id, read_id(reader));
  LOCI_ASSIGN_OR_RETURN(std::string status, read_status(reader));
  LOCI_ASSIGN_OR_RETURN(Item summary, read_texts(reader, "summary", "summary_text"));
  LOCI_ASSIGN_OR_RETURN(Item content, read_texts(reader, "content", "reasoning_text"));
  return Item{{"id", std::move(id)},
              {"type", "reasoning"},
              {"status", std::move(status)},
              {"summary", std::move(summary)},
              {"content", std::move(content)}};
}

Result<Item> read_item(const Json& value, const std::string& field) {
  FieldReader reader(value, field);
  std::string type;
  reader.text("type", type);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (type.empty())
    type = reader.find("role") != nullptr || reader.find("id") == nullptr ? "message" : "item_reference";
  if (type == "message") return read_message(reader);
  if (type == "function_call") return read_call(reader);
  if (type == "function_call_output") return read_call_output(reader);
  if (type == "reasoning") return read_reasoning(reader);
  if (type == "item_reference") {
    LOCI_ASSIGN_OR_RETURN(std::string id, required_text(reader, "id"));
    return Item{{"type", "item_reference"}, {"id", std::move(id)}};
  }
  return unimplemented(fmt::format("expected message, function_call, function_call_output, reasoning or "
                                   "item_reference, what this server takes; got {}",
                                   json_excerpt(Json(type))),
                       field + ".type");
}

// --- to messages ---

std::string joined_text(const Item& parts) {
  if (parts.is_string()) return parts.get<std::string>();
  std::string text;
  for (const Item& part : parts) {
    const std::string& piece =
        part.at(part.at("type") == "refusal" ? "refusal" : "text").get_ref<const std::string&>();
    if (!text.empty()) text += '\n';
    text += piece;
  }
  return text;
}

Role role_of(std::string_view name) {
  if (name == "assistant") return Role::kAssistant;
  return name == "user" ? Role::kUser : Role::kSystem;
}

class Messages {
 public:
  void add(const Item& item) {
    const std::string& type = item.at("type").get_ref<const std::string&>();
    if (type == "reasoning")
      add_reasoning(item);
    else if (type == "function_call")
      add_call(item);
    else if (type == "function_call_output")
      add_call_output(item);
    else if (type == "message")
      add_message(item);
  }
  std::vector<Message> take() { return std::move(messages_); }

 private:
  void add_reasoning(const Item& item) {
    const Item& content = item.at("content").empty() ? item.at("summary") : item.at("content");
    reasoning_ += joined_text(content);
    turn_open_ = false;
  }

  void add_message(const Item& item) {
    const Role role = role_of(item.at("role").get_ref<const std::string&>());
    std::string text = joined_text(item.at("content"));
    if (role == Role::kAssistant) return begin_turn(std::move(text));
    messages_.push_back({.role = role, .content = std::move(text)});
    end_turn();
  }

  void add_call(const Item& item) {
    if (item.value("status", "completed") == "incomplete") return;
    if (!turn_open_) begin_turn("");
    const std::string& id = item.at("call_id").get_ref<const std::string&>();
    const std::string& name = item.at("name").get_ref<const std::string&>();
    names_[id] = name;
    const std::string& arguments = item.at("arguments").get_ref<const std::string&>();
    messages_.back().calls.push_back({.id = id, .name = name, .arguments = call_arguments(arguments)});
  }

  void add_call_output(const Item& item) {
    const std::string& id = item.at("call_id").get_ref<const std::string&>();
    Message message{.role = Role::kTool, .content = joined_text(item.at("output")), .call_id = id};
    // Some templates show the function's name beside its result.
    if (const auto name = names_.find(id); name != names_.end()) message.name = name->second;
    messages_.push_back(std::move(message));
    end_turn();
  }

  void begin_turn(std::string text) {
    Message message{.role = Role::kAssistant, .content = std::move(text)};
    if (!reasoning_.empty()) message.reasoning = std::exchange(reasoning_, {});
    messages_.push_back(std::move(message));
    turn_open_ = true;
  }

  // Reasoning that led to nothing is not shown to the model again.
  void end_turn() {
    reasoning_.clear();
    turn_open_ = false;
  }

  std::vector<Message> messages_;
  std::string reasoning_;   // of the turn whose message is still to come
  bool turn_open_ = false;  // the last message is the assistant's, and takes calls
  std::map<std::string, std::string, std::less<>> names_;  // of functions, by their calls' ids
};

std::string_view id_prefix(std::string_view type) {
  if (type == "function_call") return "fc_";
  if (type == "function_call_output") return "fco_";
  if (type == "reasoning") return "rs_";
  return "msg_";
}

}  // namespace

Result<std::vector<Item>> parse_items(const Json& items, std::string_view field) {
  if (!items.is_array()) {
    return invalid_argument(fmt::format("expected an array of items; got {}", json_excerpt(items)),
                            std::string(field));
  }
  std::vector<Item> out;
  for (std::size_t i = 0; i < items.size(); ++i) {
    LOCI_ASSIGN_OR_RETURN(Item item, read_item(items[i], fmt::format("{}[{}]", field, i)));
    out.push_back(std::move(item));
  }
  return out;
}

Result<std::vector<Item>> parse_input(const Json& input, std::string_view field) {
  if (input.is_string()) return parse_items(Json::array({{{"role", "user"}, {"content", input}}}), field);
  if (!input.is_array()) {
    return invalid_argument(
        fmt::format("expected a string or an array of items; got {}", json_excerpt(input)),
        std::string(field));
  }
  return parse_items(input, field);
}

void assign_ids(std::vector<Item>& items) {
  for (Item& item : items) {
    Item& id = item["id"];
    if (id == "") id = random_id(id_prefix(item.at("type").get_ref<const std::string&>()));
  }
}

std::vector<StoredItem> to_stored(const std::vector<Item>& items) {
  std::vector<StoredItem> out;
  for (const Item& item : items) {
    out.push_back({.id = item.at("id").get<std::string>(), .json = dump_json(item)});
  }
  return out;
}

Result<std::vector<Item>> from_stored(const std::vector<StoredItem>& items) {
  std::vector<Item> out;
  for (const StoredItem& stored : items) {
    Item item = Item::parse(stored.json, nullptr, false);
    if (!item.is_object() || !item.contains("type"))
      return data_loss(fmt::format("the stored item '{}' is damaged", stored.id));
    out.push_back(std::move(item));
  }
  return out;
}

Status resolve_references(std::vector<Item>& items, const std::vector<Item>& known, std::uint64_t bytes_max,
                          std::string_view field) {
  struct Known {
    const Item* item = nullptr;
    std::uint64_t bytes = 0;  // 0: not counted yet
  };
  std::unordered_map<std::string_view, Known> by_id;  // the first of each
  std::vector<std::pair<std::size_t, const Item*>> found;
  std::uint64_t bytes = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (items[i].at("type") != "item_reference") continue;
    if (by_id.empty()) {
      for (const Item& item : known) by_id.emplace(item.at("id").get_ref<const std::string&>(), Known{&item});
    }
    const auto at = by_id.find(items[i].at("id").get_ref<const std::string&>());
    if (at == by_id.end()) {
      return {StatusCode::kNotFound,
              fmt::format("there is no item '{}'",
                          utf8_prefix(items[i].at("id").get_ref<const std::string&>(), 100)),
              fmt::format("{}[{}].id", field, i)};
    }
    Known& one = at->second;
    if (one.bytes == 0) one.bytes = at->first.size() + dump_json(*one.item).size() + kRowBytes;
    bytes += one.bytes;
    if (bytes > bytes_max) {
      return {
          StatusCode::kResourceExhausted,
          fmt::format("expected references to items of at most {} bytes together, each counted as often as "
                      "it is named; up to this one they have {}",
                      format_count(bytes_max), format_count(bytes)),
          fmt::format("{}[{}].id", field, i)};
    }
    found.emplace_back(i, one.item);
  }
  for (const auto& [at, item] : found) items[at] = *item;
  return {};
}

Status check_call_outputs(const std::vector<Item>& items, const std::vector<Item>& known,
                          std::string_view field) {
  std::set<std::string> calls;
  const auto see = [&calls](const Item& item) {
    if (item.at("type") == "function_call") calls.insert(item.at("call_id").get<std::string>());
  };
  for (const Item& item : known) see(item);
  for (std::size_t i = 0; i < items.size(); ++i) {
    see(items[i]);
    if (items[i].at("type") != "function_call_output") continue;
    const std::string& id = items[i].at("call_id").get_ref<const std::string&>();
    if (calls.contains(id)) continue;
    return invalid_argument(
        fmt::format("expected the call_id of a function_call before it; got '{}'", utf8_prefix(id, 100)),
        fmt::format("{}[{}].call_id", field, i));
  }
  return {};
}

std::vector<Message> to_messages(const std::vector<Item>& items) {
  Messages messages;
  for (const Item& item : items) messages.add(item);
  return messages.take();
}

}  // namespace loci
