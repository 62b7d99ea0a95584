// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/anthropic/messages_request.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "loci/model/sampling_range.h"
#include "loci/serve/api/anthropic/message_content.h"
#include "loci/serve/conversation/reasoning_effort.h"
#include "loci/serve/conversation/tool_parameters.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/generation/unserved_fields.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"
#include "loci/serve/wire/unknown_fields.h"

namespace loci {
namespace {

constexpr std::int64_t kIntegerMax = std::numeric_limits<std::int32_t>::max();

void read_numbers(FieldReader& reader, MessagesPurpose purpose, GenerationFields& out) {
  SamplingParams& sampling = out.sampling;
  std::optional<std::int64_t> max_tokens, top_k;
  reader.integer("max_tokens", 1, kIntegerMax, max_tokens);
  if (max_tokens)
    out.max_tokens = static_cast<std::uint32_t>(*max_tokens);
  else if (reader.ok() && purpose == MessagesPurpose::kReply)
    reader.fail("max_tokens", "is required");
  reader.number("temperature", {.low = 0, .high = 1}, sampling.temperature);
  reader.number("top_p", {.low = 0, .high = 1}, sampling.top_p);
  reader.integer("top_k", 0, kIntegerMax, top_k);
  if (top_k) sampling.top_k = static_cast<std::uint32_t>(*top_k);
  // A nucleus of nothing still holds the likeliest token.
  if (reader.find("top_p") != nullptr && sampling.top_p == 0) {
    sampling.top_p = 1;
    sampling.top_k = 1;
  }
}

void read_stop_sequences(FieldReader& reader, GenerationFields& out) {
  const Json* stops = reader.find("stop_sequences");
  if (stops == nullptr) return;
  if (!stops->is_array() || stops->size() > kStopStringsMax) {
    return reader.expected("stop_sequences", fmt::format("an array of at most {} strings", kStopStringsMax),
                           *stops);
  }
  read_stop(reader, "stop_sequences", out);
}

void read_system_and_messages(FieldReader& reader, std::vector<Message>& out) {
  const Json* messages = reader.find("messages");
  if (messages == nullptr) return reader.ok() ? reader.fail("messages", "is required") : void();
  Result<std::vector<Message>> list = read_messages(*messages);
  if (!list.ok()) return reader.fail(list.status());
  out = std::move(*list);
  const Json* system = reader.find("system");
  if (system == nullptr) return;
  Result<std::string> text = read_system(*system);
  if (!text.ok()) return reader.fail(text.status());
  if (text->empty()) return;
  if (out.front().role == Role::kSystem)
    out.front().content = *std::move(text) + '\n' + out.front().content;
  else
    out.insert(out.begin(), Message{.role = Role::kSystem, .content = std::move(*text)});
}

Status read_tool(const Json& json, const std::string& path, ToolUse& out) {
  FieldReader reader(json, path);
  std::string type = "custom";
  Tool tool;
  std::string description;
  reader.text("type", type);
  if (reader.ok() && type.empty()) reader.fail("type", "expected a type that is not empty");
  if (reader.ok() && type != "custom") {
    out.leave_out(type);
    return {};
  }
  reader.text("name", tool.name);
  if (reader.ok() && tool.name.empty()) reader.fail("name", "is required");
  reader.text("description", description);
  const Json* schema = read_tool_parameters(reader, "input_schema");
  if (reader.ok() && schema == nullptr) reader.fail("input_schema", "is required");
  reader.boolean("strict", tool.strict);
  LOCI_RETURN_IF_ERROR(reader.status());
  tool.function = {{"name", tool.name}};
  if (!description.empty()) tool.function["description"] = std::move(description);
  tool.function["parameters"] = *schema;
  if (tool.strict) tool.function["strict"] = true;
  return out.add(std::move(tool), path + ".name");
}

void read_tools(FieldReader& reader, ToolUse& out) {
  const Json* tools = reader.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array() || tools->size() > kToolsMax)
    return reader.expected("tools", fmt::format("an array of at most {} tools", kToolsMax), *tools);
  for (std::size_t i = 0; i < tools->size(); ++i) {
    const Status status = read_tool((*tools)[i], fmt::format("tools[{}]", i), out);
    if (!status.ok()) return reader.fail(status);
  }
}

void read_tool_choice(FieldReader& reader, ToolUse& out) {
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
  if ((type == "any" || type == "tool") && out.tools.empty())
    nested.fail("type", "needs tools; the request has none");
  if (type == "tool" && nested.ok() && !out.has(name))
    nested.expected("name", "the name of one of the tools", Json(name));
  if (!nested.ok()) return reader.fail(nested.status());
  if (type == "any") out.choice = ToolChoice::kRequired;
  if (type == "none") out.choice = ToolChoice::kNone;
  if (type == "tool") {
    out.choice = ToolChoice::kNamed;
    out.named = std::move(name);
  }
  out.parallel = !one_at_a_time;
}

// Templates that can reason read enable_thinking; unasked, Anthropic's models don't.
void read_thinking(FieldReader& reader, ChatRequest& out) {
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
    const std::optional<std::uint32_t> limit = out.fields.max_tokens;
    if (budget && limit && *budget >= *limit)
      nested.fail("budget_tokens",
                  fmt::format("expected less than max_tokens ({}); got {}", *limit, *budget));
    if (!nested.ok()) return reader.fail(nested.status());
    enabled = type != "disabled";
  }
  // The two names that templates have for it. Without them the effort would decide.
  out.conversation.template_arguments = {{"enable_thinking", enabled}, {"thinking", enabled}};
  if (const Json* extra = reader.find("chat_template_kwargs")) {
    if (!extra->is_object()) return reader.expected("chat_template_kwargs", "an object", *extra);
    out.conversation.template_arguments.update(*extra);
  }
}

// output_config: how much the model is to reason if it does, and a schema that the reply follows
// (output_format, as it was called first).
void read_output_config(FieldReader& reader, ChatRequest& out) {
  const Json* format = reader.find("output_format");
  std::string path = "output_format";
  if (const Json* config = reader.find("output_config")) {
    FieldReader nested(*config, "output_config");
    read_reasoning_effort(nested, "effort", kAnthropicEfforts, out.conversation.reasoning_effort);
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
  if (nested.ok()) constrain_to_schema(nested, "schema", *schema, out.fields.constraint);
  if (!nested.ok()) reader.fail(nested.status());
}

// A thread holds what was said before on the server, and its next request brings only what is new: without
// one that request would be another. Before all else, since such a request need make no sense by itself.
void refuse_thread(FieldReader& reader) {
  if (reader.find("thread") != nullptr)
    reader.fail(unimplemented("is not supported; send the whole conversation without it", "thread"));
}

// A last message of the assistant's is the beginning of the reply. Everything that it depends on is read.
void read_beginning(FieldReader& reader, Conversation& out) {
  if (!reader.ok() || out.messages.back().role != Role::kAssistant) return;
  const Message& last = out.messages.back();
  if (!last.calls.empty() || last.reasoning) {
    return reader.fail(fmt::format("messages[{}].content", reader.find("messages")->size() - 1),
                       "expected text alone, as the last turn is the assistant's: the reply goes on with it");
  }
  if (out.tools.must_call()) {
    return reader.fail("tool_choice.type",
                       "can't ask for a call where the last message is the assistant's: text was begun");
  }
  const Json* thinking = reader.find("thinking");
  if (thinking != nullptr && thinking->at("type") != "disabled") {
    return reader.fail("thinking.type",
                       "expected disabled, as the last message is the assistant's: text was begun");
  }
  out.continue_final_message = true;
  out.add_generation_prompt = false;
}

// What is taken for the client's sake and changes nothing, and what would change the reply.
void read_labels(FieldReader& reader) {
  if (const Json* metadata = reader.find("metadata")) {
    FieldReader nested(*metadata, "metadata");
    std::string user;
    nested.text("user_id", user);
    if (!nested.ok()) return reader.fail(nested.status());
  }
  std::string tier;
  reader.text("service_tier", tier);
  if (reader.ok() && !tier.empty() && tier != "auto" && tier != "standard_only")
    reader.expected("service_tier", "auto or standard_only", Json(tier));
  for (const char* name : {"mcp_servers", "container", "compaction"}) {
    const Json* value = reader.find(name);
    if (value != nullptr && !value->empty())
      reader.fail(name, fmt::format("is not supported; leave it out (got {})", json_excerpt(*value)));
  }
}

// Fields of Loci's own that clients may add; their meaning and limits are those of chat completions.
void read_own_fields(FieldReader& reader, const RequestDefaults& defaults, GenerationFields& out) {
  SamplingParams& sampling = out.sampling;
  read_seed(reader, out);
  reader.number("min_p", kMinPRange, sampling.min_p);
  reader.number("repetition_penalty", kRepetitionPenaltyRange, sampling.repetition_penalty);
  reader.unsigned_integer("min_tokens", 0, kIntegerMax, sampling.min_tokens);
  check_min_tokens(reader, "max_tokens", out);
  read_logit_bias(reader, out);
  reader.boolean("ignore_eos", out.ignore_eos);
  read_stop_tokens(reader, out);
  read_loci(reader, out);
  read_cache_salt(reader, out);
  out.ignored = refuse_unserved(reader, defaults.unserved);
}

constexpr auto kNames = std::to_array<std::string_view>({
    "cache_control",  "cache_salt",    "chat_template_kwargs",
    "compaction",     "container",     "ignore_eos",
    "loci",           "logit_bias",    "max_tokens",
    "mcp_servers",    "messages",      "metadata",
    "min_p",          "min_tokens",    "model",
    "output_config",  "output_format", "repetition_penalty",
    "seed",           "service_tier",  "stop_sequences",
    "stop_token_ids", "stream",        "system",
    "temperature",    "thinking",      "thread",
    "tool_choice",    "tools",         "top_k",
    "top_p",
});
constexpr auto kConfigNames = std::to_array<std::string_view>({"effort", "format"});
constexpr auto kFormatNames = std::to_array<std::string_view>({"schema", "type"});
constexpr auto kThinkingNames = std::to_array<std::string_view>({"budget_tokens", "type"});
constexpr auto kChoiceNames = std::to_array<std::string_view>({"disable_parallel_tool_use", "name", "type"});
constexpr auto kLociNames = std::to_array<std::string_view>({"explain"});

// What this API does not read: fields of OpenAI's too.
std::vector<std::string> unknown_names(const Json& request) {
  std::vector<std::string> out = unknown_fields(request, {kNames, unserved_field_names()});
  const auto add = [&](std::string_view path, std::span<const std::string_view> known) {
    for (std::string& name : unknown_members(request, path, known)) out.push_back(std::move(name));
  };
  add("output_config", kConfigNames);
  add("output_config.format", kFormatNames);
  add("output_format", kFormatNames);
  add("thinking", kThinkingNames);
  add("tool_choice", kChoiceNames);
  add("loci", kLociNames);
  return out;
}

}  // namespace

Result<ChatRequest> parse_messages_request(const Json& request, MessagesPurpose purpose,
                                           const RequestDefaults& defaults) {
  ChatRequest out;
  GenerationFields& fields = out.fields;
  fields.sampling = defaults.sampling;
  FieldReader reader(request);
  refuse_thread(reader);
  reader.text("model", fields.model);
  reader.boolean("stream", fields.stream);
  read_numbers(reader, purpose, fields);
  read_stop_sequences(reader, fields);
  read_system_and_messages(reader, out.conversation.messages);
  read_tools(reader, out.conversation.tools);
  read_tool_choice(reader, out.conversation.tools);
  read_thinking(reader, out);
  read_beginning(reader, out.conversation);
  read_output_config(reader, out);
  read_labels(reader);
  read_own_fields(reader, defaults, fields);
  LOCI_RETURN_IF_ERROR(reader.status());
  out.unknown_fields = unknown_names(request);
  return out;
}

}  // namespace loci
