// SPDX-License-Identifier: Apache-2.0
// Gemma 2: scores and logits are capped softly; every second layer sees everything, the others a window.
#include "loci/model/families/family.h"
#include "loci/model/families/gemma.h"
#include "loci/model/families/rope.h"

namespace loci {
namespace {

constexpr std::uint32_t kGemma2LayersOf27b = 46;
constexpr std::uint32_t kGemma2Window = 4096;
constexpr std::uint32_t kGemma2WindowPeriod = 2;

Status configure_gemma2(const nlohmann::json& json, Metadata& metadata) {
  PublishedConfig config(json, "gemma2", metadata);
  LOCI_RETURN_IF_ERROR(config.copy(
      {{"attn_logit_softcapping", "attn_logit_softcapping", FieldKind::kNumber, FieldNeed::kOptional}}));
  return configure_gemma(config);
}

}  // namespace

Result<ModelSpec> read_gemma2(const ModelSource& source) {
  SpecReader reader(source, "gemma2");
  ModelSpec spec = start_spec(reader);
  LOCI_RETURN_IF_ERROR(read_gemma_sizes(reader, kGemma2LayersOf27b, spec));
  LOCI_ASSIGN_OR_RETURN(const double cap, reader.number_or("attn_logit_softcapping", 0, 1e6, 0));
  spec.attention_softcap = static_cast<float>(cap);
  LOCI_ASSIGN_OR_RETURN(const RopeSpec rope, read_rope(reader, spec, {}));
  spec.ropes.push_back(rope);
  LOCI_RETURN_IF_ERROR(read_layers(reader, spec, read_gemma_layer));
  LOCI_RETURN_IF_ERROR(
      read_windows(reader, {.period = kGemma2WindowPeriod, .window = kGemma2Window}, spec).status());
  LOCI_RETURN_IF_ERROR(finish_spec(reader, spec));
  return spec;
}

constinit const PublishedFamily kPublishedGemma2{"gemma2", "gemma2", configure_gemma2, kGemmaTensors};

}  // namespace loci
