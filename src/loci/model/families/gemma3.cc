// SPDX-License-Identifier: Apache-2.0
// Gemma 3 (its text part): norms of heads; five layers with a window to one that sees everything. The
// windowed ones rotate by another base, and their positions are never stretched.
#include "loci/model/families/family.h"
#include "loci/model/families/gemma.h"
#include "loci/model/families/rope.h"

namespace loci {
namespace {

constexpr std::uint32_t kGemma3LayersOf27b = 62;
constexpr std::uint32_t kGemma3WindowPeriod = 6;
constexpr double kBase = 1e6;
constexpr double kWindowedBase = 1e4;  // where the file doesn't say

Status read_gemma3_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_gemma_layer(part));
  return read_head_norms(part);
}

Status configure_text(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "gemma3", metadata);
  if (config.has("attn_logit_softcapping")) {
    return config.fields().unexpected("attn_logit_softcapping", "none, as Gemma 3 has");
  }
  LOCI_RETURN_IF_ERROR(config.copy({
      {"rope_local_base_freq", "rope.freq_base_swa", FieldKind::kNumber, FieldNeed::kOptional},
      {"sliding_window_pattern", "attention.sliding_window_pattern", FieldKind::kCount, FieldNeed::kOptional},
  }));
  return configure_gemma(config);
}

// Directories of the larger sizes hold a vision model beside the text's, whose config leaves out what
// transformers has as default.
Status configure_whole(const nlohmann::json& json, Metadata& metadata) {
  const JsonFields fields(json, "config.json");
  const nlohmann::json* text = fields.find("text_config");
  if (text == nullptr || !text->is_object()) return fields.unexpected("text_config", "an object");
  nlohmann::json whole = {
      {"num_attention_heads", 8},          {"num_key_value_heads", 4}, {"head_dim", 256},
      {"max_position_embeddings", 131072}, {"rms_norm_eps", 1e-6},     {"rope_theta", 1e6},
      {"query_pre_attn_scalar", 256}};
  whole.update(*text);
  return configure_text(whole, metadata);
}

// The text's tensors under their longer names; vision is not computed.
constexpr PublishedTensor kWholeTensors[] = {
    {"language_model.model.embed_tokens.weight", "token_embd.weight"},
    {"language_model.model.norm.weight", "output_norm.weight", TensorChange::kAddOne},
    {"language_model.lm_head.weight", "output.weight"},
    {"language_model.model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight",
     TensorChange::kAddOne},
    {"language_model.model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"language_model.model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"language_model.model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"language_model.model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"language_model.model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight",
     TensorChange::kAddOne},
    {"language_model.model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight",
     TensorChange::kAddOne},
    {"language_model.model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight",
     TensorChange::kAddOne},
    {"language_model.model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight",
     TensorChange::kAddOne},
    {"language_model.model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight",
     TensorChange::kAddOne},
    {"language_model.model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"language_model.model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"language_model.model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"vision_tower.{*}", ""},
    {"multi_modal_projector.{*}", ""},
};

}  // namespace

Result<ModelSpec> read_gemma3(const ModelSource& source) {
  SpecReader reader(source, "gemma3");
  ModelSpec spec = start_spec(reader);
  LOCI_RETURN_IF_ERROR(read_gemma_sizes(reader, kGemma3LayersOf27b, spec));
  LOCI_ASSIGN_OR_RETURN(const RopeSpec rope, read_rope(reader, spec, {.base = kBase}));
  LOCI_ASSIGN_OR_RETURN(const double base, reader.number_or("rope.freq_base_swa", 0, 1e12, kWindowedBase));
  spec.ropes.push_back(rope);
  spec.ropes.push_back(unscaled_rope(rope.layout, rope.dimensions, base));
  LOCI_RETURN_IF_ERROR(check_rope(spec.ropes.back(), base, reader.key("rope.freq_base_swa")));
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_gemma3_layer));
  LOCI_ASSIGN_OR_RETURN(const std::vector<bool> windowed,
                        read_windows(reader, {.period = kGemma3WindowPeriod}, spec));
  for (std::uint32_t i = 0; i < spec.layer_count(); ++i) {
    if (windowed[i]) spec.layers[i].rope = 1;
  }
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

constinit const PublishedFamily kPublishedGemma3{"gemma3_text", "gemma3", configure_text, kGemmaTensors};
constinit const PublishedFamily kPublishedGemma3Whole{"gemma3", "gemma3", configure_whole, kWholeTensors};

}  // namespace loci
