// SPDX-License-Identifier: Apache-2.0
// What groups with a window need: where a request may go on from what is there, the slots that it is
// promised, and letting go of what no later token of it sees (docs/decisions/layer-groups.md).
//
// An example: blocks of 32 tokens, one group that sees all and one with a window of 40. A prompt of five
// blocks comes back; K: the group has the block's part, on the device or where it comes from.
//
//     block            0   1   2   3   4
//     all              K   K   K   .   .
//     window of 40     .   .   K   .   .
//
//     A request goes on at n if every group has what token n sees. At 96, where block 3 begins, the window
//     sees [57, 96): block 1 as well as 2, which is missing. At 64 it sees [25, 64): missing too. So it goes
//     on at 0.
//
//     window of 40     .   K   K   .   .     With block 1 as well it goes on at 96, and never looks at
//                          ^---^ n           block 0. It holds 1 and 2; computing 3 and 4 it lets go of 1,
//                                            then of 2.
//
// The rules:
//   - A token at n reads [first_visible(n), n) in every group. A request goes on at the last n where all of
//     that is there, and computes everything behind it that is not complete, from the left. So what it reads
//     is always what it held at n or passed over since, and it holds that until its window has moved past.
//   - At admission a request is promised the slots that its window and a chunk of its prompt touch; a promise
//     shrinks when it decodes. Promises never exceed the pool, so windows never run out.
//
// The corner cases:
//   - A window counts as at least a block, so that a block that is begun is seen from its first token; one as
//     wide as the context counts as none. limited_windows() says so.
//   - What is loaded, or read by a pass in flight, keeps its slot, and its part of the promise, until that
//     has ended.
//   - Where a request leaves what others have computed, what is seen from there is worth keeping (the
//     *parting*).
//
// It owns the sums of what is promised and of slots that passes still read though nobody has them. It
// requires that what was promised is given back once. It calls the index, the transfers and the prefixes.
// Invariants, which check_invariants() tests:
//   1. Promises, and what is public, fit each pool.
#pragma once

#include <cstdint>

#include "loci/engine/core/core.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"

namespace loci {

// The configuration with windows as they count: at least a block, none where nothing is ever behind it.
CoreConfig limited_windows(CoreConfig config);

// The groups whose state of a request's block the token at `position`, which is behind it, sees. `config` has
// limited windows.
GroupSet groups_seen(const CoreConfig& config, std::uint32_t position, std::uint32_t block);

// Thread-compatible: the core's thread has it. Each call costs O(blocks · groups) of its request at most.
class Windows {
 public:
  // `config` has limited windows. All four outlive it.
  Windows(const CoreConfig& config, BlockIndex& index, const Transfers& transfers, const Prefixes& prefixes);

  bool any() const { return any_; }
  bool windowed(std::uint32_t group) const { return config_.groups[group].window != 0; }
  // The most tokens of a prompt and its output together, by context and pools.
  std::uint32_t sequence_tokens_max() const { return sequence_tokens_max_; }
  // The most blocks that `tokens` tokens in a row, to be computed, and what the first of them sees touch.
  std::uint32_t ring_blocks(std::uint32_t group, std::uint32_t tokens) const;
  // Of a prompt of so many blocks: slots that it needs at once.
  std::uint64_t blocks_needed(std::uint32_t group, std::uint64_t blocks) const;

  // --- admission: what a request that waits finds, and where it goes on ---

  // The last place to go on from; siblings' state is of use at that place alone.
  void choose_start(CoreProbes& probes, Tier slowest) const;
  // A public prefix holds all of its state in every group, so none of it is passed over.
  void compute_all(CoreProbes& probes) const;
  // Where the request leaves what others have computed, and they have gone on: who came this way once may
  // come again.
  void find_parting(CoreProbes& probes) const;
  void promise(const CoreRequest& request, CoreProbes& probes) const;
  // Holds what is there of what the first token to be computed sees, and has room made for what comes.
  void hold(CoreRequest& request, const CoreProbes& probes);

  // --- promises ---

  void take(const GroupCounts& promised);
  void give_back(const GroupCounts& promised);
  std::uint32_t promised(std::uint32_t group) const { return promised_[group]; }
  // Slots that are promised, public or still read: nobody else may have them for long.
  std::uint32_t taken(std::uint32_t group) const {
    return promised_[group] + prefixes_.public_blocks() + lingering_[group];
  }
  // A slot of a load that has ended, which a pass in flight still reads; and no more.
  void begin_lingering(std::uint32_t group) { lingering_[group] += windowed(group); }
  void end_lingering(std::uint32_t group) { lingering_[group] -= windowed(group); }

  // --- as a request goes on ---

  static bool has_place(const CoreRequest& request, std::uint32_t group) {
    return request.held[group] + request.lent[group] < request.promised[group];
  }
  // Holds or places what the block has in groups with a window; false: the promise is used up, and what is
  // behind must be let go first.
  bool take_parts(CoreRequest& request, std::uint32_t block_number);
  // Passes over the blocks that lack nothing, and lets go of what is behind. True: a promise became smaller.
  bool advance(CoreRequest& request);

  // `promised`, `lingering`: as requests and passes have them. Aborts on a broken invariant.
  void check_invariants(const GroupCounts& promised, const GroupCounts& lingering) const;

 private:
  bool usable(const CoreProbes& probes, std::uint32_t block, std::uint32_t tokens, const GroupCounts& runs,
              bool full_groups_whole) const;
  bool lacks_before_start(const CoreProbes& probes, std::uint32_t block) const;
  bool let_go_behind(CoreRequest& request);

  const CoreConfig& config_;
  BlockIndex& index_;
  const Transfers& transfers_;
  const Prefixes& prefixes_;
  std::uint32_t group_count_;
  bool any_ = false;
  std::uint32_t sequence_tokens_max_;
  GroupCounts chunk_tokens_{};  // of a prompt, for which slots are promised
  GroupCounts promised_{};      // to all that run
  GroupCounts lingering_{};     // begin_lingering()
};

}  // namespace loci
