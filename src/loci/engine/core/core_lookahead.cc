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
// memory that nobody needs now). In groups with a window the place to go on from is chosen at admission.
void Core::State::preload() {
  if (config_.preload == "off" || in_flight_.empty() || windows_.any() || drain_deadline_ || queue_.empty())
    return;
  std::uint32_t again = 0;
  for (const FairQueue::Head& head : queue_.heads(kPreloadedAhead)) {
    CoreRequest& request = *requests_.at(head.request);
    if (request.is_public || request.preload_seen == room_changes_) continue;
    if (request.preload_seen != 0 && (!request.preload_lacks || again++ >= kPreloadAgain)) continue;
    request.preload_seen = room_changes_;
    preload(request);
  }
}

// What of a request's state begins to move now, of each tier the first blocks.
std::vector<BlockId> Core::State::to_preload(const CoreRequest& request, const CoreProbes& probes) const {
  std::array<std::vector<BlockId>, kTiers> blocks;
  std::array<RestorableBlock, kTiers> one{};
  for (std::uint32_t i = 0; i < probes.blocks.size(); ++i) {
    const CoreProbe& found = probes.blocks[i];
    // (What a cut has moved is rotated into blocks that are made at admission.)
    if (found.node == kNoBlock || !found.load || found.original != kNoBlock || transfers_.loading(found.node))
      continue;
    const auto from = static_cast<std::size_t>(transfers_.load_tier(found));
    blocks[from].push_back(found.node);
    one[from] = transfers_.restorable(found, i);
  }
  std::vector<BlockId> out;
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

void Core::State::preload(CoreRequest& request) {
  Tier slowest = slowest_for(request);
  CoreProbes probes = choose(request, true, slowest);
  plan_restore_of(request, probes, slowest);
  const std::vector<BlockPin> there = hold_there(probes);
  const std::vector<BlockId> begins = to_preload(request, probes);
  request.preload_lacks = true;
  if (device_memory_.limited()) return;  // it would take memory before its time
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (index_.available(group) < begins.size() + reserve_blocks_[group]) return;
  }
  const std::vector<Tier> from = transfers_.load_ahead(begins);
  for (std::size_t i = 0; i < begins.size(); ++i)
    request.preloads.emplace(index_.block(begins[i]).key, from[i]);
  const bool bounded = config_.preload == "buffer" && !begins.empty();
  request.preload_lacks = !bounded && std::ranges::any_of(probes.blocks, [this](const CoreProbe& found) {
    return (found.load || found.too_slow) && found.node != kNoBlock && !transfers_.loading(found.node);
  });
}

}  // namespace loci
