// GPT-OSS: a mixture of experts in every layer, attention with sinks, every second layer with a window,
// YaRN over the whole context.
#include "loci/model/families/family.h"
#include "loci/model/families/parts.h"
#include "loci/model/families/rope.h"

namespace loci {
namespace {

constexpr std::uint32_t kWindowPeriod = 2;

Status read_layer(const LayerPart& part) {
  LayerSpec& layer = part.layer;
  LOCI_RETURN_IF_ERROR(read_norm(part, "attn_norm", layer.attention_norm));
  LOCI_RETURN_IF_ERROR(read_attention(part));
  LOCI_ASSIGN_OR_RETURN(layer.attention_sinks,
                        part.reader.tensor(part.name("attn_sinks.weight"), 1, part.spec.heads));
  LOCI_RETURN_IF_ERROR(read_norm(part, "post_attention_norm", layer.ffn_norm));
  return read_mixture(part);
}

}  // namespace

Result<ModelSpec> read_gpt_oss(const ModelSource& source) {
  SpecReader reader(source, "gpt-oss");
  ModelSpec spec = start_spec(reader);
  spec.activation = Activation::kClampedSwiglu;
  LOCI_RETURN_IF_ERROR(read_mixture_sizes(reader, spec));
  LOCI_RETURN_IF_ERROR(read_sizes(reader, spec));
  // It was trained with YaRN's dimensions as they are; files don't say so.
  LOCI_ASSIGN_OR_RETURN(const RopeSpec rope, read_rope(reader, spec, {.yarn_truncates = false}));
  spec.ropes.push_back(rope);
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_layer));
  LOCI_RETURN_IF_ERROR(read_windows(reader, {.period = kWindowPeriod}, spec).status());
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

}  // namespace loci
