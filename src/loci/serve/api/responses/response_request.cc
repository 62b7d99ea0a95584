// SPDX-License-Identifier: Apache-2.0
#include "loci/serve/api/responses/response_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "loci/serve/api/responses/tool_fields.h"
#include "loci/serve/conversation/reasoning_effort.h"
#include "loci/serve/generation/generation_fields.h"
#include "loci/serve/wire/field_reader.h"
#include "loci/serve/wire/json.h"
#include "loci/serve/wire/json_parse.h"

namespace loci {

namespace {

// What would change the reply, and is not served.
constexpr std::array<const char*, 5> kUnservedFields = {"prompt", "context_management", "moderation",
                                                        "messages", "n"};

// What may be asked for beside the reply. All but the first concern what is never in a reply of Loci's, or
// is always there (reasoning is plain text).
constexpr std::string_view kLogprobs = "message.output_text.logprobs";
constexpr std::array<std::string_view, 8> kIncludable = {kLogprobs,
                                                         "reasoning.encrypted_content",
                                                         "file_search_call.results",
                                                         "web_search_call.results",
                                                         "web_search_call.action.sources",
                                                         "message.input_image.image_url",
                                                         "computer_call_output.output.image_url",
                                                         "code_interpreter_call.outputs"};

template <class Names>
std::string one_of(const Names& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "one of " : ", ") + std::string(name);
  return text;
}

// Reads one request; errors stick in the reader.
class Parser {
 public:
  Parser(const Json& request, bool can_store, const RequestDefaults& defaults, ResponsePurpose purpose)
      : request_(request), reader_(request), can_store_(can_store), defaults_(defaults), purpose_(purpose) {}

  Result<ResponseRequest> parse() {
    out_.echo = Json::object();
    out_.fields.sampling = defaults_.sampling;
    refuse_unserved();
    read_input();
    read_continuation();
    read_storing();
    read_limits();
    read_sampling();
    read_include();
    read_reasoning();
    read_text_format();
    if (reader_.ok()) reader_.fail(read_tool_fields(reader_, out_.echo, out_.tools));
    read_labels();
    read_beyond();
    LOCI_RETURN_IF_ERROR(reader_.status());
    return std::move(out_);
  }

 private:
  void refuse_unserved() {
    for (const char* name : kUnservedFields) {
      const Json* value = reader_.find(name);
      if (value == nullptr || (std::string_view(name) == "n" && as_integer(*value) == 1)) continue;
      const bool is_empty_list = value->is_array() && value->empty();
      if (is_empty_list && std::string_view(name) == "context_management") continue;
      reader_.fail(
          unimplemented(fmt::format("is not supported; leave it out (got {})", json_excerpt(*value)), name));
    }
  }

  void read_input() {
    reader_.text("model", out_.fields.model);
    reader_.text("instructions", out_.instructions);
    out_.echo["instructions"] = nullptr;
    if (reader_.find("instructions") != nullptr) out_.echo["instructions"] = out_.instructions;
    const Json* input = reader_.find("input");
    if (!reader_.ok()) return;
    if (input == nullptr) {
      if (purpose_ == ResponsePurpose::kReply) reader_.fail("input", "is required");
      return;
    }
    Result<std::vector<Item>> items = parse_input(*input, "input");
    if (!items.ok()) return reader_.fail(items.status());
    if (items->empty()) return reader_.fail("input", "expected at least one item; got none");
    out_.input = std::move(*items);
  }

  void read_continuation() {
    reader_.text("previous_response_id", out_.previous_response_id);
    if (const Json* conversation = reader_.find("conversation")) {
      if (conversation->is_string()) {
        out_.conversation = conversation->get<std::string>();
      } else if (conversation->is_object()) {
        FieldReader nested(*conversation, "conversation");
        nested.text("id", out_.conversation);
        if (!nested.ok()) return reader_.fail(nested.status());
        if (out_.conversation.empty()) return reader_.fail("conversation.id", "is required");
      } else {
        return reader_.expected("conversation", "an id or an object with one", *conversation);
      }
    }
    if (!out_.conversation.empty() && !out_.previous_response_id.empty()) {
      reader_.fail("previous_response_id",
                   "is only allowed without conversation: a response continues one or the other");
    }
    if (!out_.conversation.empty()) refuse_references();
    out_.echo["previous_response_id"] = nullptr;
    if (!out_.previous_response_id.empty()) out_.echo["previous_response_id"] = out_.previous_response_id;
  }

  // A conversation has each item once, and the items of its turns become its own.
  void refuse_references() {
    for (std::size_t i = 0; i < out_.input.size(); ++i) {
      if (out_.input[i].at("type") != "item_reference") continue;
      return reader_.fail(unimplemented(
          "expected an item itself: a reference is not taken where conversation is set, because the "
          "conversation has the item already",
          fmt::format("input[{}].type", i)));
    }
  }

  void read_storing() {
    reader_.boolean("stream", out_.fields.stream);
    reader_.boolean("background", out_.background);
    out_.store = can_store_;
    reader_.boolean("store", out_.store);
    if (out_.store && !can_store_) {
      reader_.fail(unimplemented(
          "this server keeps no conversations (it runs without a store: option store); set it to false",
          "store"));
    }
    if (out_.background && !can_store_) {
      reader_.fail(unimplemented(
          "this server keeps no responses, and makes none that nobody waits for (it runs without a store: "
          "option store)",
          "background"));
    }
    if (out_.background && !out_.store)
      reader_.fail("background", "is only allowed where store is true: its outcome is read from there");
    // (Without a store there is nothing to go on from: whoever looks for it says so.)
    if (!out_.conversation.empty() && can_store_ && !out_.store)
      reader_.fail("conversation", "is only allowed where store is true: the turn becomes part of it");
    out_.echo["background"] = out_.background;
    out_.echo["store"] = out_.store;
    if (const Json* options = reader_.find("stream_options")) {
      FieldReader nested(*options, "stream_options");
      bool obfuscation = false;
      nested.boolean("include_obfuscation", obfuscation);
      if (!nested.ok()) return reader_.fail(nested.status());
      if (!out_.fields.stream) reader_.fail("stream_options", "is only allowed where stream is true");
    }
  }

  void read_limits() {
    out_.echo["max_output_tokens"] = nullptr;
    std::optional<std::int64_t> tokens;
    reader_.integer("max_output_tokens", 1, std::numeric_limits<std::int32_t>::max(), tokens);
    if (tokens) {
      out_.echo["max_output_tokens"] = *tokens;
      out_.fields.max_tokens = static_cast<std::uint32_t>(*tokens);
    }
    // Of tools that the server runs itself: Loci has none, so any number is kept.
    out_.echo["max_tool_calls"] = nullptr;
    std::optional<std::int64_t> calls;
    reader_.integer("max_tool_calls", 1, std::numeric_limits<std::int32_t>::max(), calls);
    if (calls) out_.echo["max_tool_calls"] = *calls;
    read_choice(reader_, "truncation", {"auto", "disabled"}, out_.truncation);
    // Where the request does not say the server's rule is told (prepare_response).
    out_.echo["truncation"] = out_.truncation.empty() ? "disabled" : out_.truncation;
  }

  void read_sampling() {
    GenerationFields& fields = out_.fields;
    loci::read_sampling(reader_, fields);
    check_min_tokens(reader_, "max_output_tokens", fields);
    for (const auto& [name, value] :
         {std::pair{"temperature", fields.sampling.temperature}, {"top_p", fields.sampling.top_p}}) {
      const Json* given = reader_.find(name);
      // What the server chose is told as it was written there (0.8), not as a float makes it.
      out_.echo[name] = given == nullptr ? decimal_json(value) : Json(*given);
    }
    std::uint32_t top = 0;
    reader_.unsigned_integer("top_logprobs", 0, kTopLogprobsMax, top);
    out_.echo["top_logprobs"] = top;
  }

  void read_include() {
    const Json* include = reader_.find("include");
    if (include == nullptr) return;
    if (!include->is_array()) return reader_.expected("include", "an array of strings", *include);
    for (std::size_t i = 0; i < include->size(); ++i) {
      const Json& name = (*include)[i];
      const bool known = name.is_string() && std::find(kIncludable.begin(), kIncludable.end(),
                                                       name.get<std::string>()) != kIncludable.end();
      if (!known) {
        return reader_.expected(fmt::format("include[{}]", i), one_of(kIncludable), name);
      }
      out_.logprobs = out_.logprobs || name == kLogprobs;
    }
    if (!out_.logprobs) return;
    out_.fields.sampling.logprobs = true;
    out_.fields.sampling.top_logprobs = out_.echo["top_logprobs"].get<std::uint32_t>();
  }

  void read_reasoning() {
    Json echo = {{"effort", nullptr}, {"summary", nullptr}};
    if (const Json* given = reader_.find("chat_template_kwargs")) {
      if (!given->is_object()) return reader_.expected("chat_template_kwargs", "an object", *given);
      out_.template_arguments = *given;
    }
    if (const Json* reasoning = reader_.find("reasoning")) {
      FieldReader nested(*reasoning, "reasoning");
      std::string& effort = out_.reasoning_effort;
      read_reasoning_effort(nested, "effort", kOpenAiEfforts, effort);
      // No summaries are written: reasoning is shown as it is.
      std::string summary;
      read_choice(nested, "summary", {"auto", "concise", "detailed"}, summary);
      if (!nested.ok()) return reader_.fail(nested.status());
      if (!effort.empty()) echo["effort"] = effort;
    }
    out_.echo["reasoning"] = std::move(echo);
  }

  void read_choice(FieldReader& reader, std::string_view name, std::initializer_list<std::string_view> values,
                   std::string& out) {
    reader.text(name, out);
    if (!reader.ok() || out.empty() || std::find(values.begin(), values.end(), out) != values.end()) return;
    reader.expected(name, one_of(values), Json(out));
  }

  void read_text_format() {
    Json echo = {{"format", {{"type", "text"}}}, {"verbosity", "medium"}};
    if (const Json* text = reader_.find("text")) {
      FieldReader nested(*text, "text");
      std::string verbosity;
      read_choice(nested, "verbosity", {"low", "medium", "high"}, verbosity);
      if (!verbosity.empty()) echo["verbosity"] = verbosity;
      if (const Json* format = nested.find("format")) read_format(nested, *format, echo["format"]);
      if (!nested.ok()) return reader_.fail(nested.status());
    }
    out_.echo["text"] = std::move(echo);
  }

  void read_format(FieldReader& text, const Json& value, Json& echo) {
    FieldReader format(value, "text.format");
    std::string type;
    format.text("type", type);
    if (!format.ok()) return text.fail(format.status());
    if (type == "json_object") {
      constrain_to_object(text, "format", out_.fields.constraint);
    } else if (type == "json_schema") {
      std::string name;
      format.text("name", name);
      if (format.ok() && name.empty()) format.fail("name", "is required");
      const Json* definition = format.find("schema");
      if (format.ok() && definition == nullptr) format.fail("schema", "is required");
      if (format.ok() && !definition->is_object())
        format.expected("schema", "an object, a JSON schema", *definition);
      bool strict = false;
      format.boolean("strict", strict);
      std::string description;
      format.text("description", description);
      if (format.ok()) constrain_to_schema(format, "schema", *definition, out_.fields.constraint);
      if (!format.ok()) return text.fail(format.status());
    } else if (type != "text") {
      return text.expected("format.type", "text, json_object or json_schema", value.value("type", Json()));
    }
    echo = Json{{"type", type}};
    for (const char* field : {"name", "description", "schema", "strict"}) {
      if (const Json* given = format.find(field); given != nullptr && type == "json_schema")
        echo[field] = *given;
    }
  }

  // What is kept and shown, and decides nothing.
  void read_labels() {
    for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) {
      std::string text;
      reader_.text(name, text);
      out_.echo[name] = nullptr;
      if (reader_.find(name) != nullptr) out_.echo[name] = text;
    }
    out_.echo["service_tier"] = "default";
    read_cache_options();
    if (!reader_.ok()) return;
    Result<Json> metadata = read_metadata(request_);
    if (!metadata.ok()) return reader_.fail(metadata.status());
    out_.echo["metadata"] = std::move(*metadata);
  }

  // Every prefix is kept, whatever they say; but who asks for a reply that is not made would get one.
  void read_cache_options() {
    const Json* options = reader_.find("prompt_cache_options");
    if (options == nullptr) return;
    FieldReader nested(*options, "prompt_cache_options");
    bool prewarm = false;
    nested.boolean("prewarm", prewarm);
    if (prewarm)
      nested.fail(unimplemented("is not supported, as a reply would be made all the same; leave it out",
                                nested.full_name("prewarm")));
    if (!nested.ok()) reader_.fail(nested.status());
  }

  // Beyond OpenAI's; their meaning and limits are those of chat completions.
  void read_beyond() {
    GenerationFields& fields = out_.fields;
    read_seed(reader_, fields);
    read_logit_bias(reader_, fields);
    read_stop(reader_, "stop", fields);
    read_stop_tokens(reader_, fields);
    reader_.boolean("ignore_eos", fields.ignore_eos);
    read_loci(reader_, fields);
    read_guides(reader_, fields.constraint);
    read_cache_salt(reader_, fields);
    fields.ignored = loci::refuse_unserved(reader_, defaults_.unserved);
  }

  const Json& request_;
  FieldReader reader_;
  bool can_store_;
  const RequestDefaults& defaults_;
  ResponsePurpose purpose_;
  ResponseRequest out_;
};

}  // namespace

Result<Json> read_metadata(const Json& request) {
  FieldReader reader(request);
  Json out = Json::object();
  const Json* metadata = reader.find("metadata");
  LOCI_RETURN_IF_ERROR(reader.status());
  if (metadata == nullptr) return out;
  if (!metadata->is_object()) reader.expected("metadata", "an object of strings", *metadata);
  LOCI_RETURN_IF_ERROR(reader.status());
  if (metadata->size() > kMetadataPairsMax) {
    return invalid_argument(
        fmt::format("expected at most {} pairs; got {}", kMetadataPairsMax, metadata->size()), "metadata");
  }
  for (const auto& [key, value] : metadata->items()) {
    if (count_characters(key) > kMetadataKeyCharactersMax) {
      return invalid_argument(fmt::format("expected keys of at most {} characters; got one of {}",
                                          kMetadataKeyCharactersMax, count_characters(key)),
                              "metadata");
    }
    const std::string field = "metadata." + key;
    if (!value.is_string())
      return invalid_argument(fmt::format("expected a string; got {}", json_excerpt(value)), field);
    const std::string& text = value.get_ref<const std::string&>();
    if (count_characters(text) > kMetadataValueCharactersMax) {
      return invalid_argument(fmt::format("expected at most {} characters; got {}",
                                          kMetadataValueCharactersMax, count_characters(text)),
                              field);
    }
    out[key] = text;
  }
  return out;
}

Result<ResponseRequest> parse_response_request(const Json& request, bool can_store,
                                               const RequestDefaults& defaults, ResponsePurpose purpose) {
  return Parser(request, can_store, defaults, purpose).parse();
}

}  // namespace loci
