// SPDX-License-Identifier: Apache-2.0
// Falcon: feed-forward and attention side by side. The old decoder (7B) has one key and value head and one
// norm for both parts; the new one (40B, 180B) has groups of heads and a norm for each, Falcon 2 (11B) groups
// and one norm. Falcon-RW's ALiBi is refused by name.
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"
#include "loci/model/families/rope.h"

namespace loci {
namespace {

constexpr std::uint64_t kContext = 2048;  // of those whose config.json has none

// GGUF's attn_norm is the feed-forward part's where there are two.
Status read_falcon_layer(const LayerPart& part) {
  LayerSpec& layer = part.layer;
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", layer.attention_norm));
  if (part.reader.exists(part.name("attn_norm_2.weight"))) {
    layer.ffn_norm = layer.attention_norm;
    LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm_2", layer.attention_norm));
  }
  LOCI_RETURN_IF_ERROR(read_fused_attention(part));
  return read_plain_ffn(part);
}

Status configure_falcon(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "falcon", metadata);
  LOCI_RETURN_IF_ERROR(config.expect("alibi", false));
  LOCI_RETURN_IF_ERROR(config.expect("activation", {"gelu"}));
  LOCI_ASSIGN_OR_RETURN(const bool grouped, config.fields().get_bool_or("new_decoder_architecture", false));
  if (!grouped) {
    LOCI_RETURN_IF_ERROR(config.expect("parallel_attn", true));
  }
  LOCI_RETURN_IF_ERROR(config.copy({
      {"num_hidden_layers", "block_count"},
      {"hidden_size", "embedding_length"},
      {"num_attention_heads", "attention.head_count"},
      {"layer_norm_epsilon", "attention.layer_norm_epsilon", FieldKind::kNumber},
      {"vocab_size", "vocab_size", FieldKind::kCount, FieldNeed::kOptional},
  }));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t context,
                        config.fields().get_uint_or("max_position_embeddings", kContext));
  config.set_count("context_length", context);
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t hidden, config.fields().get_uint("hidden_size"));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t inner,
                        config.fields().get_uint_or("ffn_hidden_size", 4 * hidden));
  config.set_count("feed_forward_length", inner);
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t heads, config.fields().get_uint("num_attention_heads"));
  LOCI_ASSIGN_OR_RETURN(const bool one_head, config.fields().get_bool_or("multi_query", true));
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t groups, config.fields().get_uint_or("num_kv_heads", heads));
  config.set_count("attention.head_count_kv", grouped ? groups : one_head ? 1 : heads);
  return config.copy_rope();
}

constexpr PublishedTensor kFalconTensors[] = {
    {"transformer.word_embeddings.weight", "token_embd.weight"},
    {"transformer.ln_f.weight", "output_norm.weight"},
    {"transformer.ln_f.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"transformer.h.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.input_layernorm.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.ln_mlp.weight", "blk.{}.attn_norm.weight"},
    {"transformer.h.{}.ln_mlp.bias", "blk.{}.attn_norm.bias"},
    {"transformer.h.{}.ln_attn.weight", "blk.{}.attn_norm_2.weight"},
    {"transformer.h.{}.ln_attn.bias", "blk.{}.attn_norm_2.bias"},
    {"transformer.h.{}.self_attention.query_key_value.weight", "blk.{}.attn_qkv.weight",
     TensorChange::kGroupedQkv},
    {"transformer.h.{}.self_attention.query_key_value.bias", "blk.{}.attn_qkv.bias",
     TensorChange::kGroupedQkv},
    {"transformer.h.{}.self_attention.dense.weight", "blk.{}.attn_output.weight"},
    {"transformer.h.{}.self_attention.dense.bias", "blk.{}.attn_output.bias"},
    {"transformer.h.{}.self_attention.rotary_emb.inv_freq", ""},
    {"transformer.h.{}.mlp.dense_h_to_4h.weight", "blk.{}.ffn_up.weight"},
    {"transformer.h.{}.mlp.dense_h_to_4h.bias", "blk.{}.ffn_up.bias"},
    {"transformer.h.{}.mlp.dense_4h_to_h.weight", "blk.{}.ffn_down.weight"},
    {"transformer.h.{}.mlp.dense_4h_to_h.bias", "blk.{}.ffn_down.bias"},
};

}  // namespace

Result<ModelSpec> read_falcon(const ModelSource& source) {
  SpecReader reader(source, "falcon");
  ModelSpec spec = start_spec(reader);
  spec.norm = NormKind::kLayer;
  spec.activation = Activation::kGelu;
  spec.parallel = true;
  LOCI_RETURN_IF_ERROR(read_dense_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  LOCI_ASSIGN_OR_RETURN(const RopeSpec rope, read_rope(reader, spec, {}));
  spec.ropes.push_back(rope);
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_falcon_layer));
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

constinit const PublishedFamily kPublishedFalcon{"falcon", "falcon", configure_falcon, kFalconTensors};

}  // namespace loci
