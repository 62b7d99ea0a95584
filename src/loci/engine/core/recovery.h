// SPDX-License-Identifier: Apache-2.0
// Recovery puts the disk's entries of an earlier process back into the index. StateAge drops state that
// nobody has used for long (AttentionStore §4.3.5's TTL).
//
// Entries come in batches, parents before children. An entry is taken over if its parents are in the index,
// its key is that of its parent and its tokens, its depth is right, and it is not too old. The disk forgets
// all others. Entries that were taken over are pinned until the last batch is there, because a hole that
// leads to others must not be removed before. Then they are let go a portion at a time, the deepest first, so
// that a hole that leads nowhere is seen to. An example, of a disk that has A B C, one below the other, and
// D, whose parent was never written:
//
//     batch 1    A B D    A and B are taken over and pinned; the disk forgets D
//     batch 2    C, last  C too
//     let_go()            of C, B and A: true, recovery is over
//
// Recovery owns the pins of the entries taken over so far, and how far it has come. It requires batches in
// the disk's order, the last of them once, and that nobody writes to the disk before. It promises that every
// entry is either taken over or returned to be forgotten. It calls only the index. Invariants, which
// check_invariants() tests (core.h has all):
//   4. What was taken over is found under its key, which is that of its parent and its tokens.
//   6. Parents were taken over before their children, so that letting go from the end leaves no node that
//      nobody needs.
//   10. Until the last batch each copy that was taken over is pinned. When recovery is over nothing is.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/memory/block_index.h"
#include "loci/memory/chain_key.h"

namespace loci {

// Thread-compatible; used by whoever steps the core.
class Recovery {
 public:
  // All three must outlive it.
  Recovery(const CoreConfig& config, const ChainKeyHasher& hasher, BlockIndex& index);

  // Takes over the entries that it can; returns those that the disk must forget. O(entries · groups).
  std::vector<RecordChange> take_over(const Recovered& event, Nanos now);
  // Lets go of at most kLetGoInAStep entries once the last batch is there. True, once: recovery is over.
  bool let_go();
  // True: let_go() has left entries to the next step, which should come soon.
  bool has_more() const { return stage_ == Stage::kLetsGo; }

  // O(entries that are pinned).
  void visit_pins(const std::function<void(const BlockPin&)>& visit) const;
  // O(1).
  void add_stats(CoreStats& stats) const;
  // Aborts on a broken invariant. O(entries that are pinned).
  void check_invariants() const;

  static constexpr std::size_t kLetGoInAStep = 256;

 private:
  enum class Stage : std::uint8_t { kTakesOver, kLetsGo, kIsOver };

  bool take_over(const RecoveredEntry& found, Nanos used);
  std::optional<BlockPin> open_parent(const BlockEntry& entry);

  const CoreConfig& config_;
  const ChainKeyHasher& hasher_;
  BlockIndex& index_;
  Stage stage_ = Stage::kTakesOver;
  std::deque<BlockPin> taken_;   // parents before children; it grows without moving them
  std::uint64_t recovered_ = 0;  // of the entries taken over, those with a copy
  std::uint64_t orphans_ = 0;
};

// Regularly looks at all blocks, some hundred in a step, and drops the state of those that were not used
// for CoreConfig::state_ttl. It owns how far it has come, and when it goes on: any number is right, so it has
// no invariant to test. It requires that sweep() is called with the same index each time, at times that do
// not go back. Thread-compatible; used by whoever steps the core.
class StateAge {
 public:
  explicit StateAge(Nanos state_ttl) : state_ttl_(state_ttl) {}

  // O(blocks looked at), whose number is bounded.
  void sweep(BlockIndex& index, Nanos now);
  // When the next sweep needs a step; kNever: state has no time to live.
  Nanos next_sweep() const { return state_ttl_ == kNever ? kNever : next_sweep_; }

 private:
  Nanos state_ttl_;
  std::uint32_t sweep_at_ = 0;  // ids below it were looked at
  Nanos next_sweep_ = 0;
};

}  // namespace loci
