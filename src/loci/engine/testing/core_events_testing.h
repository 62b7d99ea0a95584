// SPDX-License-Identifier: Apache-2.0
// Shared by the core's benchmarks: prompts, the ends of passes, and disks with entries of earlier
// conversations.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/memory/chain_key.h"

namespace loci {

// Random tokens; those of different seeds have nothing in common.
inline std::vector<TokenId> tokens_of(std::uint32_t seed, std::size_t count) {
  std::vector<TokenId> tokens;
  tokens.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    tokens.push_back(TokenId(static_cast<std::uint32_t>((i * 2654435761u) ^ (seed * 40503u)) % 49152));
  return tokens;
}

// The event that the pass of `plan` has ended and every span has its sample.
inline PassDone pass_done(const Plan& plan) {
  PassDone event{plan.pass->id, {}};
  for (const SpanPlan& span : plan.spans) {
    SpanOutcome outcome;
    if (span.sample) outcome.sample = TokenId(static_cast<std::uint32_t>(span.request.value));
    event.spans.push_back(outcome);
  }
  return event;
}

// So old is the conversation of a number, in milliseconds: up to an hour, and in no order of the numbers.
// (People come back after times of any length.)
inline std::int64_t age_of(std::uint32_t number) { return number * 2654435761u % 3'600'000u; }

// The entries that a process finds on its disk when it starts.
class LeftOnDisk {
 public:
  explicit LeftOnDisk(const CoreConfig& config)
      : hasher_(config.chain_secret, config.model_fingerprint), groups_(config.groups.size()) {}

  // Adds the whole blocks of a conversation, in the next slots of every group. It was last used `age_ms`
  // before the start, as a whole; age 0: its blocks are as old as the events that bring them.
  void add(const TenantId& tenant, std::span<const TokenId> tokens, std::int64_t age_ms = 0) {
    ChainKey parent = hasher_.root(tenant);
    for (std::size_t begin = 0; begin + kBlockTokens <= tokens.size(); begin += kBlockTokens) {
      const auto block = tokens.subspan(begin, kBlockTokens);
      RecoveredEntry found;
      found.slot = SlotId(static_cast<std::uint32_t>(entries_.size() / groups_));
      found.entry.depth = static_cast<std::uint32_t>(begin / kBlockTokens) + 1;
      found.entry.parent = parent;
      found.entry.used_at = kStart - age_ms;
      found.entry.parent_kind = begin == 0 ? ParentKind::kRoot : ParentKind::kBlock;
      std::copy(block.begin(), block.end(), found.entry.tokens.begin());
      found.entry.key = parent = hasher_.child(parent, block);
      for (; found.group < groups_; ++found.group) entries_.push_back(found);
    }
  }

  // All entries, as events of `entries_each` entries.
  std::vector<Recovered> events(std::size_t entries_each) const {
    std::vector<Recovered> batches;
    for (std::size_t begin = 0; begin < entries_.size(); begin += entries_each) {
      const auto first = entries_.begin() + static_cast<std::ptrdiff_t>(begin);
      const std::size_t count = std::min(entries_each, entries_.size() - begin);
      batches.push_back({{first, first + static_cast<std::ptrdiff_t>(count)}, kStart, false});
    }
    batches.back().last = true;
    return batches;
  }
  std::size_t size() const { return entries_.size(); }

 private:
  static constexpr std::int64_t kStart = 1'800'000'000'000;  // milliseconds since 1970

  ChainKeyHasher hasher_;
  std::size_t groups_;
  std::vector<RecoveredEntry> entries_;
};

}  // namespace loci
