// SPDX-License-Identifier: Apache-2.0
// GPT-OSS: a mixture of experts in every layer, attention with sinks, every second layer with a window,
// YaRN over the whole context.
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"
#include "loci/model/families/rope.h"

namespace loci {
namespace {

constexpr std::uint32_t kGptOssWindowPeriod = 2;

Status read_gpt_oss_layer(const LayerPart& part) {
  LayerSpec& layer = part.layer;
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_ASSIGN_OR_RETURN(layer.attention_sinks,
                        part.reader.tensor(part.name("attn_sinks.weight"), 1, part.spec.heads));
  LOCI_RETURN_IF_ERROR(read_norm(part, "post_attention_norm", layer.ffn_norm));
  return read_mixture(part);
}

Status configure_gpt_oss(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "gpt-oss", metadata);
  LOCI_RETURN_IF_ERROR(config.expect("hidden_act", {"silu"}));
  LOCI_RETURN_IF_ERROR(config.copy(kDecoderFields));
  LOCI_RETURN_IF_ERROR(config.copy({
      {"num_local_experts", "expert_count"},
      {"num_experts_per_tok", "expert_used_count"},
      {"intermediate_size", "expert_feed_forward_length"},
  }));
  LOCI_RETURN_IF_ERROR(config.copy_windows());
  return config.copy_rope();
}

// Experts' gate and up rows alternate.
constexpr std::string_view kGate = "blk.{}.ffn_gate_exps.weight";
constexpr std::string_view kUp = "blk.{}.ffn_up_exps.weight";
constexpr PublishedTensor kGptOssTensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"},
    {"model.layers.{}.self_attn.sinks", "blk.{}.attn_sinks.weight"},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight"},
    {"model.layers.{}.mlp.router.weight", "blk.{}.ffn_gate_inp.weight"},
    {"model.layers.{}.mlp.router.bias", "blk.{}.ffn_gate_inp.bias"},
    {"model.layers.{}.mlp.experts.gate_up_proj_blocks", kGate, TensorChange::kMxfp4Split, kUp},
    {"model.layers.{}.mlp.experts.gate_up_proj_scales", kGate, TensorChange::kMxfp4Split, kUp},
    {"model.layers.{}.mlp.experts.gate_up_proj_bias", "blk.{}.ffn_gate_exps.bias", TensorChange::kSplit,
     "blk.{}.ffn_up_exps.bias"},
    {"model.layers.{}.mlp.experts.down_proj_blocks", "blk.{}.ffn_down_exps.weight", TensorChange::kMxfp4},
    {"model.layers.{}.mlp.experts.down_proj_scales", "blk.{}.ffn_down_exps.weight", TensorChange::kMxfp4},
    {"model.layers.{}.mlp.experts.down_proj_bias", "blk.{}.ffn_down_exps.bias"},
};

}  // namespace

Result<ModelSpec> read_gpt_oss(const ModelSource& source) {
  SpecReader reader(source, "gpt-oss");
  ModelSpec spec = start_spec(reader);
  spec.activation = Activation::kClampedSwiglu;
  LOCI_RETURN_IF_ERROR(read_mixture_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  // It was trained with YaRN's dimensions as they are; files don't say so.
  LOCI_ASSIGN_OR_RETURN(const RopeSpec rope, read_rope(reader, spec, {.yarn_truncates = false}));
  spec.ropes.push_back(rope);
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_gpt_oss_layer));
  LOCI_RETURN_IF_ERROR(read_windows(reader, {.period = kGptOssWindowPeriod}, spec).status());
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

constinit const PublishedFamily kPublishedGptOss{"gpt_oss", "gpt-oss", configure_gpt_oss, kGptOssTensors};

}  // namespace loci
