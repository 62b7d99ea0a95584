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

// Numbers in the ranges of sampling_range.h.
struct SamplingDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<std::uint32_t> top_k;  // 0: all
  std::vector<std::string> ignored;    // values that make no sense; each gets a warning

  bool any() const { return temperature || top_p || min_p || repetition_penalty || top_k; }
};

SamplingDefaults read_sampling_defaults(const ModelSource& source);

}  // namespace loci
