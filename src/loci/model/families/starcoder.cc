// SPDX-License-Identifier: Apache-2.0
// StarCoder and the other GPT-BigCode models: GPT-2's layer with one key and value head for all queries.
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"

namespace loci {
namespace {

Status read_starcoder_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_fused_attention(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  return read_plain_ffn(part);
}

Status configure_starcoder(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "starcoder", metadata);
  LOCI_RETURN_IF_ERROR(config.copy_activation("activation_function"));
  LOCI_RETURN_IF_ERROR(config.expect("multi_query", true));
  LOCI_RETURN_IF_ERROR(config.expect("scale_attn_weights", true));
  LOCI_RETURN_IF_ERROR(config.copy({
      {"n_layer", "block_count"},
      {"n_embd", "embedding_length"},
      {"n_positions", "context_length"},
      {"n_head", "attention.head_count"},
      {"layer_norm_epsilon", "attention.layer_norm_epsilon", FieldKind::kNumber},
      {"vocab_size", "vocab_size", FieldKind::kCount, FieldNeed::kOptional},
  }));
  config.set("attention.head_count_kv", std::uint32_t{1});
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t hidden, config.fields().get_uint("n_embd"));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t inner, config.fields().get_uint_or("n_inner", 4 * hidden));
  config.set_count("feed_forward_length", inner);
  return {};
}

constexpr PublishedTensor kStarcoderTensors[] = {
    {"transformer.wte.weight", "token_embd.weight"},
    {"transformer.wpe.weight", "position_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"transformer.h.{}.ln_1.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.ln_1.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.attn.bias", ""},  // a mask
    {"transformer.h.{}.attn.c_attn.weight", "blk.{}.attn_qkv.weight"},
    {"transformer.h.{}.attn.c_attn.bias", "blk.{}.attn_qkv.bias"},
    {"transformer.h.{}.attn.c_proj.weight", "blk.{}.attn_output.weight"},
    {"transformer.h.{}.attn.c_proj.bias", "blk.{}.attn_output.bias"},
    {"transformer.h.{}.ln_2.weight", "blk.{}.ffn_norm.weight"},
    {"transformer.h.{}.ln_2.bias", "blk.{}.ffn_norm.bias"},
    {"transformer.h.{}.mlp.c_fc.weight", "blk.{}.ffn_up.weight"},
    {"transformer.h.{}.mlp.c_fc.bias", "blk.{}.ffn_up.bias"},
    {"transformer.h.{}.mlp.c_proj.weight", "blk.{}.ffn_down.weight"},
    {"transformer.h.{}.mlp.c_proj.bias", "blk.{}.ffn_down.bias"},
};

}  // namespace

Result<ModelSpec> read_starcoder(const ModelSource& source) {
  SpecReader reader(source, "starcoder");
  ModelSpec spec = start_spec(reader);
  spec.norm = NormKind::kLayer;
  LOCI_RETURN_IF_ERROR(read_activation(reader, Activation::kGeluTanh, spec));
  LOCI_RETURN_IF_ERROR(read_dense_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  LOCI_ASSIGN_OR_RETURN(spec.position_embedding,
                        reader.tensor("position_embd.weight", spec.context_length, spec.hidden));
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_starcoder_layer));
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

constinit const PublishedFamily kPublishedGptBigCode{"gpt_bigcode", "starcoder", configure_starcoder,
                                                     kStarcoderTensors};

}  // namespace loci
