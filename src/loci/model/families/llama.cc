// SPDX-License-Identifier: Apache-2.0
// Llama 1, 2, 3 and models with the same layer: SmolLM2, TinyLlama, Mistral 7B. (If Mistral has a window,
// only Hugging Face's config.json has it; GGUF's converter drops it.)
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"
#include "loci/model/families/rope.h"

namespace loci {
namespace {

Status read_llama_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  part.reader.ignore(part.name("attn_rot_embd"));  // a table that old converters wrote and nobody reads
  return read_gated_ffn(part);
}

Status configure_llama(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "llama", metadata);
  LOCI_RETURN_IF_ERROR(config.expect("hidden_act", {"silu"}));
  LOCI_RETURN_IF_ERROR(config.expect("mlp_bias", false));
  LOCI_RETURN_IF_ERROR(config.copy(kDecoderFields));
  return config.copy_rope();
}

Status configure_mistral(const nlohmann::json& json, Metadata& metadata) {
  LOCI_RETURN_IF_ERROR(configure_llama(json, metadata));
  return PublishedConfig(json, "llama", metadata).copy_windows();
}

}  // namespace

Result<ModelSpec> read_llama(const ModelSource& source) {
  SpecReader reader(source, "llama");
  ModelSpec spec = start_spec(reader);
  LOCI_RETURN_IF_ERROR(read_dense_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  LOCI_ASSIGN_OR_RETURN(const RopeSpec rope, read_rope(reader, spec, {.layout = permuted_layout(source)}));
  spec.ropes.push_back(rope);
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_llama_layer));
  LOCI_RETURN_IF_ERROR(read_windows(reader, {}, spec).status());
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

constinit const PublishedFamily kPublishedLlama{"llama", "llama", configure_llama, kDecoderTensors};
constinit const PublishedFamily kPublishedMistral{"mistral", "llama", configure_mistral, kDecoderTensors};

}  // namespace loci
