// The families of models that Loci knows. A family is one file that reads a GGUF file's metadata and
// tensors into a ModelSpec and says how its layer is put together; adding one is that file, its line
// here and its line in registry.cc.
#pragma once

#include <span>
#include <string_view>

#include "loci/base/status.h"
#include "loci/model/model_source.h"
#include "loci/model/model_spec.h"

namespace loci {

struct Family {
  std::string_view name;  // general.architecture
  // The specification without its fingerprint. Errors: kInvalidArgument naming the key or tensor, what
  // was expected and what was found.
  Result<ModelSpec> (*read)(const ModelSource& source);
};

std::span<const Family> families();  // by name
// The family of a file. Errors: kInvalidArgument for an unknown one, with the list of known ones.
Result<const Family*> find_family(const ModelSource& source);

Result<ModelSpec> read_llama(const ModelSource& source);

}  // namespace loci
