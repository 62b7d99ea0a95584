// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/suspension_cost.h"

#include <algorithm>
#include <bit>

namespace loci {
namespace {

// In which tokens' worth of time is counted.
constexpr std::uint64_t kTokenParts = 1024;

// Of so long each, rounded up; no more than a large context's.
constexpr std::uint64_t parts_of(Nanos time, Nanos part) {
  constexpr std::uint64_t kMost = std::uint64_t{1} << 45;
  return std::min(kMost, static_cast<std::uint64_t>(std::max<Nanos>(0, time) / part) + 1);
}

// Of loading the block, and until its link begins, in parts of the time of one of its tokens.
std::pair<std::uint64_t, std::uint64_t> load_parts(const RestorableBlock& block, const RestoreLink& link) {
  const Nanos part = std::max<Nanos>(1, block.compute / (kBlockTokens * kTokenParts));
  return {parts_of(block.load + block.charge, part), parts_of(link.booked + link.latency, part)};
}

}  // namespace

SuspensionCost::SuspensionCost(const CoreConfig& config, const BlockIndex& index, const Transfers& transfers,
                               const Places& places, const PassTimes& pass_times)
    : config_(config),
      index_(index),
      transfers_(transfers),
      places_(places),
      pass_times_(pass_times),
      rule_(find_restore_rule(config.restore).value()) {}

Tier SuspensionCost::slowest_later() const {
  if (rule_ == RestoreRule::kRecompute) return Tier::kDevice;
  const bool disk =
      rule_ != RestoreRule::kPensieve && !transfers_.disk_gives_up() && !transfers_.overdue(LoadLink::kDisk);
  const Tier slowest = disk ? transfers_.slowest_own() : transfers_.before_disk(transfers_.slowest_own());
  return slowest == Tier::kHost && transfers_.overdue(LoadLink::kHost) ? Tier::kDevice : slowest;
}

// (What is public stays on the device.)
std::optional<SuspensionCost::LaterLoad> SuspensionCost::load_later(const CoreRequest& request,
                                                                    std::uint32_t number, GroupSet groups,
                                                                    Tier slowest) const {
  const BlockId id = request.blocks[number].block();
  if (index_.block(id).published > 0 || groups == 0) return LaterLoad{};
  std::optional<RestorableBlock> block = transfers_.restorable_later(id, number, slowest, groups);
  // What its next token sees in groups with a window is saved when it is suspended.
  const Tier saved_to = index_.has_tier(Tier::kHost) ? Tier::kHost : Tier::kDisk;
  if (!block && std::has_single_bit(groups) && config_.save != "off" && config_.reuse &&
      saved_to <= slowest) {
    const auto group = static_cast<std::uint32_t>(std::countr_zero(groups));
    const BlockPin& pin = request.blocks[number];
    if (places_.windowed(group) && pin.holds(group) && index_.block(id).filled_in(group) == kBlockTokens)
      block = transfers_.restorable(number, own_link(saved_to), config_.groups[group].block_bytes);
  }
  if (!block) return std::nullopt;
  block->compute = pass_times_.compute(number * kBlockTokens, kBlockTokens);
  if (block->only_hidden) block->charge += pass_times_.project_block();
  const auto [parts, link_parts] = load_parts(*block, transfers_.link(own_link(block->from)));
  return LaterLoad{.from = block->from, .parts = parts, .link_parts = link_parts};
}

std::uint64_t SuspensionCost::tokens_to_restore(const CoreRequest& request) const {
  const Tier slowest = slowest_later();
  if (places_.any_windows() && !places_.sees_all(request.length()))
    return tokens_behind_windows(request, slowest);
  const std::size_t blocks = request.blocks.size();
  const std::size_t stride = std::max<std::size_t>(1, (blocks + kBlocksAsked - 1) / kBlocksAsked);
  std::uint64_t loaded = 0, cost = 0;  // tokens, and parts of tokens
  LinksWaited waited{};
  for (std::size_t i = 0; i < blocks; i += stride) {
    const std::uint64_t stands_for = std::min(stride, blocks - i);
    const auto load = load_later(request, static_cast<std::uint32_t>(i), kEveryGroup, slowest);
    if (!load || load->parts >= kBlockTokens * kTokenParts) continue;  // computing it is as fast
    loaded += stands_for * kBlockTokens;
    cost += load->cost(stands_for, waited);
  }
  loaded = std::min<std::uint64_t>(loaded, request.length());
  return request.length() - loaded + std::min(loaded, (cost + kTokenParts - 1) / kTokenParts);
}

// It would go on from the place that costs least: all before it is loaded that layers see there, and all
// behind it is computed.
std::uint64_t SuspensionCost::tokens_behind_windows(const CoreRequest& request, Tier slowest) const {
  // (Its tail is saved only once it ends or rests, and it goes on from no token inside it.)
  const std::size_t blocks =
      std::min<std::size_t>(request.blocks.size(), (request.length() - 1) / kBlockTokens);
  const std::size_t stride = std::max<std::size_t>(1, (blocks + kBlocksAsked - 1) / kBlocksAsked);
  const std::uint64_t length = request.length();
  std::uint64_t least = length * kTokenParts, before = 0;
  LinksWaited waited{};
  for (std::size_t i = 0; i < blocks; i += stride) {
    const auto load = load_later(request, static_cast<std::uint32_t>(i), places_.seeing_all(), slowest);
    if (!load) break;  // there is no place behind it
    const auto end = static_cast<std::uint32_t>(std::min(i + stride, blocks));
    before += load->cost(end - i, waited);
    const std::uint64_t cost = before + (length - std::uint64_t{end} * kBlockTokens) * kTokenParts;
    if (cost >= least) continue;
    if (const auto windows = window_cost(request, end, slowest, waited))
      least = std::min(least, cost + *windows);
  }
  return (least + kTokenParts - 1) / kTokenParts;
}

// Of loading what windows see before block `end`: of many blocks some stand for the others.
std::optional<std::uint64_t> SuspensionCost::window_cost(const CoreRequest& request, std::uint32_t end,
                                                         Tier slowest, LinksWaited waited) const {
  std::uint64_t cost = 0;
  for (std::uint32_t group = 0; group < places_.group_count(); ++group) {
    if (!places_.windowed(group)) continue;
    const std::uint32_t first = places_.first_seen(group, end * kBlockTokens);
    const std::uint32_t stride = (end - first + kWindowBlocksAsked - 1) / kWindowBlocksAsked;
    for (std::uint32_t i = end; i > first; i -= std::min(stride, i - first)) {
      const auto load = load_later(request, i - 1, static_cast<GroupSet>(1u << group), slowest);
      if (!load) return std::nullopt;
      cost += load->cost(std::min(stride, i - first), waited);
    }
  }
  return cost;
}

}  // namespace loci
