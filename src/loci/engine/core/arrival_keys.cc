// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/arrival_keys.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/engine/core/request.h"

namespace loci {
namespace {

std::span<const TokenId> block_of(std::span<const TokenId> tokens, std::size_t block) {
  return tokens.subspan(block * kBlockTokens, kBlockTokens);
}

// The blocks of a sequence before the one of its last token, which is computed in any case.
std::uint32_t shared_blocks(std::size_t tokens) {
  return static_cast<std::uint32_t>((tokens - 1) / kBlockTokens);
}

PublicBeginning public_beginning(const ChainKeyHasher& hasher, const PublicChains& prefixes,
                                 std::span<const TokenId> tokens) {
  PublicBeginning found;
  PublicChains alike = prefixes;
  ChainKey key = hasher.public_root();
  const std::uint32_t most = tokens.empty() ? 0 : shared_blocks(tokens.size());
  while (!alike.empty() && found.blocks < most) {
    found.keys.push_back(key = hasher.child(key, block_of(tokens, found.blocks)));
    std::erase_if(
        alike, [&](const auto& one) { return one->size() <= found.blocks || (*one)[found.blocks] != key; });
    if (!alike.empty()) ++found.blocks;
  }
  return found;
}

// What the first own block hangs from, behind so many public ones.
ChainKey own_root(const ChainKeyHasher& hasher, const PublicBeginning& beginning, std::uint32_t public_blocks,
                  const std::string& sharing) {
  return public_blocks == 0 ? hasher.root(sharing) : hasher.gate(beginning.keys[public_blocks - 1], sharing);
}

// The newest lineages that share a block with what is kept, the oldest of them first, without their keys.
CoreLineage lineage_of(const CoreConfig& config, const ChainKeyHasher& hasher,
                       const PublicBeginning& beginning, const Arrival& arrival, const std::string& sharing) {
  const std::span<const TokenId> tokens(arrival.prompt);
  CoreLineage lineage;
  const std::uint32_t front = arrival.dropped.front().begin / kBlockTokens;
  const std::uint32_t kept = arrival.dropped.back().end / kBlockTokens;
  lineage.front_blocks = front;
  const auto add = [&](const ChainKey& parent, std::uint32_t begin, std::uint32_t dropped) {
    // Those whose context ends before what is kept have none of it.
    if (kept - dropped >= config.context_tokens / kBlockTokens) return;
    lineage.earlier.push_back({.parent = parent, .begin = begin, .shift_blocks = kept - front - dropped});
  };
  // What was computed before the first cut has keys that depend on what is public now. Later keys do not.
  add(own_root(hasher, beginning, beginning.blocks, sharing), beginning.blocks, 0);
  ChainKey parent = hasher.root(sharing);
  std::uint32_t begin = 0, dropped = 0;
  for (const TokenRange& cut : arrival.dropped) {
    const std::uint32_t end = cut.end / kBlockTokens;
    if (dropped > 0) add(parent, begin, dropped);
    ChainKey key = parent;
    for (std::uint32_t block = begin; block < end; ++block) key = hasher.child(key, block_of(tokens, block));
    // Where the cut is in the lineage that it shortens.
    parent = hasher.lineage(key, front * kBlockTokens, (end - dropped) * kBlockTokens, sharing);
    begin = end;
    dropped = end - front;
  }
  lineage.gate = parent;
  const std::size_t older = lineage.earlier.size() - std::min(lineage.earlier.size(), kLineagesHashed);
  const auto oldest = lineage.earlier.begin();
  lineage.earlier.erase(oldest, oldest + static_cast<std::ptrdiff_t>(older));
  return lineage;
}

// Makes the keys of an earlier lineage. `tokens`: the whole history; `kept`: its first block after all cuts.
void hash_lineage(const CoreConfig& config, const ChainKeyHasher& hasher, std::span<const TokenId> tokens,
                  const CoreLineage& lineage, std::uint32_t kept, CoreLineage::Earlier& earlier) {
  const auto whole = static_cast<std::uint32_t>(tokens.size() / kBlockTokens);
  const std::uint32_t dropped = kept - lineage.front_blocks - earlier.shift_blocks;
  const std::uint32_t end = std::min(whole, dropped + config.context_tokens / kBlockTokens);
  const std::uint32_t from = std::max(earlier.begin, kept);
  earlier.first = from - kept;
  earlier.keys.reserve(end > from ? end - from : 0);
  ChainKey key = earlier.parent;
  for (std::uint32_t block = earlier.begin; block < end; ++block) {
    key = hasher.child(key, block_of(tokens, block));
    if (block >= kept) earlier.keys.push_back(key);
  }
}

}  // namespace

bool contains_reserved_token(std::span<const TokenId> tokens) {
  return std::find(tokens.begin(), tokens.end(), kNoToken) != tokens.end();
}

Status dropped_refusal(const Arrival& arrival) {
  if (arrival.dropped.empty()) return {};
  const auto refuse = [](std::string message) { return invalid_argument(std::move(message), "dropped"); };
  if (arrival.scope == SharingScope::kPublic) return refuse("public prefixes are not cut");
  std::uint32_t end = arrival.dropped.front().begin;
  if (end == 0) return refuse("expected cuts after the first block, found one at 0");
  for (const TokenRange& range : arrival.dropped) {
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
  if (end >= arrival.prompt.size()) {
    return refuse(fmt::format("expected cuts that leave a token of {}, found one up to {}",
                              arrival.prompt.size(), end));
  }
  return {};
}

// Without reuse every request's state is under a name of its own (no client's salt begins so).
std::string sharing_in(const CoreConfig& config, const Arrival& arrival) {
  return sharing_of(arrival.tenant,
                    config.reuse ? arrival.salt : "\n" + std::to_string(arrival.request.value));
}

ArrivalKeys arrival_keys(const CoreConfig& config, const ChainKeyHasher& hasher, const PublicChains& prefixes,
                         const Arrival& arrival) {
  ArrivalKeys keys;
  if (arrival.prompt.empty() || !dropped_refusal(arrival).ok()) return keys;
  if (kept_tokens(arrival) >= config.context_tokens || contains_reserved_token(arrival.prompt)) return keys;
  const std::string sharing = sharing_in(config, arrival);
  const bool is_public = arrival.scope == SharingScope::kPublic;
  if (!is_public) keys.beginning = public_beginning(hasher, prefixes, arrival.prompt);
  keys.public_blocks = keys.beginning.blocks;
  if (!arrival.dropped.empty()) {
    keys.lineage = lineage_of(config, hasher, keys.beginning, arrival, sharing);
    const std::uint32_t kept = arrival.dropped.back().end / kBlockTokens;
    for (CoreLineage::Earlier& one : keys.lineage->earlier)
      hash_lineage(config, hasher, arrival.prompt, *keys.lineage, kept, one);
    keys.public_blocks = std::min(keys.public_blocks, keys.lineage->front_blocks);
    const auto prompt = arrival.prompt.begin();
    keys.kept.reserve(kept_tokens(arrival));
    keys.kept.assign(prompt, prompt + arrival.dropped.front().begin);
    keys.kept.insert(keys.kept.end(), prompt + arrival.dropped.back().end, arrival.prompt.end());
  }
  const std::span<const TokenId> tokens(keys.lineage ? keys.kept : arrival.prompt);
  const std::uint32_t count = shared_blocks(tokens.size());
  keys.blocks.reserve(count);
  keys.blocks.assign(keys.beginning.keys.begin(), keys.beginning.keys.begin() + keys.public_blocks);
  ChainKey key =
      is_public ? hasher.public_root() : own_root(hasher, keys.beginning, keys.public_blocks, sharing);
  for (std::uint32_t block = keys.public_blocks; block < count; ++block) {
    if (keys.lineage && block == keys.lineage->front_blocks) key = keys.lineage->gate;
    keys.blocks.push_back(key = hasher.child(key, block_of(tokens, block)));
  }
  keys.made = true;
  return keys;
}

void prepare_arrival(const CoreConfig& config, const ChainKeyHasher& hasher, const PublicChains& prefixes,
                     Arrival& arrival) {
  arrival.keys = arrival_keys(config, hasher, prefixes, arrival);
  std::vector<TokenId>& computed = arrival.dropped.empty() ? arrival.prompt : arrival.keys.kept;
  const std::size_t room = std::max<std::size_t>(computed.size(), kReplyRoom);
  computed.reserve(computed.size() + std::min<std::size_t>(arrival.max_new_tokens, room));
}

ForgetKeys forget_keys(const ChainKeyHasher& hasher, const PublicChains& prefixes, const Forget& forget) {
  const std::string sharing = sharing_of(forget.tenant, forget.salt);
  const std::span<const TokenId> tokens(forget.tokens);
  ForgetKeys keys;
  const auto add_path = [&](ChainKey key, std::size_t first_block) {
    ForgetKeys::Path& path = keys.paths.emplace_back();
    path.tokens_before = first_block * kBlockTokens;
    path.keys.reserve(tokens.size() / kBlockTokens - first_block + 1);
    path.keys.push_back(key);
    for (std::size_t block = first_block; block < tokens.size() / kBlockTokens; ++block)
      path.keys.push_back(key = hasher.child(key, block_of(tokens, block)));
  };
  keys.beginning = public_beginning(hasher, prefixes, tokens);
  const std::uint32_t public_blocks = keys.beginning.blocks;
  add_path(hasher.root(sharing), 0);
  if (public_blocks > 0) add_path(own_root(hasher, keys.beginning, public_blocks, sharing), public_blocks);
  keys.made = true;
  return keys;
}

void check_keys(const ChainKeyHasher& hasher, std::span<RecoveredEntry> found) {
  for (RecoveredEntry& one : found)
    one.key_is_checked = hasher.child(one.entry.parent, one.entry.tokens) == one.entry.key;
}

}  // namespace loci
