// SPDX-License-Identifier: Apache-2.0
// How tokens are drawn where a request does not say: as the operator, the model's file or Loci itself says.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loci/engine/run/sampler.h"
#include "loci/model/sampling_defaults.h"

namespace loci {

// What the operator says; absent: as the model's makers say.
struct GivenSampling {
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<std::uint32_t> top_k;
};

struct SamplingChoice {
  SamplingParams params;
  std::string text;  // "temperature 0.6, top-p 0.95, top-k 20, min-p 0 (the model's)"
};

// The operator wins over the file. A file that says anything is taken as its makers meant it: what it leaves
// out is off. Without a word from it: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, as llama.cpp's
// server has it, with which small models stay sane.
SamplingChoice choose_sampling(const GivenSampling& given, const SamplingDefaults& file);

}  // namespace loci
