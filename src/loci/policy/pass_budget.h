// SPDX-License-Identifier: Apache-2.0
// Bounds the time of a pass, not only its size: says how many tokens of prompts join a pass that running
// decodes wait for.
//
// An example: 4 decodes behind 1,000 tokens each, a token costs 1 ms and its attention to 1,000 others 0.2
// ms, and a pass may take 100 ms. The decodes' rows take 4.8 ms. A prompt of 400 tokens has 300 of them
// computed: its other 100 would take about 107 ms more, so 88 fit; they are cut to 60, as 64 rows are two
// whole tiles of the kernels. The prompt's last 40 tokens are in the next pass.
//
// Pure and deterministic; integers.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "loci/base/clock.h"

namespace loci {

// What a pass computes: its rows, and the tokens before each of them, summed.
struct PassRows {
  std::uint32_t rows = 0;
  std::uint64_t context = 0;

  // Tokens [begin, begin + count) of a sequence.
  void add(std::uint32_t begin, std::uint32_t count);
};

// Tokens [begin, begin + count) that a prompt lacks.
struct PromptRun {
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

// Rows of a pass are cut to multiples of so many: a block's tokens, and what tiles of products take.
inline constexpr std::uint32_t kPassRowsStep = 32;

// The predicted time of a pass.
using PassPrediction = std::function<Nanos(const PassRows&)>;

// How many tokens of `prompts`, taken in their order, join a pass that has `decodes`, so that it is predicted
// to take no more than `time`. The pass's rows are then a multiple of kPassRowsStep, where the time and not
// the prompts' end or `tokens_max` is the limit. At least kPassRowsStep tokens join, whatever they take, so
// that no prompt starves beside many decodes. At most `tokens_max`. O(prompts · log tokens_max) predictions.
std::uint32_t fitting_tokens(const PassPrediction& predict, Nanos time, const PassRows& decodes,
                             std::span<const PromptRun> prompts, std::uint32_t tokens_max);

}  // namespace loci
