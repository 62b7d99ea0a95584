// SPDX-License-Identifier: Apache-2.0
// Shared by the tests of the core.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loci/engine/core/core.h"

namespace loci {

using Tokens = std::vector<TokenId>;

// `count` tokens, first, first + 1, ...
inline Tokens run_of(std::uint32_t first, std::size_t count) {
  Tokens tokens;
  for (std::size_t i = 0; i < count; ++i) tokens.push_back(TokenId(first + static_cast<std::uint32_t>(i)));
  return tokens;
}

inline Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// The configuration of a core with `blocks` blocks on the device and no lower tiers.
inline CoreConfig config_of(std::uint32_t blocks, std::uint32_t batch = 512) {
  CoreConfig config;
  config.groups = {{.window = 0, .block_count = blocks}};
  config.layers = 2;
  config.context_tokens = blocks * kBlockTokens;
  config.max_batch_tokens = batch;
  return config;
}

// "request:position+count" of each span of the plan's pass, separated by blanks. "<i" follows if the span
// continues from the i-th sample of the pass before. Empty: no pass.
inline std::string spans_of(const Plan& plan) {
  std::string text;
  for (std::size_t i = 0; plan.pass && i < plan.pass->spans.size(); ++i) {
    const Span& span = plan.pass->spans[i];
    if (!text.empty()) text += ' ';
    text += std::to_string(plan.spans[i].request.value) + ":" + std::to_string(span.position) + "+" +
            std::to_string(span.tokens.size());
    if (span.token_of) text += "<" + std::to_string(*span.token_of);
  }
  return text;
}

// The event that the pass of `plan` has ended. Every sample is `sample`; the span at the index `poisoned`, if
// there is one, has failed.
inline PassDone pass_done(const Plan& plan, TokenId sample, std::size_t poisoned = SIZE_MAX) {
  PassDone event{plan.pass->id, {}};
  for (std::size_t i = 0; i < plan.spans.size(); ++i) {
    SpanOutcome outcome{.ok = i != poisoned, .sample = std::nullopt};
    if (outcome.ok && plan.spans[i].sample) outcome.sample = sample;
    event.spans.push_back(outcome);
  }
  return event;
}

}  // namespace loci
