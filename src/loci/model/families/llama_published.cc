// Llama on Hugging Face (model_type "llama": Llama 1, 2, 3, SmolLM2, TinyLlama).
#include <fmt/format.h>

#include "loci/model/families/hugging_face.h"
#include "loci/model/json_file.h"

namespace loci {
namespace {

using Metadata = std::map<std::string, GgufValue, std::less<>>;

constexpr PublishedTensor kTensors[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"model.layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight"},
    {"model.layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
    {"model.layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
    {"model.layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
    {"model.layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
    {"model.layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias"},
    {"model.layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias"},
    {"model.layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias"},
    {"model.layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias"},
    {"model.layers.{}.post_attention_layernorm.weight", "blk.{}.ffn_norm.weight"},
    {"model.layers.{}.mlp.gate_proj.weight", "blk.{}.ffn_gate.weight"},
    {"model.layers.{}.mlp.up_proj.weight", "blk.{}.ffn_up.weight"},
    {"model.layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"},
    {"model.layers.{}.self_attn.rotary_emb.inv_freq", ""},  // a table that old files carry
};

Status copy_count(const JsonFields& config, std::string_view field, std::string_view key,
                  Metadata& metadata) {
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t value, config.get_uint(field));
  if (value > UINT32_MAX) return config.unexpected(field, "a number below 2^32");
  metadata[fmt::format("llama.{}", key)] = static_cast<std::uint32_t>(value);
  return {};
}

// rope_scaling: {"rope_type": "linear", "factor": 2}; older files say "type".
Status add_rope(const JsonFields& config, Metadata& metadata) {
  LOCI_ASSIGN_OR_RETURN(const double base, config.get_number_or("rope_theta", 10000.0));
  metadata["llama.rope.freq_base"] = base;
  const nlohmann::json* scaling = config.find("rope_scaling");
  if (scaling == nullptr) return {};
  const JsonFields fields(*scaling, "config.json: rope_scaling");
  LOCI_ASSIGN_OR_RETURN(const std::string type,
                        fields.get_string(fields.has("rope_type") ? "rope_type" : "type"));
  if (type == "default") return {};
  metadata["llama.rope.scaling.type"] = type;
  LOCI_ASSIGN_OR_RETURN(const double factor, fields.get_number("factor"));
  metadata["llama.rope.scaling.factor"] = factor;
  return {};
}

Status configure_llama(const nlohmann::json& parsed, Metadata& metadata) {
  const JsonFields config(parsed, "config.json");
  LOCI_ASSIGN_OR_RETURN(const std::string activation, config.get_string_or("hidden_act", "silu"));
  if (activation != "silu") return config.unexpected("hidden_act", "\"silu\"");
  LOCI_RETURN_IF_ERROR(copy_count(config, "hidden_size", "embedding_length", metadata));
  LOCI_RETURN_IF_ERROR(copy_count(config, "intermediate_size", "feed_forward_length", metadata));
  LOCI_RETURN_IF_ERROR(copy_count(config, "num_hidden_layers", "block_count", metadata));
  LOCI_RETURN_IF_ERROR(copy_count(config, "num_attention_heads", "attention.head_count", metadata));
  const char* kv_heads = config.has("num_key_value_heads") ? "num_key_value_heads" : "num_attention_heads";
  LOCI_RETURN_IF_ERROR(copy_count(config, kv_heads, "attention.head_count_kv", metadata));
  LOCI_RETURN_IF_ERROR(copy_count(config, "max_position_embeddings", "context_length", metadata));
  LOCI_RETURN_IF_ERROR(copy_count(config, "vocab_size", "vocab_size", metadata));
  if (config.has("head_dim")) {
    LOCI_RETURN_IF_ERROR(copy_count(config, "head_dim", "attention.key_length", metadata));
  }
  LOCI_ASSIGN_OR_RETURN(const double epsilon, config.get_number_or("rms_norm_eps", 1e-6));
  metadata["llama.attention.layer_norm_rms_epsilon"] = epsilon;
  return add_rope(config, metadata);
}

constexpr PublishedFamily kFamilies[] = {
    {"llama", "llama", configure_llama, kTensors},
};

}  // namespace

std::span<const PublishedFamily> published_families() { return kFamilies; }

}  // namespace loci
