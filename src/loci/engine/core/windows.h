// SPDX-License-Identifier: Apache-2.0
// Groups with a window: where a request may continue from kept state, the slots that it is promised, and
// letting go of blocks that no later token of it sees (docs/decisions/layer-groups.md).
//
// An example: blocks of 32 tokens, one group that sees all and one with a window of 40. A prompt of five
// blocks comes back; K: the group has the block's part, on the device or in a tier from which it comes.
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
//   - A token at n reads [first_visible(n), n) in every group. A request can go on at each n where all of
//     this state is there: a place. choose_start() takes the last one, Restores::plan() may choose an
//     earlier one. It computes everything after n that is not complete, from the left. So it only reads state
//     that it held at n or has passed over since, and it holds that until its window has moved past.
//   - At admission a request is promised the slots that its window and a chunk of its prompt touch; a promise
//     shrinks when it decodes. Promises never exceed the pool, so windows never run out.
//
// The corner cases:
//   - A window counts as at least a block, so that a block that was begun is seen from its first token; a
//     window as wide as the context counts as none. limited_windows() applies this.
//   - A block that is being loaded, or read by a pass in flight, keeps its slot, and its share of the
//     promise, until that has ended.
//   - At the place where a request parts from what others have computed (the *parting*), the window is worth
//     keeping.
//
// It owns of a request what it was promised, holds and lends in groups with a window (RequestWindows), the
// sums of promised slots, and of slots that passes still read although nobody holds them. It requires that
// each promise is given back once. It calls the index, the transfers and the prefixes. Invariants, which
// check_invariants() tests (core.h has all):
//   1. Promises and public blocks together fit each pool. No request holds more than it was promised, nor
//      what it has let go.
//   10. Promises are summed, and so are slots that passes still read: of ended loads, and of each request.
#pragma once

#include <cstdint>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"

namespace loci {

// The configuration with windows as they count: at least a block; none if the window is as wide as the
// context.
CoreConfig limited_windows(CoreConfig config);

// The groups whose state of a request's block the token at `position`, which is behind it, sees. `config` has
// limited windows.
GroupSet groups_seen(const CoreConfig& config, std::uint32_t position, std::uint32_t block);

// Thread-compatible; used by whoever steps the core. Each call costs O(blocks · groups) of its request at
// most.
class Windows {
 public:
  // `config` has limited windows. All four must outlive it.
  Windows(const CoreConfig& config, BlockIndex& index, const Transfers& transfers, const Prefixes& prefixes);

  bool any() const { return any_; }
  bool windowed(std::uint32_t group) const { return config_.groups[group].window != 0; }
  // The most tokens of a prompt and its output together, by context and pools.
  std::uint32_t sequence_tokens_max() const { return sequence_tokens_max_; }
  // The most blocks that can be touched by `tokens` consecutive tokens to be computed, together with the
  // window of the first of them.
  std::uint32_t ring_blocks(std::uint32_t group, std::uint32_t tokens) const;
  // The slots that a prompt of `blocks` blocks needs at once.
  std::uint64_t blocks_needed(std::uint32_t group, std::uint64_t blocks) const;

  // --- admission: what a request that waits finds, and where it goes on ---

  // Chooses the last place to continue from that is not behind `last_block`. Siblings' state is of use only
  // at that place. `coming`: the first tokens of one of the blocks are on their way; may be null.
  void choose_start(CoreProbes& probes, Tier slowest, const CoreBeginning* coming,
                    std::uint32_t last_block) const;
  // All places to continue from, as numbers of tokens, the earliest first; at least one. (Siblings' state is
  // known only for the place that was chosen.)
  std::vector<std::uint32_t> places(const CoreProbes& probes, Tier slowest,
                                    const CoreBeginning* coming) const;
  // Every group has, or gets from a tier not slower than `slowest`, what the token after `tokens` tokens of
  // the block sees in blocks before it.
  bool can_start(const CoreProbes& probes, std::uint32_t block, std::uint32_t tokens, Tier slowest) const;
  // The token at `position` sees all tokens before it in every group: a request that goes on there may
  // compute some of them instead of loading them, because no window has moved past any.
  bool sees_all(std::uint32_t position) const;
  // A public prefix holds all of its state in every group, so none of it is passed over.
  void compute_all(CoreProbes& probes) const;
  // Finds the place where the request parts from what others have computed and continued: other requests may
  // come this way again.
  void find_parting(CoreProbes& probes) const;
  void promise(const CoreRequest& request, CoreProbes& probes) const;
  // Pins the blocks in the first computed token's window that the index already has, and places those that
  // come.
  void hold(CoreRequest& request, const CoreProbes& probes);

  // --- promises ---

  // The request, which holds what it found, is promised what `probes` say.
  void take(CoreRequest& request, const CoreProbes& probes);
  // It leaves the batch: what it was promised is free again, unless the passes in flight took that over.
  void leave(CoreRequest& request);
  // They take it over, with what they read: give_back() when they have ended.
  static GroupCounts hand_over(CoreRequest& request);
  void give_back(const GroupCounts& promised);
  std::uint32_t promised(std::uint32_t group) const { return promised_[group]; }
  // Slots that are promised, public or still being read; nobody else may hold them for long.
  std::uint32_t taken(std::uint32_t group) const {
    return promised_[group] + prefixes_.public_blocks() + lingering_[group];
  }
  // A pass in flight still reads the slot of a load that has ended; or no longer.
  void begin_lingering(std::uint32_t group) { lingering_[group] += windowed(group); }
  void end_lingering(std::uint32_t group) { lingering_[group] -= windowed(group); }

  // --- as a request goes on ---

  static bool has_place(const CoreRequest& request, std::uint32_t group) {
    return request.windows->held[group] + request.windows->lent[group] < request.windows->promised[group];
  }
  // begin_next(): the request has reserved its next block's slots; release_next(): it gives them back unused.
  void begin_next(CoreRequest& request) const;
  void release_next(CoreRequest& request) const;
  // Its slot of that group is no block's any more, but passes in flight read it; or no longer.
  void lend(CoreRequest& request, std::uint32_t group) const {
    request.windows.change().lent[group] += windowed(group);
  }
  static void end_lending(CoreRequest& request, std::uint32_t group) {
    --request.windows.change().lent[group];
  }
  // Holds or places the block's parts in groups with a window. False: the promise is used up, so parts behind
  // the window must be let go first.
  bool take_parts(CoreRequest& request, std::uint32_t block_number);
  // Passes over complete blocks, and lets go of blocks behind the window. True: a promise became smaller.
  bool advance(CoreRequest& request);

  // `promised`, `lingering`: as requests and passes have them. Aborts on a broken invariant.
  void check_invariants(const GroupCounts& promised, const GroupCounts& lingering) const;
  // Of a request that runs.
  void check_invariants(const CoreRequest& request) const;
  // `lent`: as passes have it. (What a request lent that has ended or given way is kept for nobody.)
  static void check_lent(const CoreRequest& request, const GroupCounts& lent);

 private:
  bool usable(const CoreProbes& probes, std::uint32_t block, std::uint32_t tokens, const GroupCounts& runs,
              bool full_groups_whole) const;
  bool is_there(const CoreProbe& found, std::uint32_t group, Tier slowest) const;
  bool lacks(const CoreProbe& found) const;
  template <class Visit>
  void visit_places(const CoreProbes& probes, Tier slowest, const CoreBeginning* coming,
                    const Visit& visit) const;
  bool let_go_behind_window(CoreRequest& request);

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
