// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/prompt_sources.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "loci/base/check.h"

namespace loci {

void PromptSources::start(CoreRequest& request, FoundSources found) {
  RequestSources& own = request.sources.change();
  LOCI_CHECK(!own.is_open, "a request starts once");
  own = {.found = std::move(found), .lost = std::nullopt, .is_open = true};
}

void PromptSources::lost(const Batch& batch, std::vector<Transfers::Missed> missed) {
  // By block, with its place among the ends: what a request has lost first says why.
  std::vector<std::pair<BlockId, std::size_t>> blocks;
  for (std::size_t i = 0; i < missed.size(); ++i) blocks.emplace_back(missed[i].block, i);
  std::ranges::sort(blocks);
  for (CoreRequest* request : batch) {
    if (!request->sources->is_open || request->sources->lost) continue;
    std::size_t first = missed.size();
    for (const std::uint32_t load : request->loads) {
      const auto found =
          std::ranges::lower_bound(blocks, std::pair(request->blocks[load].block(), std::size_t{0}));
      if (found != blocks.end() && found->first == request->blocks[load].block())
        first = std::min(first, found->second);
    }
    if (first < missed.size()) request->sources.change().lost = miss_reason_of(missed[first].result);
  }
}

std::uint32_t PromptSources::computed(CoreRequest& request, std::uint32_t position, std::uint32_t count) {
  if (!request.sources->is_open || !request.sources->lost) return 0;
  RequestSources& own = request.sources.change();
  std::uint32_t sum = 0;
  const std::size_t end = (std::size_t{position} + count + kBlockTokens - 1) / kBlockTokens;
  for (std::size_t i = position / kBlockTokens; i < std::min(end, own.found.blocks.size()); ++i) {
    FoundBlock& block = own.found.blocks[i];
    // Blocks are computed from the left: what follows in this one is not there either.
    const auto begin = static_cast<std::uint32_t>(i) * kBlockTokens;
    const std::uint32_t kept = std::min<std::uint32_t>(block.tokens, position - std::min(begin, position));
    const std::uint32_t moved = block.tokens - kept;
    block.tokens = static_cast<std::uint8_t>(kept);
    own.found.sum.of(block.from) -= moved;
    if (block.hidden) own.found.sum.hidden -= moved;
    sum += moved;
  }
  own.found.sum.computed[static_cast<std::size_t>(*own.lost)] += sum;
  return sum;
}

std::optional<ContextSources> PromptSources::settle(CoreRequest& request) {
  if (!request.sources->is_open) return std::nullopt;
  RequestSources& own = request.sources.change();
  own.is_open = false;
  own.found.blocks = {};
  ContextSources& from = own.found.sum;
  prompts_ += request.prompt_tokens;
  for (std::size_t tier = 0; tier < kTiers; ++tier) from_[tier] += from.of(static_cast<Tier>(tier));
  for (std::size_t i = 0; i < kMissReasons; ++i) computed_[i] += from.computed[i];
  return from;
}

void PromptSources::add_stats(CoreStats& stats) const {
  stats.tokens_prompt_total = prompts_;
  stats.tokens_cached_total = std::accumulate(from_.begin(), from_.end(), std::uint64_t{0});
  stats.tokens_from_total = from_;
  stats.tokens_missed_total = computed_;
}

void PromptSources::check_invariants(const CoreRequest& request) {
  const RequestSources& own = *request.sources;
  if (!own.is_open) return;
  ContextSources sum;
  for (const FoundBlock& block : own.found.blocks) {
    sum.of(block.from) += block.tokens;
    if (block.hidden) sum.hidden += block.tokens;
  }
  const ContextSources& found = own.found.sum;
  LOCI_CHECK(sum.device == found.device && sum.host == found.host && sum.disk == found.disk &&
                 sum.shared == found.shared && sum.hidden == found.hidden,
             "invariant 10: what a request found is the sum over its blocks");
  const std::uint32_t computed = std::accumulate(found.computed.begin(), found.computed.end(), 0u);
  LOCI_CHECK(found.cached() + computed == request.prompt_tokens,
             "invariant 10: a prompt is found or computed");
}

}  // namespace loci
