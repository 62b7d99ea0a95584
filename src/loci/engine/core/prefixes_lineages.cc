// SPDX-License-Identifier: Apache-2.0
// Lineages: sequences that have dropped a part of their history (docs/decisions/truncation.md).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/engine/core/prefixes.h"

namespace loci {
namespace {

// So many earlier lineages of a history are looked at, whatever cuts a client has chosen: each costs a hash
// for every block of a context, and a look at every probe. Cuts of an eighth of the context or more, as the
// default ones are, have no more that share a block.
constexpr std::size_t kLineagesLookedAt = 8;

}  // namespace

Status Prefixes::truncation_refusal(const Arrival& event) const {
  if (event.dropped.empty()) return {};
  const auto refuse = [](std::string message) { return invalid_argument(std::move(message), "dropped"); };
  if (event.scope == SharingScope::kPublic) return refuse("public prefixes are not cut");
  std::uint32_t end = event.dropped.front().begin;
  if (end == 0) return refuse("expected cuts after the first block, found one at 0");
  for (const TokenRange& range : event.dropped) {
    if (range.begin != end || range.end <= range.begin) {
      return refuse(
          fmt::format("expected a cut that begins at {}, found [{}, {})", end, range.begin, range.end));
    }
    if (range.begin % kBlockTokens != 0 || range.end % kBlockTokens != 0) {
      return refuse(fmt::format("expected whole blocks of {} tokens, found [{}, {})", kBlockTokens,
                                range.begin, range.end));
    }
    end = range.end;
  }
  if (end >= event.prompt.size()) {
    return refuse(
        fmt::format("expected cuts that leave a token of {}, found one up to {}", event.prompt.size(), end));
  }
  return {};
}

// The parent key of the history's blocks in its first lineage, as the index has it now: the history may begin
// with public blocks, whose number is told.
ChainKey Prefixes::original_root(const std::string& sharing, std::span<const TokenId> tokens,
                                 std::uint32_t& public_blocks) const {
  public_blocks = 0;
  ChainKey key = hasher_.public_root(), last = key;
  while (!public_.empty() && (public_blocks + 1) * kBlockTokens < tokens.size()) {
    key = hasher_.child(key, tokens.subspan(public_blocks * kBlockTokens, kBlockTokens));
    const BlockId node = index_.find(key);
    if (node == kNoBlock || index_.block(node).published == 0) break;
    last = key;
    ++public_blocks;
  }
  return public_blocks == 0 ? hasher_.root(sharing) : hasher_.gate(last, sharing);
}

std::vector<Prefixes::Names> Prefixes::names_of(const Forget& event) const {
  const std::string sharing = sharing_of(event.tenant, event.salt);
  const std::span<const TokenId> tokens(event.tokens);
  const auto names_below = [&](ChainKey key, std::size_t first_block) {
    Names names{.keys = {key}, .tokens_before = first_block * kBlockTokens};
    for (std::size_t block = first_block; block < tokens.size() / kBlockTokens; ++block) {
      key = hasher_.child(key, tokens.subspan(block * kBlockTokens, kBlockTokens));
      names.keys.push_back(key);
    }
    return names;
  };
  std::vector<Names> all = {names_below(hasher_.root(sharing), 0)};
  std::uint32_t public_blocks = 0;
  const ChainKey gate = original_root(sharing, tokens, public_blocks);
  if (public_blocks > 0) all.push_back(names_below(gate, public_blocks));
  return all;
}

// Where cuts are small, a turn may make many at once. Then most lineages were never anybody's, and what the
// turn before has kept is in one that the index knows: the others go first, then the oldest.
void Prefixes::keep_the_best(std::vector<EarlierLineage>& lineages) const {
  std::size_t spare = lineages.size() - std::min(lineages.size(), kLineagesLookedAt);
  std::vector<EarlierLineage> best;
  for (const EarlierLineage& lineage : lineages) {
    if (spare > 0 && index_.find(lineage.parent) == kNoBlock) {
      --spare;
    } else {
      best.push_back(lineage);
    }
  }
  best.erase(best.begin(), best.begin() + static_cast<std::ptrdiff_t>(spare));
  lineages = std::move(best);
}

std::unique_ptr<const CoreLineage> Prefixes::lineage_of(const Arrival& event,
                                                        const std::string& sharing) const {
  if (event.dropped.empty()) return nullptr;
  const std::span<const TokenId> tokens(event.prompt);
  const auto block_tokens = [&](std::uint32_t block) {
    return tokens.subspan(std::size_t{block} * kBlockTokens, kBlockTokens);
  };
  auto lineage = std::make_unique<CoreLineage>();
  const std::uint32_t front = event.dropped.front().begin / kBlockTokens;
  const std::uint32_t kept = event.dropped.back().end / kBlockTokens;  // the first block after all cuts
  const auto whole = static_cast<std::uint32_t>(tokens.size() / kBlockTokens);
  const std::uint32_t context = config_.context_tokens / kBlockTokens;
  lineage->front_blocks = front;

  // The first lineage's own names of what it has depend on what is public at the time; the names of the
  // lineages after it do not.
  std::uint32_t public_blocks = 0;
  const ChainKey first = original_root(sharing, tokens, public_blocks);
  std::vector<EarlierLineage> earlier = {{first, public_blocks, 0}};
  ChainKey parent = hasher_.root(sharing);
  std::uint32_t begin = 0, dropped = 0;
  for (const TokenRange& cut : event.dropped) {
    const std::uint32_t end = cut.end / kBlockTokens;
    if (dropped > 0) earlier.push_back({parent, begin, dropped});
    ChainKey key = parent;
    for (std::uint32_t block = begin; block < end; ++block) key = hasher_.child(key, block_tokens(block));
    // Where the cut is in the lineage that it shortens.
    parent = hasher_.lineage(key, front * kBlockTokens, (end - dropped) * kBlockTokens, sharing);
    begin = end;
    dropped = end - front;
  }
  lineage->gate = parent;

  // Those whose context ends before what is kept have none of it.
  std::erase_if(earlier, [&](const EarlierLineage& one) { return kept - one.dropped_blocks >= context; });
  keep_the_best(earlier);
  lineage->originals.resize(whole - kept);
  for (const EarlierLineage& one : earlier) {
    ChainKey key = one.parent;
    for (std::uint32_t block = one.begin; block < whole && block - one.dropped_blocks < context; ++block) {
      key = hasher_.child(key, block_tokens(block));
      if (block >= kept)
        lineage->originals[block - kept].push_back({key, (kept - front) - one.dropped_blocks});
    }
  }
  return lineage;
}

BlockId Prefixes::original_of(const CoreRequest& request, std::uint32_t block) const {
  if (request.lineage == nullptr || block < request.lineage->front_blocks) return kNoBlock;
  CoreProbe found;
  find_original(*request.lineage, block, {.slowest = Tier::kShared, .originals = !has_windows_}, found);
  return found.original;
}

// The oldest lineage that is looked at and has it: what was computed is rotated seldom, mostly once. In
// groups with a window state is computed anew: a request goes on from what it holds of a whole window.
void Prefixes::find_original(const CoreLineage& lineage, std::uint32_t block, const ProbeRules& rules,
                             CoreProbe& found) const {
  const std::uint32_t index = block - lineage.front_blocks;
  if (!rules.originals || index >= lineage.originals.size()) return;
  for (const CoreLineage::Original& original : lineage.originals[index]) {
    const BlockId id = index_.find(original.key);
    if (id == kNoBlock) continue;
    const std::optional<Tier> tier = transfers_.original_tier(id, rules.slowest);
    found.too_slow = found.too_slow || (!tier && transfers_.original_tier(id, Tier::kShared));
    if (!tier) continue;
    found.load = true;
    found.original = id;
    found.shift_blocks = original.shift_blocks;
    return;
  }
}

}  // namespace loci
