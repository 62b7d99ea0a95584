// SPDX-License-Identifier: Apache-2.0
// How tokens are drawn if a request does not say: the operator decides, else the model's file, else Loci.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loci/engine/run/sampler.h"
#include "loci/model/sampling_defaults.h"

namespace loci {

// What the operator chose; what is absent is as the model's makers say.
struct GivenSampling {
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<std::uint32_t> top_k;
};

struct SamplingChoice {
  SamplingParams params;
  std::string text;  // "temperature 0.6, top-p 0.95, top-k 20, min-p 0 (the model's)"
};

// The operator wins over the file. A file that names any of these values is taken as its makers meant it:
// values that it leaves out are off. If the file names none, the values are those of llama.cpp's server, with
// which small models stay coherent: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05.
SamplingChoice choose_sampling(const GivenSampling& given, const SamplingDefaults& file);

}  // namespace loci
