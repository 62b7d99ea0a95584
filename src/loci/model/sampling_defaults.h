// SPDX-License-Identifier: Apache-2.0
// The makers' values for drawing a model's tokens: `general.sampling.*` of a GGUF file,
// generation_config.json of a Hugging Face directory.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "loci/model/model_source.h"

namespace loci {

struct SamplingDefaults {
  std::optional<float> temperature;         // at least 0
  std::optional<float> top_p;               // above 0, at most 1
  std::optional<float> min_p;               // 0 to 1
  std::optional<float> repetition_penalty;  // above 0
  std::optional<std::uint32_t> top_k;       // 0: all
  std::vector<std::string> ignored;         // values that make no sense; each gets a warning

  bool any() const { return temperature || top_p || min_p || repetition_penalty || top_k; }
};

SamplingDefaults read_sampling_defaults(const ModelSource& source);

}  // namespace loci
