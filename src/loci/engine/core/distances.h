// SPDX-License-Identifier: Apache-2.0
// How far the state of waiting requests' prompts is (policy/admission_order.h), by the blocks of the layers
// that see the most. What a cut has moved counts where it is.
//
// An example: a prompt of three blocks and a few tokens; the device has A, the disk has B and C.
//
//     of()            looks up A B C: tiers 0 2 2. The sum over tokens is kept, and who asks for which block.
//     C is loaded     the index says that C has changed: its tier is 0, and the sum of those that want it
//     falls of()            O(1)
//
// An order by distances asks for those of many requests whenever a pass is formed, while few blocks move
// between two passes. So a distance is computed once, and kept until its request waits no more. Of histories
// that were cut, and where there are more requests than are remembered, it is computed each time.
//
// It owns the sums. It requires that a request's tokens stay as long as it waits, and that forget() is said
// when it ceases to. It calls the index and the prefixes. Invariant, which check_invariants() tests:
//   1. A sum is what the index says now, but for changes that were not taken yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/request.h"
#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"

namespace loci {

// Thread-compatible: the core's thread has it.
class Distances {
 public:
  // Both outlive it.
  Distances(const CoreConfig& config, BlockIndex& index, const Prefixes& prefixes);

  // Of a request that waits. O(its blocks) the first time, then O(1) and what has changed meanwhile.
  std::uint32_t of(CoreRequest& request);
  // It waits no more. O(its blocks).
  void forget(const CoreRequest& request);
  // Takes what the index says has changed. O(changes · who wants them).
  void take_changes();

  // Aborts on a broken invariant. O(blocks that are remembered).
  void check_invariants() const;

 private:
  struct Known {
    std::vector<ChainKey> keys;
    std::vector<std::uint8_t> tiers;  // of each; kFar: nowhere
    std::uint64_t sum = 0;  // over the tokens of these blocks: how much nearer than kNowhere they are
  };
  struct Watcher {
    Known* known = nullptr;
    std::uint32_t number = 0;  // of its blocks
  };

  std::uint8_t tier_of(BlockId id) const;
  std::uint64_t nearness(CoreRequest& request) const;
  std::uint64_t remember(CoreRequest& request);

  BlockIndex& index_;
  const Prefixes& prefixes_;
  std::unordered_map<std::uint64_t, Known> known_;  // by arrival; never iterated but to check
  std::unordered_map<ChainKey, std::vector<Watcher>, ChainKeyHash> watchers_;  // never iterated
  std::size_t blocks_ = 0;                                                     // that are remembered
};

}  // namespace loci
