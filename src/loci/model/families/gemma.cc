// SPDX-License-Identifier: Apache-2.0
#include "loci/model/families/gemma.h"

#include <cmath>

namespace loci {

Status read_gemma_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "post_attention_norm", part.layer.attention_post_norm));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  LOCI_RETURN_IF_ERROR(read_gated_ffn(part));
  return read_norm(part, "post_ffw_norm", part.layer.ffn_post_norm);
}

Status read_gemma_sizes(SpecReader& reader, std::uint32_t layers_27b, ModelSpec& spec) {
  LOCI_RETURN_IF_ERROR(read_dense_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  spec.activation = Activation::kGeluTanh;
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.hidden)));
  LOCI_ASSIGN_OR_RETURN(const std::uint32_t layers, reader.count("block_count", 1, UINT32_MAX));
  if (!reader.has("attention.scale") && layers == layers_27b) {
    spec.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(spec.hidden / spec.heads)));
  }
  LOCI_ASSIGN_OR_RETURN(const double output_cap, reader.number_or("final_logit_softcapping", 0, 1e6, 0));
  spec.output_softcap = static_cast<float>(output_cap);
  return {};
}

Status configure_gemma(PublishedConfig& config) {
  LOCI_RETURN_IF_ERROR(config.expect("hidden_activation", {"gelu_pytorch_tanh"}));
  LOCI_RETURN_IF_ERROR(config.expect("use_bidirectional_attention", false));
  LOCI_RETURN_IF_ERROR(config.copy(kDecoderFields));
  LOCI_RETURN_IF_ERROR(config.copy(
      {{"final_logit_softcapping", "final_logit_softcapping", FieldKind::kNumber, FieldNeed::kOptional}}));
  LOCI_ASSIGN_OR_RETURN(const double scalar, config.fields().get_number("query_pre_attn_scalar"));
  config.set("attention.scale", static_cast<float>(1 / std::sqrt(scalar)));
  LOCI_RETURN_IF_ERROR(config.copy_windows());
  return config.copy_rope();
}

}  // namespace loci
