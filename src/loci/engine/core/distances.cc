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
constexpr std::size_t kLooksAhead = 12;                   // whose memory is read meanwhile
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

Distances::Distances(const CoreConfig& config, BlockIndex& index, const Prefixes& prefixes,
                     const Places& places)
    : config_(config), index_(index), prefixes_(prefixes), places_(places) {
  if (!make_admission_order(config.admission).value()->looks_at_distance()) return;
  index_.watch_changed();
  const std::size_t looks = std::min<std::size_t>(config.context_tokens / kBlockTokens, kLooksMax);
  watchers_.reserve(std::min(kBlocksMax, looks * config.max_queued));
}

Distances::GroupTiers Distances::tiers_of(BlockId id) const {
  GroupTiers tiers;
  tiers.fill(kFar);
  if (id == kNoBlock) return tiers;
  const Block& block = index_.block(id);
  for (std::uint32_t group = 0; group < config_.groups.size(); ++group) {
    const LowerCopy* copy = block.whole_copy(group);
    if (block.filled_in(group) == kBlockTokens)
      tiers[group] = 0;
    else if (copy != nullptr)
      tiers[group] = std::min(static_cast<std::uint8_t>(copy->tier), std::uint8_t{2});
  }
  return tiers;
}

// How many of the looks are before the last place at which all windows are whole.
std::size_t Distances::place_among(std::span<const Look> looks) const {
  PlaceWalk walk;
  std::size_t place = 0;
  for (std::size_t i = 0; i < looks.size(); ++i) {
    GroupSet there = 0;
    for (std::uint32_t group = 0; group < config_.groups.size(); ++group)
      if (looks[i].tiers[group] != kFar) there |= static_cast<GroupSet>(1u << group);
    walk.step(there, looks[i].tokens / kBlockTokens);
    if (places_.is_over(walk)) break;
    if (places_.is_place(walk)) place = i + 1;
  }
  return place;
}

std::uint64_t Distances::sum_of(std::span<const Look> looks) const {
  std::uint64_t sum = 0;
  if (!places_.any_windows()) {
    for (const Look& look : looks) sum += nearness_of(look.tiers[0], look.tokens);
    return sum;
  }
  looks = looks.first(place_among(looks));
  std::uint32_t position = 0, end = 0;  // the place; where the blocks of a look end
  for (const Look& look : looks) position += look.tokens;
  for (const Look& look : looks) {
    end += look.tokens;
    const GroupSet seen = places_.groups_seen(position, end / kBlockTokens - 1);
    std::uint8_t tier = 0;
    for (std::uint32_t group = 0; group < config_.groups.size(); ++group)
      if (has_group(seen, group)) tier = std::max(tier, look.tiers[group]);
    sum += nearness_of(tier, look.tokens);
  }
  return sum;
}

std::uint64_t Distances::nearness(CoreRequest& request) const {
  const std::vector<ChainKey>& keys = prefixes_.keys_of(request);
  std::vector<Look> looks;
  looks.reserve(keys.size() / stride_of(keys.size()) + 1);
  for (std::uint32_t i = 0; i < keys.size(); i += stride_of(keys.size())) {
    BlockId id = index_.find(keys[i]);
    if (id == kNoBlock || !index_.reachable(id)) {
      const BlockId original = prefixes_.original_of(request, i);
      if (original != kNoBlock) id = original;
    }
    if (id == kNoBlock) break;
    looks.push_back({.key = keys[i], .tokens = tokens_of_look(i, keys.size()), .tiers = tiers_of(id)});
  }
  return sum_of(looks);
}

std::uint64_t Distances::remember(CoreRequest& request) {
  Known& known = known_[request.arrival];
  known.request = &request;
  const std::vector<ChainKey>& keys = prefixes_.keys_of(request);
  known.looks.reserve(keys.size() / stride_of(keys.size()) + 1);
  for (std::uint32_t i = 0; i < keys.size(); i += stride_of(keys.size()))
    known.looks.push_back({.key = keys[i], .tokens = tokens_of_look(i, keys.size())});
  std::vector<Look>& looks = known.looks;
  // None of it is in a cache: places of keys are asked for first, then nodes, some looks ahead.
  for (std::size_t i = 0; i < looks.size() + 2 * kLooksAhead; ++i) {
    if (i < looks.size()) {
      index_.prefetch(looks[i].key);
      watchers_.prefetch(looks[i].key);
    }
    if (i >= kLooksAhead && i - kLooksAhead < looks.size())
      index_.prefetch(index_.find(looks[i - kLooksAhead].key));
    if (i >= 2 * kLooksAhead) watch(known, static_cast<std::uint32_t>(i - 2 * kLooksAhead));
  }
  known.sum = sum_of(looks);
  blocks_ += looks.size();
  return known.sum;
}

void Distances::watch(Known& known, std::uint32_t number) {
  Look& look = known.looks[number];
  look.tiers = tiers_of(index_.find(look.key));
  Watchers& watchers = watchers_.insert(look.key).first;
  look.watcher = static_cast<std::uint32_t>(watchers.size());
  watchers.push_back({&known, number});
}

FairQueue::Distance Distances::of(CoreRequest& request) {
  const auto known = known_.find(request.arrival);
  const bool fits = blocks_ + std::min<std::size_t>(request.length() / kBlockTokens, kLooksMax) <= kBlocksMax;
  const bool is_told = known != known_.end() || (request.lineage == nullptr && fits);
  if (known != known_.end() && std::exchange(known->second.has_moved, false) && places_.any_windows())
    known->second.sum = sum_of(known->second.looks);
  const std::uint64_t sum = known != known_.end() ? known->second.sum
                            : is_told             ? remember(request)
                                                  : nearness(request);
  const std::uint64_t most = std::uint64_t{request.length()} * kNowhere;
  return {.value = static_cast<std::uint32_t>((most - sum) / request.length()), .is_told = is_told};
}

void Distances::forget(const CoreRequest& request) {
  const auto known = known_.find(request.arrival);
  if (known == known_.end()) return;
  for (const Look& look : known->second.looks) watchers_.prefetch(look.key);
  for (const Look& look : known->second.looks) {
    Watchers& watchers = *watchers_.find(look.key);
    const Watcher last = watchers.back();
    last.known->looks[last.number].watcher = look.watcher;
    watchers[look.watcher] = last;
    watchers.pop_back();
    if (watchers.empty()) watchers_.erase(look.key);
  }
  blocks_ -= known->second.looks.size();
  known_.erase(known);
}

std::vector<const CoreRequest*> Distances::take_changes() {
  std::vector<const CoreRequest*> moved;
  for (const ChainKey& key : index_.take_changed()) {
    const Watchers* watchers = watchers_.find(key);
    if (watchers == nullptr) continue;
    const GroupTiers tiers = tiers_of(index_.find(key));
    for (const Watcher& one : *watchers) {
      Look& look = one.known->looks[one.number];
      if (look.tiers == tiers) continue;
      // (Where there are windows the place may be another: of() sums up again.)
      if (!places_.any_windows())
        one.known->sum += nearness_of(tiers[0], look.tokens) - nearness_of(look.tiers[0], look.tokens);
      look.tiers = tiers;
      if (!std::exchange(one.known->has_moved, true)) moved.push_back(one.known->request);
    }
  }
  return moved;
}

void Distances::check_invariants() const {
  std::size_t blocks = 0;
  for (const auto& [arrival, known] : known_) {
    for (std::uint32_t i = 0; i < known.looks.size(); ++i) {
      const Look& look = known.looks[i];
      LOCI_CHECK(look.tiers == tiers_of(index_.find(look.key)),
                 "invariant 10: tiers are what the index says");
      const Watchers* watchers = watchers_.find(look.key);
      LOCI_CHECK(watchers != nullptr && look.watcher < watchers->size() &&
                     (*watchers)[look.watcher].known == &known && (*watchers)[look.watcher].number == i,
                 "invariant 10: a block's watchers are who asks for it");
    }
    LOCI_CHECK((places_.any_windows() && known.has_moved) || sum_of(known.looks) == known.sum,
               "invariant 10: a distance is what the index says");
    blocks += known.looks.size();
  }
  LOCI_CHECK(blocks == blocks_, "invariant 10: what is remembered is counted");
  watchers_.check_invariants();
}

}  // namespace loci
