// SPDX-License-Identifier: Apache-2.0
#include "loci/cli/sampling_choice.h"

#include <fmt/format.h>

namespace loci {

SamplingChoice choose_sampling(const SamplingFlags& flags, const SamplingDefaults& file) {
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
  std::string given;
  const auto take = [&](const auto& flag, auto& into, const char* name) {
    if (!flag) return;
    into = *flag;
    given += fmt::format("{}{}", given.empty() ? "" : " ", name);
  };
  take(flags.temperature, params.temperature, "--temperature");
  take(flags.top_p, params.top_p, "--top-p");
  take(flags.top_k, params.top_k, "--top-k");
  take(flags.min_p, params.min_p, "--min-p");
  take(flags.repeat_penalty, params.repetition_penalty, "--repeat-penalty");
  choice.text = fmt::format("temperature {}, top-p {}, top-k {}, min-p {}", params.temperature, params.top_p,
                            params.top_k, params.min_p);
  if (params.repetition_penalty != 1)
    choice.text += fmt::format(", repeat-penalty {}", params.repetition_penalty);
  choice.text += file.any() ? " (the model's" : " (the model's file names none";
  choice.text += given.empty() ? ")" : fmt::format("; given: {})", given);
  return choice;
}

}  // namespace loci
