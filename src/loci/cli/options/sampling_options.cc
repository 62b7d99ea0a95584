// SPDX-License-Identifier: Apache-2.0
// How tokens are drawn where a request does not say.
#include "loci/cli/options/option_builders.h"
#include "loci/cli/options/option_table.h"
#include "loci/model/sampling_range.h"

namespace loci {

std::vector<Option> sampling_options() {
  const std::string group = "sampling";
  std::vector<Option> out = {
      number_option(
          {group, "--temperature",
           "how freely tokens are drawn: 0 always takes the likeliest one, higher values take unlikely ones "
           "more often"},
          [](auto& flags) -> auto& { return flags.sampling.temperature; }, kTemperatureRange.low,
          kTemperatureRange.high),
      number_option(
          {group, "--top-p",
           "draw only from the likeliest tokens that together have this probability; 1 draws from all"},
          [](auto& flags) -> auto& { return flags.sampling.top_p; }, 0.000001, 1),
      integer_option(
          {group, "--top-k", "draw only from this many of the likeliest tokens; 0 draws from all"},
          [](auto& flags) -> auto& { return flags.sampling.top_k; }, 0, 1 << 24),
      number_option(
          {group, "--min-p",
           "draw only from tokens that are at least this likely, as a share of the likeliest token's "
           "probability; 0 draws from all"},
          [](auto& flags) -> auto& { return flags.sampling.min_p; }, 0, 1),
      number_option(
          {group, "--repeat-penalty",
           "a value above 1 makes tokens that occurred before less likely; 1 changes nothing"},
          [](auto& flags) -> auto& { return flags.sampling.repeat_penalty; }, 0.000001,
          kRepetitionPenaltyRange.high),
  };
  const char* const kBuiltIn[] = {"0.8", "0.95", "40", "0.05", "1"};
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i].default_note = std::string("the model's own, else ") + kBuiltIn[i];
  return out;
}

}  // namespace loci
