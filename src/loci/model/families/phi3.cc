// SPDX-License-Identifier: Apache-2.0
// Phi 3, 3.5 and 4: Llama's layer with fused matrices; long contexts by LongRoPE; Phi 4 mini rotates three
// quarters of a head.
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"

namespace loci {
namespace {

Status read_phi3_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_fused_attention(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  return read_fused_ffn(part);
}

Status configure_phi3(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "phi3", metadata);
  LOCI_RETURN_IF_ERROR(config.expect("hidden_act", {"silu"}));
  LOCI_RETURN_IF_ERROR(config.copy(kDecoderFields));
  LOCI_RETURN_IF_ERROR(config.copy_windows());
  return config.copy_rope();
}

constexpr PublishedTensor kPhi3Tensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", ""},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
};

}  // namespace

Result<ModelSpec> read_phi3(const ModelSource& source) {
  SpecReader reader(source, "phi3");
  return read_decoder(reader, read_dense_sizes, read_phi3_layer);
}

constinit const PublishedFamily kPublishedPhi3{"phi3", "phi3", configure_phi3, kPhi3Tensors};

}  // namespace loci
