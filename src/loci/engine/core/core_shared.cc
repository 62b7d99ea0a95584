// SPDX-License-Identifier: Apache-2.0
// What a store that servers share has for a request (docs/decisions/shared-store.md). Nobody here knows what
// it holds, so a request that lacks blocks asks when it arrives, and waits in no queue until it is answered
// or the time for that has passed: as long as computing what it asks for takes at most, and never long.
//
// An example: a conversation of four blocks comes to a server that has seen the first alone.
//
//     block     0   1   2   3
//     here      K   .   .   .     ask: which of 1, 2, 3?        answer: 1 and 3
//     index     K   s   h   s     s: a copy in Tier::kShared, which a load may try; h: a hole on the way
//
// From there on it is a request whose blocks are in a slower tier: the plan weighs them by what the link has
// taken so far, loads bring them, and what does not come is computed. What the index remembers of the store
// serves only requests that were answered, as it is worth nothing by itself; each answer corrects it.
#include <algorithm>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"

namespace loci {
namespace {

constexpr Nanos kAskMin = 20 * kNanosPerMilli, kAskMax = 250 * kNanosPerMilli;

}  // namespace

// True: it waits to hear what the store has of it.
bool Core::State::ask(CoreRequest& request, Plan& plan) {
  if (request.is_public || !config_.reuse || !transfers_.shared_readable()) return false;
  // Who asks can't be made to give up its place (find_place()), so others keep half of the places.
  if (before_queue_.size() >= std::max(1u, config_.max_queued / 2)) return false;
  const std::vector<ChainKey>& keys = prefixes_.keys_of(request);
  SharedAsk ask{.request = request.id, .keys = {}};
  Nanos compute = 0;
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    const BlockId node = index_.find(keys[i]);
    if (node != kNoBlock && index_.reachable(node, Tier::kDisk)) continue;
    request.asked.push_back(i);
    ask.keys.push_back(keys[i]);
    compute = std::min(kAskMax, compute + pass_times_.compute(i * kBlockTokens, kBlockTokens));
  }
  if (ask.keys.empty()) return false;
  ask.time_limit = std::clamp(compute, kAskMin, kAskMax);
  request.before_queue_until = now_ + ask.time_limit;
  before_queue_.emplace(*request.before_queue_until, request.id);
  plan.asks.push_back(std::move(ask));
  return true;
}

void Core::State::leave_before_queue(CoreRequest& request) {
  before_queue_.erase({*request.before_queue_until, request.id});
  request.before_queue_until.reset();
  request.awaits_beginning = false;
}

// Who was not answered in time goes on without.
void Core::State::end_asks() {
  while (!before_queue_.empty() && before_queue_.begin()->first <= now_) {
    CoreRequest& request = *requests_.at(before_queue_.begin()->second);
    leave_before_queue(request);
    enqueue(request);
  }
}

void Core::State::on(const SharedAnswer& event, Plan&) {
  const auto found = requests_.find(event.request);
  if (found == requests_.end() || found->second->runs()) return;
  CoreRequest& request = *found->second;
  if (request.asked.empty() || event.groups.size() != request.asked.size()) return;
  remember_shared(request, event.groups);
  request.answered = true;
  request.asked.clear();
  if (blocked_head_ == request.id) room_changed();
  if (!request.before_queue_until) return;  // it came late; whoever still waits may use it
  leave_before_queue(request);
  if (!await_beginning(request)) enqueue(request);
}

// The index has what the answer says: a node for each block that the store has, and for those on the way.
void Core::State::remember_shared(CoreRequest& request, std::span<const std::uint8_t> groups) {
  std::vector<std::uint8_t> has(request.keys.size(), 0);
  std::size_t end = 0;  // behind the last block that it has
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::uint32_t block = request.asked[i];
    has[block] = groups[i];
    forget_shared(request.keys[block], groups[i]);
    if (groups[i] != 0) end = block + 1;
  }
  const CoreProbes probes = prefixes_.probe(request, {.originals = false});
  // (What is public may have changed since, and with it what its blocks hang from.)
  for (std::size_t i = 0; i < end; ++i) {
    if (probes.blocks[i].key != request.keys[i]) return;
  }
  std::vector<BlockPin> path;
  path.push_back(prefixes_.open_parent(probes));
  for (std::size_t i = probes.public_blocks; i < end; ++i) {
    if (begins_lineage(probes.lineage, i)) {
      const BlockId above = i > probes.public_blocks ? path.back().block() : probes.blocks[i - 1].node;
      path.push_back(index_.open_gate(above, probes.lineage->gate));
    }
    const auto tokens = std::span<const TokenId>(request.tokens).subspan(i * kBlockTokens, kBlockTokens);
    const BlockId block =
        path.emplace_back(index_.open_full(path.back().block(), request.keys[i], tokens)).block();
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if ((has[i] >> group & 1) == 0 || index_.block(block).copy(Tier::kShared, group) != nullptr) continue;
      if (index_.reserve_copy(block, Tier::kShared, group))
        index_.finish_copy(block, Tier::kShared, group, true);
    }
  }
  while (!path.empty()) path.pop_back();  // the deepest first
}

// What the index has of the block in the store, and the store has not.
void Core::State::forget_shared(const ChainKey& key, std::uint8_t found) {
  const BlockId node = index_.find(key);
  if (node == kNoBlock) return;
  const BlockPin pin = index_.pin(node);
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    const LowerCopy* copy = index_.block(node).copy(Tier::kShared, group);
    if ((found >> group & 1) == 0 && copy != nullptr && copy->readers == 0)
      index_.drop_copy(node, Tier::kShared, group, MissReason::kEvicted);
  }
}

// Beyond which nothing is loaded for the request.
Tier Core::State::slowest_for(const CoreRequest& request) const {
  const Tier slowest = request.answered ? transfers_.slowest_readable() : transfers_.slowest_own();
  if (!request.without_disk || slowest < Tier::kDisk) return slowest;
  return index_.has_tier(Tier::kHost) ? Tier::kHost : Tier::kDevice;
}

// Of the tenant's requests, that have not been admitted.
std::size_t Core::State::waiting_of(const SharingGroup& tenant) const {
  std::size_t waiting = queue_.waiting(tenant);
  for (const auto& [until, id] : before_queue_) waiting += requests_.at(id)->group == tenant;
  return waiting;
}

}  // namespace loci
