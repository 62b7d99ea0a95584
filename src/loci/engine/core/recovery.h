// SPDX-License-Identifier: Apache-2.0
// What outlives a process, and what outlives its use: Recovery puts the disk's entries back into the index,
// StateAge drops state that nobody used for long (AttentionStore §4.3.5's TTL).
//
// Entries come in batches, parents before children. One is taken over if the way to it is in the index, its
// key is that of its parent and its tokens, its depth is right, and it is not too old; the disk forgets any
// other. What was taken over is pinned until the last batch is there, since a hole that leads to it must not
// end before.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"

namespace loci {

// Thread-compatible. It owns the pins of what was taken over so far; it calls nobody but the index.
class Recovery {
 public:
  // All three outlive it.
  Recovery(const CoreConfig& config, const ChainKeyHasher& hasher, BlockIndex& index);

  // Takes over what it can; returns what the disk is to forget. O(entries · groups).
  std::vector<DiskNote> take_over(const Recovered& event, Nanos now);

  void visit_pins(const std::function<void(const BlockPin&)>& visit) const;
  void add_stats(CoreStats& stats) const;

 private:
  bool take_over(const RecoveredEntry& found, Nanos used);
  std::optional<BlockPin> open_parent(const DiskEntry& entry);

  const CoreConfig& config_;
  const ChainKeyHasher& hasher_;
  BlockIndex& index_;
  std::vector<BlockPin> taken_;  // parents before children
  std::uint64_t recovered_ = 0;
  std::uint64_t orphans_ = 0;
};

// Looks at all blocks now and then, a few thousand a step, and drops the state of those that were not used
// for CoreConfig::state_ttl. Thread-compatible.
class StateAge {
 public:
  explicit StateAge(Nanos state_ttl) : state_ttl_(state_ttl) {}

  // O(blocks looked at), which are bounded.
  void sweep(BlockIndex& index, Nanos now);
  // When a step is wanted for the next sweep; kNever: state is kept for ever.
  Nanos next_sweep() const { return state_ttl_ == kNever ? kNever : next_sweep_; }

 private:
  Nanos state_ttl_;
  std::uint32_t sweep_at_ = 0;  // ids before it were looked at
  Nanos next_sweep_ = 0;
};

}  // namespace loci
