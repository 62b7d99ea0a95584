// SPDX-License-Identifier: Apache-2.0
// Shared by tests of sampling and of backends that sample.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "loci/engine/run/sampler.h"

namespace loci {

// The token that Span::sampling defines; a device's own sampling must give the same.
inline TokenId sample_token(std::span<const float> logits, const DeviceSampling& sampling) {
  SamplingParams params;
  params.temperature = sampling.temperature;
  params.top_k = sampling.top_k;
  params.top_p = sampling.top_p;
  params.min_p = sampling.min_p;
  params.seed = sampling.seed;
  Sampler sampler(std::move(params), {}, {}, static_cast<std::uint32_t>(logits.size()));
  sampler.resume_at(sampling.draw);
  return sampler.sample(logits)->token;
}

}  // namespace loci
