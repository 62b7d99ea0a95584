#include "loci/model/families/published.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

namespace loci {
namespace {

using Json = nlohmann::json;

Status wrong(std::string_view field, std::string_view expected, const Json* found) {
  return invalid_argument(fmt::format("expected {}, found {}", expected,
                                      found == nullptr ? "no such field" : found->dump().substr(0, 60)),
                          std::string(field));
}

const Json* find_in(const Json& object, std::string_view field) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(field);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// Counts that a program wrote as 4096.0 are counts.
Result<std::uint64_t> to_count(const Json* value, std::string_view field) {
  constexpr std::string_view kExpected = "a whole number of at least 0";
  if (value == nullptr) return wrong(field, kExpected, nullptr);
  if (value->is_number_unsigned()) return value->get<std::uint64_t>();
  if (value->is_number_float()) {
    const double number = value->get<double>();
    if (number >= 0 && number < 0x1p53 && number == std::floor(number))
      return static_cast<std::uint64_t>(number);
  }
  return wrong(field, kExpected, value);
}

Result<double> to_number(const Json* value, std::string_view field) {
  if (value == nullptr || !value->is_number()) return wrong(field, "a number", value);
  return value->get<double>();
}

Result<bool> to_flag(const Json* value, std::string_view field) {
  if (value == nullptr || !value->is_boolean()) return wrong(field, "true or false", value);
  return value->get<bool>();
}

Result<GgufValue> to_factors(const Json* value, std::string_view field) {
  if (value == nullptr || !value->is_array()) return wrong(field, "an array of numbers", value);
  std::vector<float> factors;
  for (const Json& element : *value) {
    if (!element.is_number()) return wrong(field, "an array of numbers", value);
    factors.push_back(element.get<float>());
  }
  return GgufValue(GgufArray{std::move(factors)});
}

Result<std::string> to_rope_type(const Json& scaling) {
  const Json* type = find_in(scaling, "rope_type");
  if (type == nullptr) type = find_in(scaling, "type");
  if (type == nullptr) return std::string("default");
  if (!type->is_string()) return wrong("rope_scaling.rope_type", "a string", type);
  return type->get<std::string>() == "su" ? std::string("longrope") : type->get<std::string>();
}

}  // namespace

PublishedConfig::PublishedConfig(const Json& config, std::string_view family, Metadata& metadata)
    : config_(&config), family_(family), metadata_(&metadata) {}

const Json* PublishedConfig::find(std::string_view field) const { return find_in(*config_, field); }
bool PublishedConfig::has(std::string_view field) const { return find(field) != nullptr; }

void PublishedConfig::set(std::string_view key, GgufValue value) {
  metadata_->insert_or_assign(fmt::format("{}.{}", family_, key), std::move(value));
}

Status PublishedConfig::copy_field(const PublishedField& field) {
  const Json* value = find(field.field);
  if (value == nullptr && field.need == FieldNeed::kOptional) return {};
  switch (field.kind) {
    case FieldKind::kCount: {
      LOCI_ASSIGN_OR_RETURN(const std::uint64_t count, to_count(value, field.field));
      set(field.key, count);
      return {};
    }
    case FieldKind::kNumber: {
      LOCI_ASSIGN_OR_RETURN(const double number, to_number(value, field.field));
      set(field.key, static_cast<float>(number));  // as GGUF holds it
      return {};
    }
    case FieldKind::kFlag: {
      LOCI_ASSIGN_OR_RETURN(const bool flag, to_flag(value, field.field));
      set(field.key, flag);
      return {};
    }
  }
  return internal_error("no such kind of field");
}

Status PublishedConfig::copy(std::span<const PublishedField> fields) {
  for (const PublishedField& field : fields) LOCI_RETURN_IF_ERROR(copy_field(field));
  return {};
}

Status PublishedConfig::copy(std::initializer_list<PublishedField> fields) {
  return copy(std::span(fields.begin(), fields.size()));
}

Status PublishedConfig::expect(std::string_view field, std::initializer_list<std::string_view> values) const {
  const Json* value = find(field);
  if (value == nullptr) return {};
  std::string known;
  for (const std::string_view expected : values) {
    if (value->is_string() && value->get_ref<const std::string&>() == expected) return {};
    known += fmt::format("{}\"{}\"", known.empty() ? "" : " or ", expected);
  }
  return wrong(field, known, value);
}

Status PublishedConfig::expect(std::string_view field, bool value) const {
  const Json* found = find(field);
  if (found == nullptr || (found->is_boolean() && found->get<bool>() == value)) return {};
  return wrong(field, value ? "true" : "false", found);
}

Result<std::uint64_t> PublishedConfig::count(std::string_view field) const {
  return to_count(find(field), field);
}
Result<std::uint64_t> PublishedConfig::count_or(std::string_view field, std::uint64_t otherwise) const {
  return has(field) ? count(field) : Result<std::uint64_t>(otherwise);
}
Result<double> PublishedConfig::number(std::string_view field) const { return to_number(find(field), field); }
Result<double> PublishedConfig::number_or(std::string_view field, double otherwise) const {
  return has(field) ? number(field) : Result<double>(otherwise);
}
Result<bool> PublishedConfig::flag_or(std::string_view field, bool otherwise) const {
  return has(field) ? to_flag(find(field), field) : Result<bool>(otherwise);
}

Status PublishedConfig::copy_scaling(const Json& scaling) {
  LOCI_ASSIGN_OR_RETURN(const std::string type, to_rope_type(scaling));
  if (type == "default") return {};
  if (type != "linear" && type != "llama3" && type != "yarn" && type != "longrope") {
    return invalid_argument(
        fmt::format("expected default, linear, llama3, yarn or longrope, found \"{}\"", type),
        "rope_scaling.rope_type");
  }
  set("rope.scaling.type", type);
  if (type == "yarn") {
    const Json* mscale = find_in(scaling, "mscale");
    const Json* all = find_in(scaling, "mscale_all_dim");
    if (mscale != nullptr && all != nullptr && *mscale != *all) {
      return wrong("rope_scaling.mscale", fmt::format("{} as in mscale_all_dim", all->dump()), mscale);
    }
    if (mscale != nullptr && all != nullptr && !find_in(scaling, "attention_factor")) {
      set("rope.scaling.yarn_attn_factor", 1.0f);
    }
  }
  PublishedConfig part(scaling, family_, *metadata_);
  constexpr PublishedField kNumbers[] = {
      {"factor", "rope.scaling.factor", FieldKind::kNumber, FieldNeed::kOptional},
      {"low_freq_factor", "rope.scaling.low_freq_factor", FieldKind::kNumber, FieldNeed::kOptional},
      {"high_freq_factor", "rope.scaling.high_freq_factor", FieldKind::kNumber, FieldNeed::kOptional},
      {"beta_fast", "rope.scaling.yarn_beta_fast", FieldKind::kNumber, FieldNeed::kOptional},
      {"beta_slow", "rope.scaling.yarn_beta_slow", FieldKind::kNumber, FieldNeed::kOptional},
      {"truncate", "rope.scaling.yarn_truncate", FieldKind::kFlag, FieldNeed::kOptional},
      {"original_max_position_embeddings", "rope.scaling.original_context_length", FieldKind::kCount,
       FieldNeed::kOptional},
  };
  if (Status status = part.copy(kNumbers); !status.ok()) return status.with_context("rope_scaling");
  if (const Json* factor = find_in(scaling, "attention_factor")) {
    LOCI_ASSIGN_OR_RETURN(const double number, to_number(factor, "rope_scaling.attention_factor"));
    set(type == "yarn" ? "rope.scaling.yarn_attn_factor" : "rope.scaling.attn_factor",
        static_cast<float>(number));
  }
  if (type == "longrope") {
    for (const char* name : {"long", "short"}) {
      const std::string field = fmt::format("{}_factor", name);
      LOCI_ASSIGN_OR_RETURN(GgufValue factors, to_factors(find_in(scaling, field), "rope_scaling." + field));
      set(fmt::format("rope.scaling.{}_factors", name), std::move(factors));
    }
  }
  return {};
}

Status PublishedConfig::copy_rope() {
  const Json* parameters = find("rope_parameters");  // since version 5 of transformers
  const Json* scaling = parameters != nullptr ? parameters : find("rope_scaling");
  const Json& rope = parameters != nullptr ? *parameters : *config_;
  for (const Json* object : {parameters, scaling}) {
    if (object != nullptr && !object->is_object()) return wrong("rope_scaling", "an object", object);
  }
  LOCI_RETURN_IF_ERROR(
      PublishedConfig(rope, family_, *metadata_)
          .copy({{"rope_theta", "rope.freq_base", FieldKind::kNumber, FieldNeed::kOptional}}));
  const Json* partial = find_in(rope, "partial_rotary_factor");
  if (partial == nullptr) partial = find("partial_rotary_factor");
  if (partial != nullptr) {
    LOCI_ASSIGN_OR_RETURN(const double share, to_number(partial, "partial_rotary_factor"));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t hidden, count("hidden_size"));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t heads, count("num_attention_heads"));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t head_dim,
                          count_or("head_dim", hidden / std::max<std::uint64_t>(heads, 1)));
    if (!(share > 0 && share <= 1))
      return wrong("partial_rotary_factor", "a number above 0 and up to 1", partial);
    set("rope.dimension_count", static_cast<std::uint64_t>(static_cast<double>(head_dim) * share));
  }
  if (scaling != nullptr) LOCI_RETURN_IF_ERROR(copy_scaling(*scaling));
  // Phi 3 has it beside the scaling. It decides between the factors even where it is in both.
  return copy({{"original_max_position_embeddings", "rope.scaling.original_context_length", FieldKind::kCount,
                FieldNeed::kOptional}});
}

Status PublishedConfig::copy_windows() {
  LOCI_RETURN_IF_ERROR(
      copy({{"sliding_window", "attention.sliding_window", FieldKind::kCount, FieldNeed::kOptional}}));
  const Json* types = find("layer_types");
  if (types == nullptr || !has("sliding_window")) return {};
  if (!types->is_array()) return wrong("layer_types", "an array of strings", types);
  std::vector<bool> windowed;
  for (const Json& type : *types) {
    if (type != "sliding_attention" && type != "full_attention") {
      return wrong("layer_types", "\"sliding_attention\" or \"full_attention\"", &type);
    }
    windowed.push_back(type == "sliding_attention");
  }
  set("attention.sliding_window_pattern", GgufArray{std::move(windowed)});
  return {};
}

Status PublishedConfig::copy_windows_if_used() {
  LOCI_ASSIGN_OR_RETURN(const bool used, flag_or("use_sliding_window", false));
  if (!used || !has("sliding_window")) return {};
  if (!has("layer_types") && has("max_window_layers")) {
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t layers, count("num_hidden_layers"));
    LOCI_ASSIGN_OR_RETURN(const std::uint64_t first, count("max_window_layers"));
    if (layers > 100'000) return wrong("num_hidden_layers", "at most 100000", find("num_hidden_layers"));
    std::vector<bool> windowed(layers);
    for (std::uint64_t i = first; i < layers; ++i) windowed[i] = true;
    set("attention.sliding_window_pattern", GgufArray{std::move(windowed)});
  }
  return copy_windows();
}

}  // namespace loci
