// SPDX-License-Identifier: Apache-2.0
#include "loci/model/families/published.h"

#include <fmt/format.h>
#include <algorithm>

#include <utility>
#include <vector>

namespace loci {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t kListedLayersMax = 100'000;  // of what a list is made for

constexpr PublishedField kScalingFields[] = {
    {"factor", "rope.scaling.factor", FieldKind::kNumber, FieldNeed::kOptional},
    {"low_freq_factor", "rope.scaling.low_freq_factor", FieldKind::kNumber, FieldNeed::kOptional},
    {"high_freq_factor", "rope.scaling.high_freq_factor", FieldKind::kNumber, FieldNeed::kOptional},
    {"beta_fast", "rope.scaling.yarn_beta_fast", FieldKind::kNumber, FieldNeed::kOptional},
    {"beta_slow", "rope.scaling.yarn_beta_slow", FieldKind::kNumber, FieldNeed::kOptional},
    {"truncate", "rope.scaling.yarn_truncate", FieldKind::kFlag, FieldNeed::kOptional},
    {"original_max_position_embeddings", "rope.scaling.original_context_length", FieldKind::kCount,
     FieldNeed::kOptional},
};

Result<GgufValue> read_factors(const JsonFields& scaling, std::string_view name) {
  const Json* value = scaling.find(name);
  if (value == nullptr || !value->is_array()) return scaling.unexpected(name, "an array of numbers");
  std::vector<float> factors;
  for (const Json& factor : *value) {
    if (!factor.is_number()) return scaling.unexpected(name, "an array of numbers alone");
    factors.push_back(factor.get<float>());
  }
  return GgufValue(GgufArray{std::move(factors)});
}

Result<std::string> read_rope_type(const JsonFields& scaling) {
  const char* name = scaling.has("rope_type") ? "rope_type" : "type";
  LOCI_ASSIGN_OR_RETURN(std::string type, scaling.get_string_or(name, "default"));
  if (type == "su") type = "longrope";  // its older name
  if (type == "default" || type == "linear" || type == "llama3" || type == "yarn" || type == "longrope") {
    return type;
  }
  return scaling.unexpected(name, "default, linear, llama3, yarn or longrope");
}

// YaRN's magnitude as DeepSeek gives it: the ratio of two, which is 1 where they are the same.
Result<bool> has_equal_mscales(const JsonFields& scaling) {
  if (!scaling.has("mscale") || !scaling.has("mscale_all_dim")) return false;
  LOCI_ASSIGN_OR_RETURN(const double one, scaling.get_number("mscale"));
  LOCI_ASSIGN_OR_RETURN(const double other, scaling.get_number("mscale_all_dim"));
  if (one != other) return scaling.unexpected("mscale", fmt::format("{} as in mscale_all_dim", other));
  return true;
}

}  // namespace

PublishedConfig::PublishedConfig(const Json& config, std::string_view family, Metadata& metadata)
    : PublishedConfig(JsonFields(config, "config.json"), family, metadata) {}

PublishedConfig::PublishedConfig(JsonFields fields, std::string_view family, Metadata& metadata)
    : fields_(std::move(fields)), family_(family), metadata_(&metadata) {}

void PublishedConfig::set(std::string_view key, GgufValue value) {
  metadata_->insert_or_assign(fmt::format("{}.{}", family_, key), std::move(value));
}

void PublishedConfig::set_count(std::string_view key, std::uint64_t value) {
  if (std::in_range<std::uint32_t>(value)) {
    set(key, static_cast<std::uint32_t>(value));
  } else {
    set(key, value);
  }
}

Status PublishedConfig::copy(std::span<const PublishedField> fields) {
  for (const PublishedField& field : fields) {
    if (field.need == FieldNeed::kOptional && !has(field.field)) continue;
    if (field.kind == FieldKind::kCount) {
      LOCI_ASSIGN_OR_RETURN(const std::uint64_t count, fields_.get_uint(field.field));
      set_count(field.key, count);
    } else if (field.kind == FieldKind::kNumber) {
      LOCI_ASSIGN_OR_RETURN(const double number, fields_.get_number(field.field));
      set(field.key, static_cast<float>(number));  // as GGUF holds it
    } else {
      LOCI_ASSIGN_OR_RETURN(const bool flag, fields_.get_bool(field.field));
      set(field.key, flag);
    }
  }
  return {};
}

Status PublishedConfig::copy(std::initializer_list<PublishedField> fields) {
  return copy(std::span(fields.begin(), fields.size()));
}

Status PublishedConfig::expect(std::string_view field, std::initializer_list<std::string_view> values) const {
  const Json* value = fields_.find(field);
  if (value == nullptr) return {};
  std::string known;
  for (const std::string_view expected : values) {
    if (value->is_string() && value->get_ref<const std::string&>() == expected) return {};
    known += fmt::format("{}\"{}\"", known.empty() ? "" : " or ", expected);
  }
  return fields_.unexpected(field, known);
}

Status PublishedConfig::expect_bool(std::string_view field, bool value) const {
  LOCI_ASSIGN_OR_RETURN(const bool found, fields_.get_bool_or(field, value));
  if (found == value) return {};
  return fields_.unexpected(field, value ? "true" : "false");
}

Status PublishedConfig::copy_activation(std::string_view field) {
  if (!has(field)) return {};
  LOCI_ASSIGN_OR_RETURN(const std::string name, fields_.get_string(field));
  constexpr std::pair<std::string_view, std::string_view> kNames[] = {{"silu", "silu"},
                                                                      {"swish", "silu"},
                                                                      {"gelu", "gelu"},
                                                                      {"gelu_new", "gelu_tanh"},
                                                                      {"gelu_pytorch_tanh", "gelu_tanh"},
                                                                      {"relu", "relu"}};
  for (const auto& [published, ours] : kNames) {
    if (name == published) set("activation", std::string(ours));
  }
  if (metadata_->contains(fmt::format("{}.activation", family_))) return {};
  return fields_.unexpected(field, "silu, gelu, gelu_new, gelu_pytorch_tanh or relu");
}

Status PublishedConfig::copy_scaling(const JsonFields& scaling) {
  LOCI_ASSIGN_OR_RETURN(const std::string type, read_rope_type(scaling));
  if (type == "default") return {};
  set("rope.scaling.type", type);
  LOCI_RETURN_IF_ERROR(PublishedConfig(scaling, family_, *metadata_).copy(kScalingFields));
  const char* magnitude = type == "yarn" ? "rope.scaling.yarn_attn_factor" : "rope.scaling.attn_factor";
  if (scaling.has("attention_factor")) {
    LOCI_ASSIGN_OR_RETURN(const double factor, scaling.get_number("attention_factor"));
    set(magnitude, static_cast<float>(factor));
  } else if (type == "yarn") {
    LOCI_ASSIGN_OR_RETURN(const bool is_one, has_equal_mscales(scaling));
    if (is_one) set(magnitude, 1.0f);
  }
  if (type == "longrope") {
    for (const char* name : {"long", "short"}) {
      LOCI_ASSIGN_OR_RETURN(GgufValue factors, read_factors(scaling, fmt::format("{}_factor", name)));
      set(fmt::format("rope.scaling.{}_factors", name), std::move(factors));
    }
  }
  return {};
}

Status PublishedConfig::copy_rope() {
  // Since version 5 of transformers all of it is in rope_parameters.
  const bool in_one = has("rope_parameters");
  const char* name = in_one ? "rope_parameters" : "rope_scaling";
  const Json* scaling = fields_.find(name);
  if (scaling != nullptr && !scaling->is_object()) return fields_.unexpected(name, "an object");
  const Json nothing = Json::object();
  const JsonFields parameters(scaling == nullptr ? nothing : *scaling, fields_.field(name));
  const JsonFields& rope = in_one ? parameters : fields_;
  LOCI_RETURN_IF_ERROR(
      PublishedConfig(rope, family_, *metadata_)
          .copy({{"rope_theta", "rope.freq_base", FieldKind::kNumber, FieldNeed::kOptional}}));
  const JsonFields& partial = rope.has("partial_rotary_factor") ? rope : fields_;
  if (partial.has("partial_rotary_factor")) {
    LOCI_ASSIGN_OR_RETURN(const double share, partial.get_number("partial_rotary_factor"));
    if (!(share > 0 && share <= 1)) {
      return partial.unexpected("partial_rotary_factor", "a number above 0 and up to 1");
    }
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t hidden, fields_.get_uint("hidden_size"));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t heads, fields_.get_uint("num_attention_heads"));
    if (heads == 0) return fields_.unexpected("num_attention_heads", "a number above 0");
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t head_dim, fields_.get_uint_or("head_dim", hidden / heads));
    // A head_dim beyond 32 bits is refused with the other sizes.
    const auto counted = static_cast<double>(std::min<std::uint64_t>(head_dim, UINT32_MAX));
    set_count("rope.dimension_count", static_cast<std::uint64_t>(counted * share));
  }
  LOCI_RETURN_IF_ERROR(copy_scaling(parameters));
  // Phi 3 has it beside the scaling; it is the one that counts where both have it.
  return copy({{"original_max_position_embeddings", "rope.scaling.original_context_length", FieldKind::kCount,
                FieldNeed::kOptional}});
}

Status PublishedConfig::copy_windows() {
  if (!has("sliding_window")) return {};
  LOCI_RETURN_IF_ERROR(copy({{"sliding_window", "attention.sliding_window"}}));
  const Json* types = fields_.find("layer_types");
  if (types == nullptr) return {};
  if (!types->is_array()) return fields_.unexpected("layer_types", "an array of strings");
  std::vector<bool> windowed;
  for (const Json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      return fields_.unexpected("layer_types", "\"sliding_attention\" or \"full_attention\" for each layer");
    }
    windowed.push_back(type == "sliding_attention");
  }
  set("attention.sliding_window_pattern", GgufArray{std::move(windowed)});
  return {};
}

Status PublishedConfig::copy_windows_if_used() {
  LOCI_ASSIGN_OR_RETURN(const bool used, fields_.get_bool_or("use_sliding_window", false));
  if (!used || !has("sliding_window")) return {};
  if (!has("layer_types") && has("max_window_layers")) {
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t layers, fields_.get_uint("num_hidden_layers"));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t first, fields_.get_uint("max_window_layers"));
    if (layers > kListedLayersMax) {
      return fields_.unexpected("num_hidden_layers", fmt::format("at most {}", kListedLayersMax));
    }
    std::vector<bool> windowed(layers);
    for (std::uint64_t i = first; i < layers; ++i) windowed[i] = true;
    set("attention.sliding_window_pattern", GgufArray{std::move(windowed)});
  }
  return copy_windows();
}

}  // namespace loci
