// SPDX-License-Identifier: Apache-2.0
// Looking ahead into the queue: what it needs (queue_needs.h), and the loads of who comes next.
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {
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
  if (in_flight_.empty() || windows_.any() || drain_deadline_ || queue_.empty()) return;
  for (const FairQueue::Head& head : queue_.heads()) {
    CoreRequest& request = *requests_.at(head.request);
    if (request.preloaded || request.is_public || request.lineage != nullptr) continue;
    request.preloaded = true;
    preload(request);
  }
}

void Core::State::preload(CoreRequest& request) {
  Tier slowest = slowest_for(request);
  CoreProbes probes = choose(request, true, slowest);
  plan_restore_of(request, probes, slowest);
  const std::vector<BlockPin> there = hold_there(probes);
  std::vector<BlockId> lacking;
  for (const CoreProbe& found : probes.blocks) {
    if (found.node != kNoBlock && found.load && !transfers_.loading(found.node))
      lacking.push_back(found.node);
  }
  if (device_memory_.limited()) return;  // it would take memory before its time
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (index_.available(group) < lacking.size() + reserve_blocks_[group]) return;
  }
  const std::vector<Tier> from = transfers_.load_ahead(lacking);
  for (std::size_t i = 0; i < lacking.size(); ++i)
    request.preloads.emplace(index_.block(lacking[i]).key, from[i]);
}

}  // namespace loci
