// SPDX-License-Identifier: Apache-2.0
// Looking ahead into the queue (AttentionStore §3.3): what waiting requests need is evicted last, and what of
// it is on the disk alone is brought into host memory before their turn comes.
#include <algorithm>
#include <set>
#include <utility>

#include "loci/base/check.h"
#include "loci/engine/core/core_state.h"
#include "loci/policy/lookahead.h"

namespace loci {
namespace {

constexpr std::uint32_t kWindowRequests = 32;  // however much memory there is: looking costs time
constexpr std::size_t kWindowBlocks = 16'384;

}  // namespace

// How many waiting requests the slower tiers can hold the state of.
void Core::State::size_windows() {
  std::uint64_t waiting = 0, tokens = 0;
  for (const auto& [id, request] : requests_) {
    if (request->runs()) continue;
    ++waiting;
    tokens += request->length();
  }
  std::uint64_t block = 0, host = 0, disk = 0;
  for (const CoreGroup& group : config_.groups) {
    block += group.block_bytes;
    host += group.block_bytes * group.host_blocks;
    disk += group.block_bytes * group.disk_blocks;
  }
  const std::uint64_t session = waiting == 0 ? 0 : tokens / waiting * block / kBlockTokens;
  prefetch_window_ = prefetch_window(host, session);
  eviction_window_ = std::min(kWindowRequests, eviction_window(host, disk, session));
}

// The blocks that the queue needs, in the order of need.
void Core::State::look_ahead() {
  if (!index_.has_tier(Tier::kHost) && !index_.has_tier(Tier::kDisk)) return;
  if (queue_changed_) {
    queue_changed_ = false;
    for (const auto& [id, key] : wanted_) {
      if (index_.block(id).kind == BlockKind::kFull && index_.block(id).key == key)
        index_.set_wanted(id, kNotWanted);
    }
    wanted_.clear();
    size_windows();
    prefetch_end_ = 0;
    std::uint32_t place = 0;
    std::set<BlockId> seen;
    for (const auto& [id, request] : requests_) {
      if (request->runs() || place >= eviction_window_ || wanted_.size() >= kWindowBlocks) continue;
      for (const ChainKey& key : prefixes_.keys_of(*request)) {
        const BlockId block = index_.find(key);
        if (block == kNoBlock) break;
        if (!seen.insert(block).second) continue;  // who is before it needs it sooner
        index_.set_wanted(block, place);
        wanted_.emplace_back(block, key);
      }
      if (++place <= prefetch_window_) prefetch_end_ = wanted_.size();
    }
    prefetch_at_ = 0;
  }
  preload();
  prefetch();
}

// While a pass runs, the loads of who comes next begin (the read buffer of AttentionStore §3.2.1: device
// memory that nobody needs now). In groups with a window the place to go on from is chosen at admission.
void Core::State::preload() {
  if (in_flight_.empty() || windows_ || drain_deadline_ || queue_.empty()) return;
  for (const FairQueue::Head& head : queue_.heads()) {
    CoreRequest& request = *requests_.at(head.request);
    if (request.preloaded || request.is_public || request.lineage != nullptr) continue;
    request.preloaded = true;
    preload(request);
  }
}

void Core::State::preload(CoreRequest& request) {
  const Tier slowest = transfers_.slowest_readable();
  CoreProbes probes = choose(request, true, slowest);
  if (transfers_.worthwhile(probes.blocks, slowest) != slowest) return;
  // What is there of the request is held meanwhile, so that nothing of it makes room.
  std::vector<BlockPin> there;
  std::vector<BlockId> lacking;
  for (const CoreProbe& found : probes.blocks) {
    if (found.node == kNoBlock) continue;
    if (found.load && !transfers_.loading(found.node)) {
      lacking.push_back(found.node);
      continue;
    }
    BlockPin& pin = there.emplace_back(index_.pin(found.node));
    for (std::uint32_t group = 0; group < group_count_; ++group) {
      if (index_.block(found.node).parts[group]) index_.hold(pin, group);
    }
  }
  for (std::uint32_t group = 0; group < group_count_; ++group) {
    if (index_.available(group) < lacking.size() + reserve_blocks_[group]) return;
  }
  const std::vector<Tier> from = transfers_.load_ahead(lacking);
  for (std::size_t i = 0; i < lacking.size(); ++i)
    request.preloads.emplace(index_.block(lacking[i]).key, from[i]);
}

void Core::State::prefetch() {
  if (!index_.has_tier(Tier::kHost) || transfers_.slowest_readable() != Tier::kDisk) return;
  for (; prefetch_at_ < prefetch_end_ && transfers_.may_begin(); ++prefetch_at_) {
    const auto& [id, key] = wanted_[prefetch_at_];
    if (index_.block(id).kind != BlockKind::kFull || index_.block(id).key != key) continue;
    transfers_.prefetch(id);
  }
}

}  // namespace loci
