// SPDX-License-Identifier: Apache-2.0
// Looking ahead into the queue: what it needs (queue_needs.h), and the loads of who comes next.
#include <algorithm>
#include <cstddef>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"
#include "loci/policy/lookahead.h"

namespace loci {
namespace {

// Of so many tenants the first request that waits is looked at, in the order in which they come.
constexpr std::size_t kPreloadedAhead = 32;
// So many of them are looked up again when room or tiers have changed since they were.
constexpr std::uint32_t kPreloadAgain = 4;

}  // namespace

// The request, if it waits; null: it runs, is paused or is gone.
CoreRequest* Core::State::waiting_request(RequestId id) const {
  const auto request = requests_.find(id);
  return request == requests_.end() || !request->second->waits() ? nullptr : request->second.get();
}

void Core::State::look_ahead() {
  queue_needs_.look([this](RequestId id) { return waiting_request(id); });
  if (!index_.has_tier(Tier::kHost) && !index_.has_tier(Tier::kDisk) && !index_.has_tier(Tier::kShared))
    return;
  preload();
  queue_needs_.prefetch();
}

// While a pass runs, the loads of who comes next begin (the read buffer of AttentionStore §3.2.1: device
// memory that nobody needs now).
void Core::State::preload() {
  if (config_.preload == "off" || flights_.empty() || drain_deadline_ || queue_.empty()) return;
  std::uint32_t again = 0;
  for (const FairQueue::Head& head : queue_.heads(kPreloadedAhead)) {
    CoreRequest& request = *requests_.at(head.request);
    if (request.is_public || request.preload_seen == room_changes_) continue;
    if (request.preload_seen != 0 && (!request.preload_lacks || again++ >= kPreloadAgain)) continue;
    request.preload_seen = room_changes_;
    preload(request);
  }
}

// What the request goes on from of a block: all of it where no group has a window.
GroupSet Core::State::groups_before_start(const CoreProbes& probes, std::uint32_t block) const {
  if (!windows_.any()) return kEveryGroup;
  return block < probes.start / kBlockTokens ? groups_seen(config_, probes.start, block) : GroupSet{0};
}

// What of a request's state begins to move now, of each tier the first blocks. (What a cut has moved and the
// device has is rotated at admission, which takes no time.)
std::vector<std::uint32_t> Core::State::to_preload(const CoreRequest& request,
                                                   const CoreProbes& probes) const {
  std::array<std::vector<std::uint32_t>, kTiers> blocks;
  std::array<RestorableBlock, kTiers> one{};
  const CoreLineage* lineage = probes.lineage;
  const bool has_front = lineage != nullptr && lineage->front_blocks < probes.blocks.size() &&
                         probes.blocks[lineage->front_blocks - 1].node != kNoBlock;
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    if (!found.load || (found.node == kNoBlock && !has_front) || transfers_.loading(found.node)) continue;
    const auto from = static_cast<std::size_t>(transfers_.load_tier(found));
    blocks[from].push_back(i);
    one[from] = transfers_.restorable(found, i);
  }
  std::vector<std::uint32_t> out;
  const Nanos prefill = config_.preload == "buffer" ? sources(request, probes, true).predicted_compute : 0;
  for (std::size_t tier = 1; tier < kTiers; ++tier) {
    std::uint64_t count = blocks[tier].size();
    if (config_.preload == "buffer" && count > 0) {
      // In blocks. The first layer is before all computing (figure 6c).
      const Nanos latency = transfers_.link(static_cast<Tier>(tier)).latency;
      const std::uint64_t layer = (count + config_.layers - 1) / config_.layers;
      const Nanos load = latency + one[tier].load * static_cast<Nanos>(count);
      count = std::max(layer, read_buffer(count, load, prefill));
    }
    out.insert(out.end(), blocks[tier].begin(), blocks[tier].begin() + static_cast<std::ptrdiff_t>(count));
  }
  return out;
}

// Whether the device has slots for these blocks, and in groups with a window for what the request is promised
// beside them: it never waits at admission for room that its own loads have.
bool Core::State::has_room_ahead(const CoreProbes& probes, std::span<const std::uint32_t> begins) const {
  GroupCounts slots{};
  for (const std::uint32_t i : begins) {
    const BlockId node = probes.blocks[i].node;
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      const bool there = node != kNoBlock && index_.block(node).parts[group];
      if (!there && has_group(groups_before_start(probes, i), group)) ++slots[group];
    }
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (!windowed(group)) {
      if (index_.available(group) < slots[group] + reserve_blocks_[group]) return false;
      continue;
    }
    const std::uint64_t taken = std::uint64_t{windows_.taken(group)} + transfers_.moving()[group];
    if (taken + slots[group] + probes.promised[group] > config_.groups[group].block_count) return false;
    if (index_.available(group) < slots[group]) return false;
  }
  return true;
}

// The blocks that what a cut has moved is rotated into, and those between: they become known before anybody
// is admitted who needs them. Pinned until their loads hold them.
std::vector<BlockPin> Core::State::open_rotated(const CoreRequest& request, CoreProbes& probes,
                                                std::span<const std::uint32_t> begins) {
  std::vector<BlockPin> opened;
  std::uint32_t end = 0;
  for (const std::uint32_t i : begins) {
    if (probes.blocks[i].node == kNoBlock) end = std::max(end, i + 1);
  }
  if (end == 0) return opened;
  const std::uint32_t front = probes.lineage->front_blocks;
  opened.push_back(index_.open_gate(probes.blocks[front - 1].node, probes.lineage->gate));
  for (std::uint32_t i = front; i < end; ++i) {
    const auto tokens = std::span<const TokenId>(request.tokens).subspan(std::size_t{i} * kBlockTokens);
    const BlockId parent = opened.back().block();
    opened.push_back(index_.open_full(parent, probes.blocks[i].key, tokens.first(kBlockTokens)));
    probes.blocks[i].node = opened.back().block();
  }
  return opened;
}

void Core::State::preload(CoreRequest& request) {
  Tier slowest = slowest_for(request);
  CoreProbes probes = choose(request, true, slowest);
  plan_restore_of(request, probes, slowest);
  const std::vector<BlockPin> there = hold_there(probes);
  const std::vector<std::uint32_t> begins = to_preload(request, probes);
  request.preload_lacks = true;
  if (device_memory_.limited()) return;  // it would take memory before its time
  if (!has_room_ahead(probes, begins)) return;
  const std::vector<BlockPin> opened = open_rotated(request, probes, begins);
  std::vector<Transfers::Ahead> ahead;
  for (const std::uint32_t i : begins) ahead.push_back({probes.blocks[i], groups_before_start(probes, i)});
  const std::vector<Tier> from = transfers_.load_ahead(ahead);
  for (std::size_t i = 0; i < ahead.size(); ++i) {
    request.preloads.emplace(ahead[i].found.key, from[i]);
    if (ahead[i].found.original != kNoBlock)
      queue_needs_.rotated(request.arrival, begins[i], ahead[i].found.node);
  }
  const bool bounded = config_.preload == "buffer" && !begins.empty();
  request.preload_lacks = !bounded && std::ranges::any_of(probes.blocks, [this](const CoreProbe& found) {
    if (found.node == kNoBlock || transfers_.loading(found.node)) return false;
    return found.too_slow || (found.load && transfers_.load_tier(found) != Tier::kDevice);
  });
}

}  // namespace loci
