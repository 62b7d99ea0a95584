// SPDX-License-Identifier: Apache-2.0
#include "reference/greedy_agreement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iostream>

#include "loci/base/check.h"

namespace loci {

double log_normaliser(std::span<const float> row) {
  const double largest = *std::max_element(row.begin(), row.end());
  double sum = 0;
  for (float logit : row) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

GreedyAgreement compare_greedy(SequenceRunner& runner, std::uint32_t vocabulary,
                               const std::vector<GoldenChat>& chats, double top_two_tolerance) {
  GreedyAgreement out;
  double squares = 0;
  std::size_t compared = 0;
  for (std::size_t number = 0; number < chats.size(); ++number) {
    const GoldenChat& chat = chats[number];
    std::vector<TokenId> tokens = chat.prompt;  // and the answer as the golden file has it
    for (std::size_t i = 0; i + 1 < chat.steps.size(); ++i) tokens.push_back(chat.steps[i].ids[0]);
    const std::span<const float> logits =
        runner.run(tokens, static_cast<std::uint32_t>(chat.prompt.size()) - 1);
    LOCI_CHECK(logits.size() == chat.steps.size() * vocabulary, "a row of logits for each step");
    for (std::size_t i = 0; i < chat.steps.size(); ++i, ++out.steps) {
      const GoldenStep& step = chat.steps[i];
      const std::span<const float> row = logits.subspan(i * vocabulary, vocabulary);
      const auto found = static_cast<std::uint32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      const double apart = step.logprobs[0] - step.logprobs[1];
      out.clear += apart > top_two_tolerance ? 1 : 0;
      if (found != step.ids[0].value) {
        ++out.other_token;
        out.widest_other = std::max(out.widest_other, apart);
        if (apart > top_two_tolerance) {
          out.wrong.push_back(
              fmt::format("chat {}, step {}: token {} instead of {}", number, i, found, step.ids[0].value));
        }
      }
      const double normaliser = log_normaliser(row);
      for (std::size_t k = 0; k < step.ids.size(); ++k, ++compared) {
        const double difference = row[step.ids[k].value] - normaliser - step.logprobs[k];
        squares += difference * difference;
      }
    }
  }
  out.logprob_difference = std::sqrt(squares / static_cast<double>(compared));
  std::cout << out.steps << " steps, " << out.clear << " of them clear; another token in " << out.other_token
            << ", where the first two were at most " << out.widest_other
            << " apart; log-probabilities differ by " << out.logprob_difference << " (root mean square)\n";
  return out;
}

}  // namespace loci
