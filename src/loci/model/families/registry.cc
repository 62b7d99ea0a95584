// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "loci/model/families/family.h"
#include "loci/model/families/hugging_face.h"
#include "loci/model/families/published.h"
#include "loci/model/fingerprint.h"
#include "loci/model/model.h"

namespace loci {
namespace {

constexpr Family kFamilies[] = {
    {"falcon", read_falcon},     {"gemma2", read_gemma2},   {"gemma3", read_gemma3},
    {"gpt-oss", read_gpt_oss},   {"llama", read_llama},     {"opt", read_opt},
    {"phi3", read_phi3},         {"qwen2", read_qwen2},     {"qwen3", read_qwen3},
    {"qwen3moe", read_qwen3moe}, {"smollm3", read_smollm3}, {"starcoder", read_starcoder},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

std::span<const PublishedFamily> published_families() {
  static const PublishedFamily all[] = {
      kPublishedFalcon, kPublishedGemma2, kPublishedGemma3Whole, kPublishedGemma3,  kPublishedGptBigCode,
      kPublishedGptOss, kPublishedLlama,  kPublishedMistral,     kPublishedOpt,     kPublishedPhi3,
      kPublishedQwen2,  kPublishedQwen3,  kPublishedQwen3Moe,    kPublishedSmolLm3,
  };
  return all;
}

Result<const Family*> find_family(const ModelSource& source) {
  LOCI_ASSIGN_OR_RETURN(const std::string architecture, source.get_string("general.architecture"));
  std::string known;
  for (const Family& family : families()) {
    if (family.name == architecture) return &family;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.name);
  }
  return invalid_argument(
      fmt::format("expected one of the known families ({}), found \"{}\"", known, architecture),
      "general.architecture");
}

Result<ModelSpec> read_model_spec(const ModelSource& source) {
  LOCI_ASSIGN_OR_RETURN(const Family* family, find_family(source));
  LOCI_ASSIGN_OR_RETURN(ModelSpec spec, family->read(source));
  spec.fingerprint = compute_fingerprint(spec);
  return spec;
}

}  // namespace loci
