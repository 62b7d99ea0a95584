// SPDX-License-Identifier: Apache-2.0
#include "loci/engine/core/queue_needs.h"

#include <algorithm>

#include "loci/policy/lookahead.h"

namespace loci {
namespace {

constexpr std::uint32_t kWindowRequests = 32;  // however much memory there is: looking costs time
constexpr std::size_t kWindowBlocks = 16'384;

}  // namespace

QueueNeeds::QueueNeeds(const CoreConfig& config, BlockIndex& index, Transfers& transfers)
    : config_(config), index_(index), transfers_(transfers) {}

bool QueueNeeds::stale() const {
  return stale_ && (index_.has_tier(Tier::kHost) || index_.has_tier(Tier::kDisk));
}

// The block's id may be another one's by now.
bool QueueNeeds::still_there(const std::pair<BlockId, ChainKey>& wanted) const {
  const Block& block = index_.block(wanted.first);
  return block.kind == BlockKind::kFull && block.key == wanted.second;
}

void QueueNeeds::begin(std::uint64_t requests, std::uint64_t tokens) {
  stale_ = false;
  for (const auto& wanted : wanted_) {
    if (still_there(wanted)) index_.set_wanted(wanted.first, kNotWanted);
  }
  wanted_.clear();
  seen_.clear();
  place_ = 0;
  prefetch_at_ = prefetch_end_ = 0;
  std::uint64_t block = 0, host = 0, disk = 0;
  for (const CoreGroup& group : config_.groups) {
    block += group.block_bytes;
    host += group.block_bytes * group.host_blocks;
    disk += group.block_bytes * group.disk_blocks;
  }
  const std::uint64_t session = requests == 0 ? 0 : tokens / requests * block / kBlockTokens;
  prefetch_window_ = prefetch_window(host, session);
  eviction_window_ = std::min(kWindowRequests, eviction_window(host, disk, session));
}

bool QueueNeeds::wants_more() const { return place_ < eviction_window_ && wanted_.size() < kWindowBlocks; }

void QueueNeeds::add(std::span<const ChainKey> keys) {
  for (const ChainKey& key : keys) {
    const BlockId block = index_.find(key);
    if (block == kNoBlock) break;
    if (!seen_.insert(block).second) continue;  // who is before it needs it sooner
    index_.set_wanted(block, place_);
    wanted_.emplace_back(block, key);
  }
  if (++place_ <= prefetch_window_) prefetch_end_ = wanted_.size();
}

void QueueNeeds::prefetch() {
  if (!index_.has_tier(Tier::kHost) || transfers_.slowest_readable() != Tier::kDisk) return;
  for (; prefetch_at_ < prefetch_end_ && transfers_.may_begin(); ++prefetch_at_) {
    const auto& wanted = wanted_[prefetch_at_];
    if (still_there(wanted)) transfers_.prefetch(wanted.first);
  }
}

}  // namespace loci
