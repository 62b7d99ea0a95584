// SPDX-License-Identifier: Apache-2.0
// Qwen 2 and 2.5: Llama's layer with biases on query, key and value.
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"

namespace loci {
namespace {

Status read_qwen2_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  return read_gated_ffn(part);
}

Status configure_qwen2(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "qwen2", metadata);
  LOCI_RETURN_IF_ERROR(config.expect("hidden_act", {"silu"}));
  LOCI_RETURN_IF_ERROR(config.copy(kDecoderFields));
  LOCI_RETURN_IF_ERROR(config.copy_windows_if_used());
  return config.copy_rope();
}

}  // namespace

Result<ModelSpec> read_qwen2(const ModelSource& source) {
  SpecReader reader(source, "qwen2");
  return read_decoder(reader, read_dense_sizes, read_qwen2_layer);
}

constinit const PublishedFamily kPublishedQwen2{"qwen2", "qwen2", configure_qwen2, kDecoderTensors};

}  // namespace loci
