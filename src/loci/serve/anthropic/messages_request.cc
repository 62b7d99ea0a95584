// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/anthropic/messages_request.h"

#include <fmt/format.h>

#include <array>
#include <limits>

#include "loci/serve/anthropic/message_content.h"
#include "loci/serve/request/field_reader.h"
#include "loci/serve/request/generation_fields.h"
#include "loci/serve/request/json.h"
#include "loci/serve/request/json_parse.h"

namespace loci {
namespace {

constexpr std::int64_t kIntegerMax = std::numeric_limits<std::int32_t>::max();

// Fields of Loci's own that clients may add; their meaning and limits are those of chat completions.
constexpr std::array<const char*, 10> kPassedOn = {
    "seed",           "min_p", "min_tokens", "repetition_penalty", "logit_bias", "ignore_eos",
    "stop_token_ids", "model", "loci",       "cache_salt"};

void read_numbers(FieldReader& reader, MessagesPurpose purpose, Json& chat) {
  std::optional<std::int64_t> max_tokens;
  reader.integer("max_tokens", 1, kIntegerMax, max_tokens);
  if (max_tokens)
    chat["max_tokens"] = *max_tokens;
  else if (reader.ok() && purpose == MessagesPurpose::kReply)
    reader.fail("max_tokens", "is required");
  // Copied as written once they are known to be in Anthropic's range.
  float number = 0;
  reader.number("temperature", {.low = 0, .high = 1}, number);
  reader.number("top_p", {.low = 0, .high = 1}, number);
  std::optional<std::int64_t> top_k;
  reader.integer("top_k", 0, kIntegerMax, top_k);
  for (const char* name : {"temperature", "top_p", "top_k"}) {
    if (const Json* value = reader.find(name)) chat[name] = *value;
  }
  // A nucleus of nothing still holds the likeliest token.
  if (const Json* top_p = reader.find("top_p"); top_p != nullptr && top_p->get<double>() == 0) {
    chat["top_p"] = 1;
    chat["top_k"] = 1;
  }
}

void read_stop_sequences(FieldReader& reader, Json& chat) {
  const Json* stops = reader.find("stop_sequences");
  if (stops == nullptr) return;
  if (!stops->is_array() || stops->size() > kStopStringsMax) {
    return reader.expected("stop_sequences", fmt::format("an array of at most {} strings", kStopStringsMax),
                           *stops);
  }
  if (!stops->empty()) chat["stop"] = *stops;
}

void read_system_and_messages(FieldReader& reader, Json& chat) {
  const Json* messages = reader.find("messages");
  if (messages == nullptr) return reader.ok() ? reader.fail("messages", "is required") : void();
  Result<Json> list = read_messages(*messages);
  if (!list.ok()) return reader.fail(list.status());
  if (const Json* system = reader.find("system")) {
    Result<std::string> text = read_system(*system);
    if (!text.ok()) return reader.fail(text.status());
    if (!text->empty()) list->insert(list->begin(), Json{{"role", "system"}, {"content", std::move(*text)}});
  }
  chat["messages"] = std::move(*list);
}

// One tool as OpenAI's function.
Result<Json> read_tool(const Json& tool, const std::string& path) {
  FieldReader reader(tool, path);
  std::string type = "custom";
  std::string name;
  std::string description;
  reader.text("type", type);
  if (reader.ok() && type != "custom") {
    reader.fail("type", fmt::format("expected \"custom\", a tool that the client runs; got {}",
                                    json_excerpt(Json(type))));
  }
  reader.text("name", name);
  if (reader.ok() && name.empty()) reader.fail("name", "is required");
  reader.text("description", description);
  const Json* schema = reader.find("input_schema");
  if (reader.ok() && schema == nullptr) reader.fail("input_schema", "is required");
  if (schema != nullptr && !schema->is_object()) reader.expected("input_schema", "an object", *schema);
  bool strict = false;
  reader.boolean("strict", strict);
  LOCI_RETURN_IF_ERROR(reader.status());
  Json function = {{"name", std::move(name)}};
  if (!description.empty()) function["description"] = std::move(description);
  function["parameters"] = *schema;
  if (strict) function["strict"] = true;
  return Json{{"type", "function"}, {"function", std::move(function)}};
}

void read_tools(FieldReader& reader, Json& chat) {
  const Json* tools = reader.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) return reader.expected("tools", "an array", *tools);
  Json list = Json::array();
  for (std::size_t i = 0; i < tools->size(); ++i) {
    Result<Json> tool = read_tool((*tools)[i], fmt::format("tools[{}]", i));
    if (!tool.ok()) return reader.fail(tool.status());
    list.push_back(std::move(*tool));
  }
  if (!list.empty()) chat["tools"] = std::move(list);
}

void read_tool_choice(FieldReader& reader, Json& chat) {
  const Json* choice = reader.find("tool_choice");
  if (choice == nullptr) return;
  FieldReader nested(*choice, "tool_choice");
  std::string type;
  std::string name;
  bool one_at_a_time = false;
  nested.text("type", type);
  nested.text("name", name);
  nested.boolean("disable_parallel_tool_use", one_at_a_time);
  if (!nested.ok()) return reader.fail(nested.status());
  if (type != "auto" && type != "any" && type != "tool" && type != "none")
    nested.expected("type", "auto, any, tool or none", choice->value("type", Json()));
  if (type == "tool" && name.empty()) nested.fail("name", "is required where type is tool");
  if ((type == "any" || type == "tool") && !chat.contains("tools"))
    nested.fail("type", "needs tools; the request has none");
  if (!nested.ok()) return reader.fail(nested.status());
  if (type == "any")
    chat["tool_choice"] = "required";
  else if (type == "tool")
    chat["tool_choice"] = {{"type", "function"}, {"function", {{"name", name}}}};
  else
    chat["tool_choice"] = type;
  if (one_at_a_time && chat.contains("tools")) chat["parallel_tool_calls"] = false;
}

// Templates that can reason read enable_thinking; unasked, Anthropic's models don't.
void read_thinking(FieldReader& reader, Json& chat) {
  bool enabled = false;
  if (const Json* thinking = reader.find("thinking")) {
    FieldReader nested(*thinking, "thinking");
    std::string type;
    std::optional<std::int64_t> budget;
    nested.text("type", type);
    nested.integer("budget_tokens", 1, kIntegerMax, budget);
    if (nested.ok() && type != "enabled" && type != "disabled" && type != "adaptive")
      nested.expected("type", "enabled, adaptive or disabled", thinking->value("type", Json()));
    if (nested.ok() && type == "enabled" && !budget)
      nested.fail("budget_tokens", "is required where type is enabled");
    if (budget && chat.contains("max_tokens") && *budget >= chat["max_tokens"].get<std::int64_t>())
      nested.fail("budget_tokens", fmt::format("expected less than max_tokens ({}); got {}",
                                               chat["max_tokens"].get<std::int64_t>(), *budget));
    if (!nested.ok()) return reader.fail(nested.status());
    enabled = type != "disabled";
  }
  Json arguments = {{"enable_thinking", enabled}};
  if (const Json* extra = reader.find("chat_template_kwargs")) {
    if (!extra->is_object()) return reader.expected("chat_template_kwargs", "an object", *extra);
    arguments.update(*extra);
  }
  chat["chat_template_kwargs"] = std::move(arguments);
}

// output_config.format, or output_format as it was called first: a schema that the reply follows.
void read_output_format(FieldReader& reader, Json& chat) {
  const Json* format = reader.find("output_format");
  std::string path = "output_format";
  if (const Json* config = reader.find("output_config")) {
    const FieldReader nested(*config, "output_config");
    if (!nested.ok()) return reader.fail(nested.status());
    if (const Json* inner = nested.find("format")) {
      format = inner;
      path = "output_config.format";
    }
  }
  if (format == nullptr) return;
  FieldReader nested(*format, path);
  std::string type;
  nested.text("type", type);
  const Json* schema = nested.find("schema");
  if (nested.ok() && type != "json_schema")
    nested.expected("type", "json_schema", format->value("type", Json()));
  if (nested.ok() && (schema == nullptr || !schema->is_object()))
    nested.expected("schema", "an object", schema == nullptr ? Json() : *schema);
  if (!nested.ok()) return reader.fail(nested.status());
  chat["response_format"] = {{"type", "json_schema"},
                             {"json_schema", {{"name", "output"}, {"schema", *schema}, {"strict", true}}}};
}

// A thread holds what was said before on the server, and its next request brings only what is new: without
// one that request would be another. Before all else, since such a request need make no sense by itself.
void refuse_thread(FieldReader& reader) {
  if (reader.find("thread") != nullptr)
    reader.fail(unimplemented("is not supported; send the whole conversation without it", "thread"));
}

// What is taken for the client's sake and changes nothing, and what would change the reply.
void read_rest(FieldReader& reader, Json& chat) {
  if (const Json* metadata = reader.find("metadata")) {
    FieldReader nested(*metadata, "metadata");
    std::string user;
    nested.text("user_id", user);
    if (!nested.ok()) return reader.fail(nested.status());
    if (!user.empty()) chat["user"] = std::move(user);
  }
  std::string tier;
  reader.text("service_tier", tier);
  if (reader.ok() && !tier.empty() && tier != "auto" && tier != "standard_only")
    reader.expected("service_tier", "auto or standard_only", Json(tier));
  for (const char* name : {"mcp_servers", "container"}) {
    const Json* value = reader.find(name);
    if (value != nullptr && !value->empty())
      reader.fail(name, fmt::format("is not supported; leave it out (got {})", json_excerpt(*value)));
  }
  for (const char* name : kPassedOn) {
    if (const Json* value = reader.find(name)) chat[name] = *value;
  }
  // Refused where a chat completion's would be.
  for (const std::string_view name : unserved_field_names()) {
    if (const Json* value = reader.find(name)) chat[std::string(name)] = *value;
  }
}

}  // namespace

Result<MessagesRequest> parse_messages_request(const Json& request, MessagesPurpose purpose) {
  MessagesRequest out;
  out.chat = Json::object();
  FieldReader reader(request);
  refuse_thread(reader);
  std::string model;
  reader.text("model", model);
  bool stream = false;
  reader.boolean("stream", stream);
  read_numbers(reader, purpose, out.chat);
  read_stop_sequences(reader, out.chat);
  read_system_and_messages(reader, out.chat);
  read_tools(reader, out.chat);
  read_tool_choice(reader, out.chat);
  read_thinking(reader, out.chat);
  read_output_format(reader, out.chat);
  read_rest(reader, out.chat);
  LOCI_RETURN_IF_ERROR(reader.status());
  out.chat["stream"] = stream;
  return out;
}

std::string messages_field(std::string_view chat_field) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kNames = {{
      {".function.parameters", ".input_schema"},
      {".function.", "."},
      {"stop[", "stop_sequences["},
      {"response_format.json_schema.schema", "output_config.format.schema"},
      {"response_format", "output_config.format"},
  }};
  std::string out(chat_field);
  for (const auto& [theirs, ours] : kNames) {
    if (const std::size_t at = out.find(theirs); at != std::string::npos) {
      out.replace(at, theirs.size(), ours);
      break;
    }
  }
  return out;
}

}  // namespace loci
