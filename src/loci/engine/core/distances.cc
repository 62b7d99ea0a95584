// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/distances.h"

#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/policy/admission_order.h"

namespace loci {
namespace {

constexpr std::uint8_t kFar = kNowhere / kTierStep;
constexpr std::size_t kLooksMax = 512;                    // of a request's blocks
constexpr std::size_t kBlocksMax = std::size_t{1} << 17;  // that are remembered, of all requests

std::uint64_t nearness_of(std::uint8_t tier, std::uint32_t tokens) {
  return std::uint64_t{tokens} * (kNowhere - tier * kTierStep);
}

// Every so many blocks one is looked at.
std::uint32_t stride_of(std::size_t blocks) {
  return static_cast<std::uint32_t>(std::max<std::size_t>(1, (blocks + kLooksMax - 1) / kLooksMax));
}

// How many tokens block `number` stands for.
std::uint32_t tokens_of_look(std::uint32_t number, std::size_t blocks) {
  return static_cast<std::uint32_t>(std::min<std::size_t>(stride_of(blocks), blocks - number) * kBlockTokens);
}

}  // namespace

Distances::Distances(const CoreConfig& config, BlockIndex& index, const Prefixes& prefixes)
    : index_(index), prefixes_(prefixes) {
  if (make_admission_order(config.admission).value()->looks_at_distance()) index_.watch_changed();
}

std::uint8_t Distances::tier_of(BlockId id) const {
  if (id == kNoBlock) return kFar;
  const Block& block = index_.block(id);
  if (block.filled_in(0) == kBlockTokens) return 0;
  const LowerCopy* copy = block.whole_copy(0);
  return copy == nullptr ? kFar : std::min(static_cast<std::uint8_t>(copy->tier), std::uint8_t{2});
}

std::uint64_t Distances::nearness(CoreRequest& request) const {
  const std::vector<ChainKey>& keys = prefixes_.keys_of(request);
  std::uint64_t sum = 0;
  for (std::uint32_t i = 0; i < keys.size(); i += stride_of(keys.size())) {
    BlockId id = index_.find(keys[i]);
    if (id == kNoBlock || !index_.reachable(id)) {
      const BlockId original = prefixes_.original_of(request, i);
      if (original != kNoBlock) id = original;
    }
    if (id == kNoBlock) break;
    sum += nearness_of(tier_of(id), tokens_of_look(i, keys.size()));
  }
  return sum;
}

std::uint64_t Distances::remember(CoreRequest& request) {
  Known& known = known_[request.arrival];
  known.request = &request;
  const std::vector<ChainKey>& keys = prefixes_.keys_of(request);
  for (std::uint32_t i = 0; i < keys.size(); i += stride_of(keys.size())) {
    known.keys.push_back(keys[i]);
    known.tokens.push_back(tokens_of_look(i, keys.size()));
    known.tiers.push_back(tier_of(index_.find(keys[i])));
    known.sum += nearness_of(known.tiers.back(), known.tokens.back());
    std::vector<Watcher>& watchers = watchers_[keys[i]];
    known.watcher.push_back(static_cast<std::uint32_t>(watchers.size()));
    watchers.push_back({&known, static_cast<std::uint32_t>(known.keys.size() - 1)});
  }
  blocks_ += known.keys.size();
  return known.sum;
}

FairQueue::Distance Distances::of(CoreRequest& request) {
  const auto known = known_.find(request.arrival);
  const bool fits = blocks_ + std::min<std::size_t>(request.length() / kBlockTokens, kLooksMax) <= kBlocksMax;
  const bool is_told = known != known_.end() || (request.lineage == nullptr && fits);
  const std::uint64_t sum = known != known_.end() ? known->second.sum
                            : is_told             ? remember(request)
                                                  : nearness(request);
  if (known != known_.end()) known->second.has_moved = false;
  const std::uint64_t most = std::uint64_t{request.length()} * kNowhere;
  return {.value = static_cast<std::uint32_t>((most - sum) / request.length()), .is_told = is_told};
}

void Distances::forget(const CoreRequest& request) {
  const auto known = known_.find(request.arrival);
  if (known == known_.end()) return;
  for (std::uint32_t i = 0; i < known->second.keys.size(); ++i) {
    const auto watchers = watchers_.find(known->second.keys[i]);
    const std::uint32_t at = known->second.watcher[i];
    const Watcher last = watchers->second.back();
    last.known->watcher[last.number] = at;
    watchers->second[at] = last;
    watchers->second.pop_back();
    if (watchers->second.empty()) watchers_.erase(watchers);
  }
  blocks_ -= known->second.keys.size();
  known_.erase(known);
}

std::vector<const CoreRequest*> Distances::take_changes() {
  std::vector<const CoreRequest*> moved;
  for (const ChainKey& key : index_.take_changed()) {
    const auto watchers = watchers_.find(key);
    if (watchers == watchers_.end()) continue;
    const std::uint8_t tier = tier_of(index_.find(key));
    for (const Watcher& one : watchers->second) {
      std::uint8_t& known = one.known->tiers[one.number];
      if (known == tier) continue;
      const std::uint32_t tokens = one.known->tokens[one.number];
      one.known->sum = one.known->sum - nearness_of(known, tokens) + nearness_of(tier, tokens);
      known = tier;
      if (!std::exchange(one.known->has_moved, true)) moved.push_back(one.known->request);
    }
  }
  return moved;
}

void Distances::check_invariants() const {
  std::size_t blocks = 0;
  for (const auto& [arrival, known] : known_) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < known.keys.size(); ++i) {
      sum += nearness_of(tier_of(index_.find(known.keys[i])), known.tokens[i]);
      const Watcher& own = watchers_.at(known.keys[i]).at(known.watcher[i]);
      LOCI_CHECK(own.known == &known && own.number == i,
                 "invariant 10: a block's watchers are who asks for it");
    }
    LOCI_CHECK(sum == known.sum, "invariant 10: a distance is what the index says");
    blocks += known.keys.size();
  }
  LOCI_CHECK(blocks == blocks_, "invariant 10: what is remembered is counted");
}

}  // namespace loci
