// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/places.h"

#include <algorithm>
#include <cstddef>
#include <optional>

namespace loci {

CoreConfig limited_windows(CoreConfig config) {
  for (CoreGroup& group : config.groups) {
    if (group.window >= config.context_tokens) group.window = 0;  // nothing is ever behind it
    if (group.window != 0) group.window = std::max(group.window, kBlockTokens);
  }
  return config;
}

Places::Places(const CoreConfig& config, const BlockIndex& index, const Transfers& transfers)
    : config_(config),
      index_(index),
      transfers_(transfers),
      group_count_(static_cast<std::uint32_t>(config.groups.size())) {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const auto bit = static_cast<GroupSet>(1u << group);
    every_group_ |= bit;
    if (!windowed(group)) seeing_all_ |= bit;
  }
}

// --- what layers see ---

GroupSet Places::groups_seen(std::uint32_t position, std::uint32_t block) const {
  GroupSet groups = 0;
  for (std::uint32_t group = 0; group < group_count_; ++group)
    if (block >= first_seen(group, position)) groups |= static_cast<GroupSet>(1u << group);
  return groups;
}

bool Places::sees_all(std::uint32_t position) const {
  return std::ranges::all_of(config_.groups, [position](const CoreGroup& group) {
    return first_visible(group.window, position) == 0;
  });
}

// --- what a place is ---

bool Places::is_place(const PlaceWalk& walk, std::uint32_t tokens) const {
  const std::uint32_t position = walk.blocks() * kBlockTokens + tokens;
  for (std::uint32_t group = 0; group < group_count_; ++group)
    if (walk.blocks() - first_seen(group, position) > walk.whole(group)) return false;
  return true;
}

bool Places::is_over(const PlaceWalk& walk) const {
  for (std::uint32_t group = 0; group < group_count_; ++group)
    if (!windowed(group) && walk.whole(group) < walk.blocks()) return true;
  return false;
}

// --- places of a request that waits ---

bool Places::is_there(BlockId block, std::uint32_t group, Tier slowest) const {
  return block != kNoBlock &&
         (index_.block(block).filled_in(group) == kBlockTokens || transfers_.comes(block, group, slowest));
}

GroupSet Places::groups_there(BlockId block, Tier slowest) const {
  GroupSet groups = 0;
  for (std::uint32_t group = 0; group < group_count_; ++group)
    if (is_there(block, group, slowest)) groups |= static_cast<GroupSet>(1u << group);
  return groups;
}

bool Places::can_start(const CoreProbes& probes, std::uint32_t block, std::uint32_t tokens,
                       Tier slowest) const {
  // (Of narrow windows there is least to look at, and they lack most.)
  for (std::uint32_t group = group_count_; group-- > 0;) {
    for (std::uint32_t i = first_seen(group, block * kBlockTokens + tokens); i < block; ++i)
      if (!is_there(probes.blocks[i].node, group, slowest)) return false;
  }
  return true;
}

// Tokens from the block's first one on with which a request may go on; all of a block: none is left.
std::uint32_t Places::begun_tokens(const CoreProbe& found, std::uint32_t number,
                                   const CoreBeginning* coming) const {
  const std::uint32_t filled = found.node == kNoBlock ? 0 : index_.block(found.node).filled;
  if (filled > 0) return filled;
  const std::uint32_t of_sibling = found.source == CoreProbe::Source::kNone ? 0 : found.run;
  return coming != nullptr && coming->number == number ? std::max(of_sibling, coming->run) : of_sibling;
}

template <class Visit>
void Places::visit_places(const CoreProbes& probes, Tier slowest, const CoreBeginning* coming,
                          const Visit& visit) const {
  PlaceWalk walk;
  for (std::uint32_t i = 0; i < probes.blocks.size() && !is_over(walk); ++i) {
    const CoreProbe& found = probes.blocks[i];
    const std::uint32_t tokens = begun_tokens(found, i, coming);
    if (tokens < kBlockTokens && is_place(walk, tokens)) visit(i * kBlockTokens + tokens);
    walk.step(groups_there(found.node, slowest));
  }
}

std::vector<std::uint32_t> Places::all(const CoreProbes& probes, Tier slowest,
                                       const CoreBeginning* coming) const {
  std::vector<std::uint32_t> places;
  visit_places(probes, slowest, coming, [&](std::uint32_t place) { places.push_back(place); });
  return places;
}

void Places::choose_start(CoreProbes& probes, Tier slowest, const CoreBeginning* coming,
                          std::uint32_t last_block) const {
  probes.start = 0;
  visit_places(probes, slowest, coming, [&](std::uint32_t place) {
    if (place / kBlockTokens <= last_block) probes.start = place;
  });
  const std::uint32_t start = probes.start / kBlockTokens;
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    CoreProbe& found = probes.blocks[i];
    if (i != start) found.source = CoreProbe::Source::kNone;
    found.groups = i < start ? groups_seen(probes.start, i) : GroupSet{0};
    found.load = lacks(found);
  }
}

// The request reads of the block what is not on the device.
bool Places::lacks(const CoreProbe& found) const {
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (has_group(found.groups, group) && index_.block(found.node).filled_in(group) < kBlockTokens)
      return true;
  }
  return false;
}

void Places::compute_all(CoreProbes& probes) {
  probes.start = 0;
  for (CoreProbe& found : probes.blocks) {
    found.source = CoreProbe::Source::kNone;
    found.groups = 0;
    found.load = false;
  }
}

// --- what is loaded ---

PlaceLoads::PlaceLoads(const Places& places, const Transfers& transfers, const CoreProbes& probes)
    : places_(&places), sums_(places.group_count()) {
  for (std::uint32_t group = 0; group < sums_.size(); ++group) {
    std::vector<Parts>& sums = sums_[group];
    sums.reserve(probes.blocks.size() + 1);
    sums.emplace_back();
    for (const CoreProbe& found : probes.blocks) {
      Parts sum = sums.back();
      const auto part = found.node == kNoBlock ? std::nullopt : transfers.part_to_load(found.node, group);
      if (part) {
        sum.bytes[index_of(part->from)] += part->bytes;
        sum.awaited[index_of(part->from)] += part->bytes == 0 ? 1 : 0;
      }
      sums.push_back(sum);
    }
  }
}

PlaceLoads::Parts PlaceLoads::at(std::uint32_t place) const {
  Parts sum;
  for (std::uint32_t group = 0; group < sums_.size(); ++group) {
    const Parts& end = sums_[group][place / kBlockTokens];
    const Parts& begin = sums_[group][places_->first_seen(group, place)];
    for (std::size_t link = 0; link < kLoadLinks; ++link) {
      sum.bytes[link] += end.bytes[link] - begin.bytes[link];
      sum.awaited[link] += end.awaited[link] - begin.awaited[link];
    }
  }
  return sum;
}

}  // namespace loci
