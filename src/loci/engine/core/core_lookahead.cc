// SPDX-License-Identifier: Apache-2.0
// Looking ahead into the queue: what it needs (queue_needs.h), and the loads of who comes next.
#include <algorithm>
#include <cstddef>
#include <optional>
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
  if (config_.preload == "off" || flights_.empty() || deadlines_.drains() || queue_.empty()) return;
  std::uint32_t again = 0;
  std::optional<std::uint64_t> booked;  // the tokens that running prompts lack
  for (const FairQueue::Head& head : queue_.heads(kPreloadedAhead)) {
    CoreRequest& request = *requests_.at(head.request);
    if (request.is_public || request.preload_seen == room_.changes()) continue;
    if (request.preload_seen != 0 && (!request.preload_lacks || again++ >= kPreloadAgain)) continue;
    request.preload_seen = room_.changes();
    if (!booked) booked = former_.prompts().total;
    if (preload(request, *booked)) booked.reset();
  }
}

// `booked`: the tokens that running prompts lack. True: loads have begun, so they may lack fewer.
bool Core::State::preload(CoreRequest& request, std::uint64_t booked) {
  Restores::Rules rules{.slowest = restores_.slowest_for(request), .in_flight = !flights_.empty()};
  CoreProbes probes = restores_.choose(request, rules);
  restores_.plan(request, probes, rules, load_of_others(booked));
  const std::vector<BlockPin> there = admission_.hold_there(probes);
  const std::vector<std::uint32_t> begins = restores_.to_preload(request, probes);
  request.preload_lacks = true;
  if (device_memory_.limited()) return false;  // it would take memory before its time
  if (!admission_.has_room_ahead(probes, begins)) return false;
  const std::vector<BlockPin> opened = admission_.open_rotated(request, probes, begins);
  std::vector<Transfers::Ahead> ahead;
  for (const std::uint32_t i : begins)
    ahead.push_back({probes.blocks[i], restores_.groups_before_start(probes, i)});
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
  return !ahead.empty();
}

}  // namespace loci
