// SPDX-License-Identifier: Apache-2.0
// OPT (and Galactica, with GELU): GPT's layer with learned positions, LayerNorm and ReLU. llama.cpp has no
// such family; the keys are Loci's, in its style: opt.block_count, opt.attention.layer_norm_epsilon,
// position_embd.weight.
#include <array>
#include <iterator>

#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"

namespace loci {
namespace {

// fairseq numbered positions from its padding token on; the table has as many rows more.
constexpr std::uint32_t kPositionOffset = 2;
constexpr float kNormEpsilon = 1e-5f;  // torch's; config.json has none

Status read_opt_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  return read_plain_ffn(part);
}

Status configure_opt(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "opt", metadata);
  LOCI_RETURN_IF_ERROR(config.copy_activation("activation_function"));
  LOCI_RETURN_IF_ERROR(config.expect("do_layer_norm_before", true));
  LOCI_RETURN_IF_ERROR(config.expect("layer_norm_elementwise_affine", true));
  LOCI_RETURN_IF_ERROR(config.expect("_remove_final_layer_norm", false));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t hidden, config.fields().get_uint("hidden_size"));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t projected,
                        config.fields().get_uint_or("word_embed_proj_dim", hidden));
  if (projected != hidden) {  // OPT-350m
    return config.fields().unexpected("word_embed_proj_dim",
                                      "hidden_size (embeddings that are projected are not computed)");
  }
  config.set("attention.layer_norm_epsilon", kNormEpsilon);
  return config.copy({
      {"num_hidden_layers", "block_count"},
      {"hidden_size", "embedding_length"},
      {"ffn_dim", "feed_forward_length"},
      {"max_position_embeddings", "context_length"},
      {"num_attention_heads", "attention.head_count"},
      {"vocab_size", "vocab_size", FieldKind::kCount, FieldNeed::kOptional},
  });
}

constexpr PublishedTensor kWholeNames[] = {
    {"model.decoder.embed_tokens.weight", "token_embd.weight"},
    {"model.decoder.embed_positions.weight", "position_embd.weight"},
    {"model.decoder.final_layer_norm.weight", "output_norm.weight"},
    {"model.decoder.final_layer_norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"model.decoder.layers.{}.self_attn_layer_norm.weight", "blk.{}.attn_norm.weight"},
    {"model.decoder.layers.{}.self_attn_layer_norm.bias", "blk.{}.attn_norm.bias"},
    {"model.decoder.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.decoder.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    {"model.decoder.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.decoder.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    {"model.decoder.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.decoder.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {"model.decoder.layers.{}.self_attn.out_proj.weight", "blk.{}.attn_output.weight"},
    {"model.decoder.layers.{}.self_attn.out_proj.bias", "blk.{}.attn_output.bias"},
    {"model.decoder.layers.{}.final_layer_norm.weight", "blk.{}.ffn_norm.weight"},
    {"model.decoder.layers.{}.final_layer_norm.bias", "blk.{}.ffn_norm.bias"},
    {"model.decoder.layers.{}.fc1.weight", "blk.{}.ffn_up.weight"},
    {"model.decoder.layers.{}.fc1.bias", "blk.{}.ffn_up.bias"},
    {"model.decoder.layers.{}.fc2.weight", "blk.{}.ffn_down.weight"},
    {"model.decoder.layers.{}.fc2.bias", "blk.{}.ffn_down.bias"},
};

// Those that were published without a head lack the names' first part.
constexpr auto kOptTensors = [] {
  std::array<PublishedTensor, 2 * std::size(kWholeNames)> tensors;
  for (std::size_t i = 0; i < std::size(kWholeNames); ++i) {
    tensors[2 * i] = tensors[2 * i + 1] = kWholeNames[i];
    if (kWholeNames[i].published.starts_with("model.")) tensors[2 * i + 1].published.remove_prefix(6);
  }
  return tensors;
}();

}  // namespace

Result<ModelSpec> read_opt(const ModelSource& source) {
  SpecReader reader(source, "opt");
  ModelSpec spec = start_spec(reader);
  spec.norm = NormKind::kLayer;
  LOCI_RETURN_IF_ERROR(read_activation(reader, Activation::kRelu, spec));
  LOCI_RETURN_IF_ERROR(read_dense_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  spec.position_offset = kPositionOffset;
  LOCI_ASSIGN_OR_RETURN(spec.position_embedding,
                        reader.tensor("position_embd.weight",
                                      std::uint64_t{spec.context_length} + kPositionOffset, spec.hidden));
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_opt_layer));
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

constinit const PublishedFamily kPublishedOpt{"opt", "opt", configure_opt, kOptTensors};

}  // namespace loci
