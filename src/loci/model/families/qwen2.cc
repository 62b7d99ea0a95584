// Qwen 2 and 2.5: Llama's layer with biases on query, key and value.
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"
#include "loci/model/families/rope.h"

namespace loci {
namespace {

Status read_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  return read_gated_ffn(part);
}

Status configure(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "qwen2", metadata);
  LOCI_RETURN_IF_ERROR(config.expect("hidden_act", {"silu"}));
  LOCI_RETURN_IF_ERROR(config.copy(kDecoderFields));
  LOCI_RETURN_IF_ERROR(config.copy_windows_if_used());
  return config.copy_rope();
}

}  // namespace

Result<ModelSpec> read_qwen2(const ModelSource& source) {
  SpecReader reader(source, "qwen2");
  ModelSpec spec = start_spec(reader);
  LOCI_RETURN_IF_ERROR(read_dense_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  LOCI_ASSIGN_OR_RETURN(const RopeSpec rope, read_rope(reader, spec, {}));
  spec.ropes.push_back(rope);
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_layer));
  LOCI_RETURN_IF_ERROR(read_windows(reader, {}, spec).status());
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

constinit const PublishedFamily kPublishedQwen2{"qwen2", "qwen2", configure, kDecoderTensors};

}  // namespace loci
