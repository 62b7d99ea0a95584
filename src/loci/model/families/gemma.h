// SPDX-License-Identifier: Apache-2.0
// Shared by Gemma 2 and 3: norms before and after each part, whose published weights are less by 1; the
// embedding's scale; the scale of attention.
#pragma once

#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"

namespace loci {

// Reads the norms, attention and feed-forward part of a layer. Norms of heads are read by Gemma 3 itself.
Status read_gemma_layer(const LayerPart& part);
// Reads sizes, activation, embedding scale and attention scale. `layers_27b` is the number of layers of the
// one size whose attention is not scaled by head_dim; a GGUF file shows it in no other way.
Status read_gemma_sizes(SpecReader& reader, std::uint32_t layers_27b, ModelSpec& spec);
// Reads the fields of config.json that both have.
Status configure_gemma(PublishedConfig& config);

inline constexpr PublishedTensor kGemmaTensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight", TensorChange::kAddOne},
    {"lm_head.weight", "output.weight"},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", TensorChange::kAddOne},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", TensorChange::kAddOne},
    {"model.layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", TensorChange::kAddOne},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight",
     TensorChange::kAddOne},
    {"model.layers.{}.pre_feedforward_layernorm.weight", "blk.{}.ffn_norm.weight", TensorChange::kAddOne},
    {"model.layers.{}.post_feedforward_layernorm.weight", "blk.{}.post_ffw_norm.weight",
     TensorChange::kAddOne},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
};

}  // namespace loci
