// SPDX-License-Identifier: Apache-2.0
// How a model's greedy answers agree with those of a golden file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "reference/golden_file.h"
#include "reference/sequence_runner.h"

namespace loci {

// log(sum(exp(row)))
double log_normaliser(std::span<const float> row);

struct GreedyAgreement {
  std::size_t steps = 0;
  std::size_t clear = 0;           // whose first two golden tokens are more than the tolerance apart
  std::size_t other_token = 0;     // where the model prefers another token than the golden first
  double widest_other = 0;         // of those, the most that the golden first two were apart
  double logprob_difference = 0;   // root mean square over the golden tokens of all steps
  std::vector<std::string> wrong;  // steps that are clear and have another token all the same
};

// Runs each chat's prompt with its golden answer. `top_two_tolerance`: in log-probability. Prints one line.
GreedyAgreement compare_greedy(SequenceRunner& runner, std::uint32_t vocabulary,
                               const std::vector<GoldenChat>& chats, double top_two_tolerance);

}  // namespace loci
