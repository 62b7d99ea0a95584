// SPDX-License-Identifier: Apache-2.0
#include "loci/server/sampling_choice.h"

#include <fmt/format.h>

namespace loci {

SamplingChoice choose_sampling(const GivenSampling& given, const SamplingDefaults& file) {
  SamplingChoice choice;
  SamplingParams& params = choice.params;
  if (file.any()) {
    params.temperature = file.temperature.value_or(params.temperature);
    params.top_p = file.top_p.value_or(params.top_p);
    params.top_k = file.top_k.value_or(params.top_k);
    params.min_p = file.min_p.value_or(params.min_p);
    params.repetition_penalty = file.repetition_penalty.value_or(params.repetition_penalty);
  } else {
    params.temperature = 0.8f;
    params.top_p = 0.95f;
    params.top_k = 40;
    params.min_p = 0.05f;
  }
  std::string names;
  const auto take = [&](const auto& value, auto& into, const char* name) {
    if (!value) return;
    into = *value;
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name);
  };
  take(given.temperature, params.temperature, "temperature");
  take(given.top_p, params.top_p, "top-p");
  take(given.top_k, params.top_k, "top-k");
  take(given.min_p, params.min_p, "min-p");
  take(given.repeat_penalty, params.repetition_penalty, "repeat-penalty");
  choice.text = fmt::format("temperature {}, top-p {}, top-k {}, min-p {}", params.temperature, params.top_p,
                            params.top_k, params.min_p);
  if (params.repetition_penalty != 1)
    choice.text += fmt::format(", repeat-penalty {}", params.repetition_penalty);
  choice.text += file.any() ? " (the model's" : " (the model's file names none";
  choice.text += names.empty() ? ")" : fmt::format("; given: {})", names);
  return choice;
}

}  // namespace loci
