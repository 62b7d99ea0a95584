// SPDX-License-Identifier: Apache-2.0
// What the queue needs (AttentionStore §3.3): the blocks of waiting requests are evicted last, and what of
// them is on the disk alone is brought into host memory before their turn comes.
//
// An example: three requests wait, whose state is A B, A C and D; host memory has room for two of them.
//
//     wanted    A: 0   B: 0   C: 1   D: 2     whoever is before another one in the queue needs a block sooner
//     prefetch  A B C, as far as they are on the disk alone and transfers may begin
//
// It owns the list of what is wanted; the index knows the place of each block (EvictionFacts::wanted). It
// requires that queue_changed() is said whenever a request begins or ends to wait, and that requests are then
// shown anew, in order. It calls the index and the transfers.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible: the core's thread has it.
class QueueNeeds {
 public:
  // All three outlive it.
  QueueNeeds(const CoreConfig& config, BlockIndex& index, Transfers& transfers);

  void queue_changed() { stale_ = true; }
  // The queue has changed since it was shown, and there is a slower tier to look ahead for.
  bool stale() const;

  // Begins anew: so many requests wait, with so many tokens in all. O(blocks wanted before).
  void begin(std::uint64_t requests, std::uint64_t tokens);
  // The next request is of interest.
  bool wants_more() const;
  // The keys of its whole blocks. O(blocks · log).
  void add(std::span<const ChainKey> keys);

  // Brings to host memory what is wanted of the disk, as far as transfers may begin; goes on where it left
  // off.
  void prefetch();

 private:
  bool still_there(const std::pair<BlockId, ChainKey>& wanted) const;

  const CoreConfig& config_;
  BlockIndex& index_;
  Transfers& transfers_;
  bool stale_ = false;
  std::vector<std::pair<BlockId, ChainKey>> wanted_;  // in the queue's order
  std::set<BlockId> seen_;                            // in wanted_
  std::uint32_t place_ = 0;                           // requests shown
  std::size_t prefetch_at_ = 0;                       // of wanted_
  std::size_t prefetch_end_ = 0;
  std::uint32_t prefetch_window_ = 0;  // requests whose state host memory can hold
  std::uint32_t eviction_window_ = 0;  // that all slower tiers can
};

}  // namespace loci
