// SPDX-License-Identifier: Apache-2.0
// SmolLM3: Llama's layer, of which every fourth doesn't rotate at all (NoPE).
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/published.h"
#include "loci/model/families/rope.h"

namespace loci {
namespace {

// A bool for each layer: does it rotate? GGUF's converter leaves it out; this key is Loci's.
constexpr const char* kRotated = "rope.layers";
constexpr std::uint32_t kUnrotatedPeriod = 4;

Status read_smollm3_layer(const LayerPart& part) {
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", part.layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_RETURN_IF_ERROR(read_norm(part, "ffn_norm", part.layer.ffn_norm));
  return read_gated_ffn(part);
}

Status configure_smollm3(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "smollm3", metadata);
  LOCI_RETURN_IF_ERROR(config.expect("hidden_act", {"silu"}));
  LOCI_RETURN_IF_ERROR(config.expect("mlp_bias", false));
  LOCI_RETURN_IF_ERROR(config.copy(kDecoderFields));
  LOCI_RETURN_IF_ERROR(config.copy_windows_if_used());
  if (const nlohmann::json* layers = config.fields().find("no_rope_layers")) {
    std::vector<bool> rotated;
    for (const nlohmann::json& layer : *layers) {  // 1 means that the layer rotates
      if (layer != 0 && layer != 1) {
        return config.fields().unexpected("no_rope_layers", "an array with 0 or 1 for each layer");
      }
      rotated.push_back(layer == 1);
    }
    config.set(kRotated, GgufArray{std::move(rotated)});
  }
  return config.copy_rope();
}

}  // namespace

Result<ModelSpec> read_smollm3(const ModelSource& source) {
  SpecReader reader(source, "smollm3");
  ModelSpec spec = start_spec(reader);
  LOCI_RETURN_IF_ERROR(read_dense_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  LOCI_ASSIGN_OR_RETURN(const RopeSpec rope, read_rope(reader, spec, {.layout = permuted_layout(source)}));
  spec.ropes.push_back(rope);
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_smollm3_layer));
  LOCI_RETURN_IF_ERROR(read_windows(reader, {}, spec).status());
  std::vector<bool> rotated(spec.layer_count());
  for (std::uint32_t i = 0; i < spec.layer_count(); ++i) rotated[i] = (i + 1) % kUnrotatedPeriod != 0;
  if (reader.has(kRotated)) {
    LOCI_ASSIGN_OR_RETURN(rotated, reader.flags(kRotated, spec.layer_count()));
  }
  for (std::uint32_t i = 0; i < spec.layer_count(); ++i) {
    if (!rotated[i]) spec.layers[i].rope.reset();
  }
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

constinit const PublishedFamily kPublishedSmolLm3{"smollm3", "smollm3", configure_smollm3, kDecoderTensors};

}  // namespace loci
