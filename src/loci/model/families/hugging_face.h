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

// How GGUF's converters change a published tensor.
enum class TensorChange : std::uint8_t {
  kNone,
  kAddOne,      // adds 1 to norm weights that are published less by 1 (Gemma)
  kStack,       // stacks one tensor for each expert: rows one after the other, by the expert's number
  kGroupedQkv,  // reorders fused rows [kv head: its queries, key, value] to [all queries, all keys, all
                // values]
  kSplit,       // splits rows (experts' biases): elements belong alternately to `name` and to `second`
  kMxfp4,       // joins two tensors of MXFP4, *_blocks and *_scales
  kMxfp4Split,  // the same; rows belong alternately to `name` and to `second`
};

// "{}" stands for the layer's number, "{e}" for the expert's:
// "model.layers.{}.mlp.experts.{e}.up_proj.weight"; "{*}" at the end stands for anything.
struct PublishedTensor {
  std::string_view published;
  std::string_view name;  // GGUF's: "blk.{}.ffn_up_exps.weight"; empty: the computation does not use it
  TensorChange change = TensorChange::kNone;
  std::string_view second = {};
};

struct PublishedFamily {
  std::string_view model_type;  // model_type in config.json
  std::string_view family;      // Family::name
  // Adds GGUF's keys ("llama.block_count", ...) for `config`, the parsed config.json. Errors:
  // kInvalidArgument naming the field of config.json, what was expected and what was found.
  Status (*configure)(const nlohmann::json& config, std::map<std::string, GgufValue, std::less<>>& metadata);
  std::span<const PublishedTensor> tensors;
};

std::span<const PublishedFamily> published_families();  // by model_type

}  // namespace loci
