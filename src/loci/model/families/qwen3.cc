// SPDX-License-Identifier: Apache-2.0
// Qwen 3: Llama's layer with a norm of each query and key head before rotation.
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"

namespace loci {
namespace {

Status read_qwen3_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_RETURN_IF_ERROR(read_head_norms(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  return read_gated_ffn(part);
}

Status configure_qwen3(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "qwen3", metadata);
  LOCI_RETURN_IF_ERROR(config.expect("hidden_act", {"silu"}));
  LOCI_RETURN_IF_ERROR(config.copy(kDecoderFields));
  LOCI_RETURN_IF_ERROR(config.copy_windows_if_used());
  return config.copy_rope();
}

}  // namespace

Result<ModelSpec> read_qwen3(const ModelSource& source) {
  SpecReader reader(source, "qwen3");
  return read_decoder(reader, read_dense_sizes, read_qwen3_layer);
}

constinit const PublishedFamily kPublishedQwen3{"qwen3", "qwen3", configure_qwen3, kDecoderTensors};

}  // namespace loci
