// SPDX-License-Identifier: Apache-2.0
#include "loci/policy/truncation.h"

#include <fmt/format.h>

#include <algorithm>

#include "loci/compute/backend.h"

namespace loci {

namespace {

std::uint32_t room(std::uint32_t context, std::uint32_t reply) {
  for (const std::uint32_t part : {8u, 4u}) {
    if (reply <= context / part) return context / part;
  }
  return context / 2;
}

}  // namespace

Result<Truncation> Truncation::make(const TruncationRule& rule, const TruncationNeeds& needs) {
  const std::uint32_t context = rule.context_tokens;
  const std::uint32_t limit = (context - room(context, needs.reply_tokens)) / kBlockTokens;  // blocks
  const std::uint32_t front =
      std::max(1u, needs.front_tokens / kBlockTokens + (needs.front_tokens % kBlockTokens != 0 ? 1 : 0));
  // Less than two blocks to drop from, and nothing could be kept.
  if (limit < front + 2) {
    return resource_exhausted(
        fmt::format(
            "what must stay in front (the system prompt: {} tokens) leaves nothing to drop of a context "
            "of {} tokens, {} of which are for the reply; shorten it, ask for a shorter reply or start "
            "the server with a larger context",
            needs.front_tokens, context, room(context, needs.reply_tokens)),
        "context");
  }
  const std::uint32_t between = limit - front;
  const std::uint64_t wanted =
      (std::uint64_t{context / kBlockTokens} * std::clamp(rule.drop_percent, 1u, 90u) + 50) / 100;
  const std::uint32_t most = between - std::max(1u, between / 4);
  const auto cut = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1, most));
  return Truncation(limit * kBlockTokens, front * kBlockTokens, cut * kBlockTokens);
}

std::vector<TokenRange> Truncation::cuts(std::uint32_t history_tokens) const {
  std::vector<TokenRange> ranges;
  if (history_tokens <= limit_) return ranges;
  const std::uint32_t count = (history_tokens - limit_ + cut_ - 1) / cut_;
  for (std::uint32_t i = 0; i < count; ++i) {
    ranges.push_back({front_ + i * cut_, front_ + (i + 1) * cut_});
  }
  return ranges;
}

}  // namespace loci
