// SPDX-License-Identifier: Apache-2.0
// How a family is published on Hugging Face, in terms of GGUF: under which key each field of config.json
// is read and under which name each tensor is found. A directory of safetensors (hugging_face/) uses it to
// present itself as a ModelSource, so that a family's reader is one for both formats.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>

#include "loci/base/status.h"
#include "loci/model/model_source.h"

namespace loci {

// What GGUF's converters do to the values of a published tensor.
enum class TensorChange : std::uint8_t {
  kNone,
  kAddOne,      // norm weights that are published less 1 (Gemma)
  kStack,       // one tensor for each expert: rows are put one after the other, by the expert's number
  kGroupedQkv,  // fused rows [kv head: its queries, key, value] become [all queries, all keys, all values]
  kSplit,       // the elements of a row (experts' biases) belong in turn to `name` and to `second`
  kMxfp4,       // MXFP4 in two tensors, *_blocks and *_scales, become one
  kMxfp4Split,  // the same, and the rows belong in turn to `name` and to `second`
};

// "{}" stands for the layer's number, "{e}" for the expert's:
// "model.layers.{}.mlp.experts.{e}.up_proj.weight"; "{*}" at the end stands for anything.
struct PublishedTensor {
  std::string_view published;
  std::string_view name;  // GGUF's: "blk.{}.ffn_up_exps.weight"; empty: it has no part in the computation
  TensorChange change = TensorChange::kNone;
  std::string_view second = {};
};

struct PublishedFamily {
  std::string_view model_type;  // config.json's
  std::string_view family;      // Family::name
  // Adds GGUF's keys ("llama.block_count", ...) for `config`, the parsed config.json. Errors:
  // kInvalidArgument naming the field of config.json, what was expected and what was found.
  Status (*configure)(const nlohmann::json& config, std::map<std::string, GgufValue, std::less<>>& metadata);
  std::span<const PublishedTensor> tensors;
};

std::span<const PublishedFamily> published_families();  // by model_type

}  // namespace loci
