// SPDX-License-Identifier: Apache-2.0
#include "loci/model/hugging_face/directory_metadata.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>

#include "loci/model/file_map.h"
#include "loci/model/json_file.h"

namespace loci {
namespace {

using nlohmann::json;
using Metadata = std::map<std::string, GgufValue, std::less<>>;

constexpr std::uint64_t kConfigBytesMax = 16 << 20;
constexpr std::uint64_t kTokenizerBytesMax = 256 << 20;
constexpr std::uint64_t kTemplateBytesMax = 1 << 20;

// Absent where the directory has no such file.
Result<std::optional<std::string>> read_if_any(const std::string& directory, const char* name,
                                               std::uint64_t bytes_max) {
  Result<std::string> text = read_small_file(directory + "/" + name, bytes_max);
  if (text.ok()) return std::optional<std::string>(std::move(*text));
  if (text.status().code() == StatusCode::kNotFound) return std::optional<std::string>();
  return text.status();
}

Result<json> parse_named(const std::string& text, const char* name) {
  Result<json> parsed = parse_model_json(text);
  if (!parsed.ok()) return invalid_argument(parsed.status().message(), name);
  if (!parsed->is_object())
    return invalid_argument(fmt::format("expected an object, found {}", describe_json(*parsed)), name);
  return parsed;
}

Result<const PublishedFamily*> find_published(const JsonFields& config) {
  LOCI_ASSIGN_OR_RETURN(const std::string type, config.get_string("model_type"));
  std::string known;
  for (const PublishedFamily& family : published_families()) {
    if (family.model_type == type) return &family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.model_type);
  }
  return config.unexpected("model_type", fmt::format("one of the known types ({})", known));
}

// Token numbers of a field that is one number or several.
Result<std::vector<std::int32_t>> read_token_ids(const JsonFields& fields, std::string_view name) {
  std::vector<std::int32_t> ids;
  const json* value = fields.find(name);
  if (value == nullptr) return ids;
  const auto add = [&](const json& id) {
    const bool is_id = id.is_number_unsigned() && id.get<std::uint64_t>() <= INT32_MAX;
    if (is_id) ids.push_back(id.get<std::int32_t>());
    return is_id;
  };
  bool are_ids = true;
  if (value->is_array()) {
    for (const json& id : *value) are_ids = are_ids && add(id);
  } else {
    are_ids = add(*value);
  }
  if (!are_ids) return fields.unexpected(name, "a token's number or an array of them");
  return ids;
}

// Drawing tokens, under GGUF's names. `do_sample` is passed by, as by other servers: without it a directory
// would answer greedily whose makers name a temperature.
void add_sampling(const json& generation, Metadata& metadata) {
  constexpr std::pair<const char*, const char*> kNames[] = {{"temperature", "temp"},
                                                            {"top_p", "top_p"},
                                                            {"top_k", "top_k"},
                                                            {"min_p", "min_p"},
                                                            {"repetition_penalty", "penalty_repeat"}};
  if (!generation.is_object()) return;
  for (const auto& [name, key] : kNames) {
    const auto found = generation.find(name);
    if (found == generation.end() || found->is_null()) continue;
    const std::string full = std::string("general.sampling.") + key;
    if (found->is_number())
      metadata[full] = found->get<double>();
    else
      metadata[full] = found->dump();  // named as what it is where it is read
  }
}

// generation_config.json says more (a chat's end of turn) where both say something.
Status add_special_tokens(const std::string& directory, const JsonFields& config, Metadata& metadata) {
  constexpr const char* kName = "generation_config.json";
  LOCI_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                        read_if_any(directory, kName, kConfigBytesMax));
  json generation = json::object();
  if (text) {
    LOCI_ASSIGN_OR_RETURN(generation, parse_named(*text, kName));
  }
  const JsonFields generation_fields(generation, kName);
  add_sampling(generation, metadata);
  for (const JsonFields* fields : {&generation_fields, &config}) {
    if (!metadata.contains("tokenizer.ggml.end_token_ids")) {
      LOCI_ASSIGN_OR_RETURN(std::vector<std::int32_t> ends, read_token_ids(*fields, "eos_token_id"));
      if (!ends.empty()) metadata["tokenizer.ggml.end_token_ids"] = GgufArray{std::move(ends)};
    }
    if (!metadata.contains("tokenizer.ggml.bos_token_id")) {
      LOCI_ASSIGN_OR_RETURN(const std::vector<std::int32_t> begin, read_token_ids(*fields, "bos_token_id"));
      if (!begin.empty()) metadata["tokenizer.ggml.bos_token_id"] = static_cast<std::uint32_t>(begin[0]);
    }
  }
  return {};
}

// chat_template: a string, or [{"name": "default", "template": "..."}, ...].
Result<std::optional<std::string>> template_of(const JsonFields& config) {
  const json* value = config.find("chat_template");
  if (value == nullptr) return std::optional<std::string>();
  if (value->is_string()) return std::optional<std::string>(value->get<std::string>());
  if (!value->is_array())
    return config.unexpected("chat_template", "a string or an array of named templates");
  std::optional<std::string> chosen;
  for (const json& item : *value) {
    const JsonFields named(item, "tokenizer_config.json: chat_template");
    LOCI_ASSIGN_OR_RETURN(const std::string name, named.get_string("name"));
    LOCI_ASSIGN_OR_RETURN(std::string source, named.get_string("template"));
    if (name == "default" || !chosen) chosen = std::move(source);
    if (name == "default") break;
  }
  return chosen;
}

Status add_text(const std::string& directory, Metadata& metadata) {
  constexpr const char* kConfigName = "tokenizer_config.json";
  LOCI_ASSIGN_OR_RETURN(std::optional<std::string> tokenizer,
                        read_if_any(directory, "tokenizer.json", kTokenizerBytesMax));
  LOCI_ASSIGN_OR_RETURN(std::optional<std::string> config_text,
                        read_if_any(directory, kConfigName, kTokenizerBytesMax));
  LOCI_ASSIGN_OR_RETURN(std::optional<std::string> chat_template,
                        read_if_any(directory, "chat_template.jinja", kTemplateBytesMax));
  if (config_text) {
    LOCI_ASSIGN_OR_RETURN(const json config, parse_named(*config_text, kConfigName));
    if (!chat_template) {
      LOCI_ASSIGN_OR_RETURN(chat_template, template_of(JsonFields(config, kConfigName)));
    }
    metadata["tokenizer.huggingface.config"] = std::move(*config_text);
  }
  if (tokenizer) metadata["tokenizer.huggingface.json"] = std::move(*tokenizer);
  if (chat_template) metadata["tokenizer.chat_template"] = std::move(*chat_template);
  return {};
}

}  // namespace

Result<DirectoryMetadata> read_directory_metadata(const std::string& directory) {
  constexpr const char* kName = "config.json";
  LOCI_ASSIGN_OR_RETURN(const std::string text, read_small_file(directory + "/" + kName, kConfigBytesMax));
  LOCI_ASSIGN_OR_RETURN(const json config, parse_named(text, kName));
  const JsonFields fields(config, kName);
  DirectoryMetadata result;
  LOCI_ASSIGN_OR_RETURN(result.family, find_published(fields));
  Metadata& metadata = result.metadata;
  metadata["general.architecture"] = std::string(result.family->family);
  metadata["general.name"] =
      (std::filesystem::absolute(directory) / "").lexically_normal().parent_path().filename().string();
  LOCI_RETURN_IF_ERROR(result.family->configure(config, metadata));
  LOCI_RETURN_IF_ERROR(add_special_tokens(directory, fields, metadata));
  LOCI_RETURN_IF_ERROR(add_text(directory, metadata));
  return result;
}

}  // namespace loci
