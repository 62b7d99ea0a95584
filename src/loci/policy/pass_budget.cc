// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/pass_budget.h"

#include <algorithm>

namespace loci {

void PassRows::add(std::uint32_t begin, std::uint32_t count) {
  if (count == 0) return;
  rows += count;
  context += std::uint64_t{count} * begin + std::uint64_t{count} * (count - 1) / 2;
}

std::uint32_t fitting_tokens(const PassPrediction& predict, Nanos time, const PassRows& decodes,
                             std::span<const PromptRun> prompts, std::uint32_t tokens_max) {
  PassRows pass = decodes;
  const auto fits = [&](const PromptRun& run, std::uint32_t count) {
    PassRows with = pass;
    with.add(run.begin, count);
    return predict(with) <= time;
  };
  std::uint32_t taken = 0;
  for (const PromptRun& run : prompts) {
    const std::uint32_t wanted = std::min(run.count, tokens_max - taken);
    if (fits(run, wanted)) {
      pass.add(run.begin, wanted);
      taken += wanted;
      continue;
    }
    std::uint32_t most = 0;  // fits; `most` + `left` does not
    for (std::uint32_t left = wanted; left > 1;) {
      const std::uint32_t half = left / 2;
      if (fits(run, most + half)) {
        most += half;
        left -= half;
      } else {
        left = half;
      }
    }
    const std::uint32_t rows = decodes.rows + taken + most;
    const std::uint32_t cut = rows % kPassRowsStep;
    return std::min(std::max(taken + most - std::min(cut, taken + most), kPassRowsStep), tokens_max);
  }
  return taken;
}

}  // namespace loci
