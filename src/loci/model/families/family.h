// SPDX-License-Identifier: Apache-2.0
// The families of models that Loci knows. A family is one file. It reads a source's metadata and tensors into
// a ModelSpec, with the help of shared parts (parts.h, rope.h), and says how the family is published on
// Hugging Face (published.h). To add a family, add that file, its line here, and its lines in published.h and
// registry.cc.
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
// The family of a source. Errors: kInvalidArgument for an unknown family, with the list of known ones.
Result<const Family*> find_family(const ModelSource& source);

Result<ModelSpec> read_falcon(const ModelSource& source);
Result<ModelSpec> read_gemma2(const ModelSource& source);
Result<ModelSpec> read_gemma3(const ModelSource& source);
Result<ModelSpec> read_gpt_oss(const ModelSource& source);
Result<ModelSpec> read_llama(const ModelSource& source);
Result<ModelSpec> read_opt(const ModelSource& source);
Result<ModelSpec> read_phi3(const ModelSource& source);
Result<ModelSpec> read_qwen2(const ModelSource& source);
Result<ModelSpec> read_qwen3(const ModelSource& source);
Result<ModelSpec> read_qwen3moe(const ModelSource& source);
Result<ModelSpec> read_smollm3(const ModelSource& source);
Result<ModelSpec> read_starcoder(const ModelSource& source);

}  // namespace loci
