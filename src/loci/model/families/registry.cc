#include <fmt/format.h>

#include "loci/model/families/family.h"
#include "loci/model/fingerprint.h"
#include "loci/model/model.h"

namespace loci {
namespace {

constexpr Family kFamilies[] = {
    {"llama", read_llama},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

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
