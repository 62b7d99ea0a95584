// SPDX-License-Identifier: Apache-2.0
// How tokens are drawn where a request does not say: from flags, the model's file, or built in.
#pragma once

#include <string>

#include "loci/cli/sampling_flags.h"
#include "loci/engine/run/sampler.h"
#include "loci/model/sampling_defaults.h"

namespace loci {

struct SamplingChoice {
  SamplingParams params;
  std::string text;  // "temperature 0.6, top-p 0.95, top-k 20, min-p 0 (the model's)"
};

// A flag wins over the file. A file that says anything is taken as its makers meant it: what it leaves out is
// off. Without a word from it: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, as llama.cpp's server has
// it, with which small models stay sane.
SamplingChoice choose_sampling(const SamplingFlags& flags, const SamplingDefaults& file);

}  // namespace loci
