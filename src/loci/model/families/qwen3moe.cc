// SPDX-License-Identifier: Apache-2.0
// Qwen 3's mixtures of experts: Qwen 3's attention, and in every layer experts for the feed-forward part.
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"

namespace loci {
namespace {

Status read_qwen3moe_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_RETURN_IF_ERROR(read_head_norms(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  return read_mixture(part);
}

Status configure_qwen3moe(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "qwen3moe", metadata);
  LOCI_RETURN_IF_ERROR(config.expect("hidden_act", {"silu"}));
  LOCI_RETURN_IF_ERROR(config.copy(kDecoderFields));
  LOCI_RETURN_IF_ERROR(config.copy({
      {"num_experts", "expert_count"},
      {"num_experts_per_tok", "expert_used_count"},
      {"moe_intermediate_size", "expert_feed_forward_length"},
      {"norm_topk_prob", "expert_weights_norm", FieldKind::kFlag},
  }));
  // Layers without experts among those with them.
  LOCI_ASSIGN_OR_RETURN(const std::uint64_t step, config.fields().get_uint_or("decoder_sparse_step", 1));
  if (step != 1) return config.fields().unexpected("decoder_sparse_step", "1 (a mixture in every layer)");
  const nlohmann::json* dense = config.fields().find("mlp_only_layers");
  if (dense != nullptr && !(dense->is_array() && dense->empty())) {
    return config.fields().unexpected("mlp_only_layers", "an empty array (a mixture in every layer)");
  }
  LOCI_RETURN_IF_ERROR(config.copy_windows_if_used());
  return config.copy_rope();
}

}  // namespace

Result<ModelSpec> read_qwen3moe(const ModelSource& source) {
  SpecReader reader(source, "qwen3moe");
  return read_decoder(reader, read_mixture_sizes, read_qwen3moe_layer);
}

constinit const PublishedFamily kPublishedQwen3Moe{"qwen3_moe", "qwen3moe", configure_qwen3moe,
                                                   kDecoderTensors};

}  // namespace loci
