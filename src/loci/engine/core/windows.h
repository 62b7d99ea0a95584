// SPDX-License-Identifier: Apache-2.0
// Groups with a window: the slots that a request is promised, and letting go of blocks that no later token of
// it sees (docs/decisions/layer-groups.md). places.h says where it may go on from kept state.
//
// An example: blocks of 32 tokens, one group that sees all and one with a window of 40. A prompt of five
// blocks comes back; K: the group has the block's part, on the device or in a tier from which it comes.
//
//     block            0   1   2   3   4
//     all              K   K   K   .   .     It goes on at n = 96, where the window sees [57, 96), and
//     window of 40     .   K   K   .   .     never looks at block 0. It holds 1 and 2; computing 3 and 4
//                          ^---^ n           it lets go of 1, then of 2.
//
// The rules:
//   - A request only reads state that it held where it began or has passed over since. It holds that until
//     its window has moved past.
//   - At admission a request is promised the slots that its window and a chunk of its prompt touch; a promise
//     shrinks when it decodes. Promises never exceed the pool, so windows never run out.
//
// The corner cases:
//   - A block that is being loaded, or read by a pass in flight, keeps its slot, and its share of the
//     promise, until that has ended.
//   - At the place where a request parts from what others have computed (the *parting*), the window is worth
//     keeping.
//
// It owns of a request what it was promised, holds and lends in groups with a window (RequestWindows), the
// sums of promised slots, and of slots that passes still read although nobody holds them. It requires that
// each promise is given back once. It calls the index, the transfers, the prefixes and the places.
// Invariants, which check_invariants() tests (core.h has all):
//   1. Promises and public blocks together fit each pool. No request holds more than it was promised, nor
//      what it has let go.
//   10. Promises are summed, and so are slots that passes still read: of ended loads, and of each request.
#pragma once

#include <cstdint>

#include "loci/engine/core/core.h"
#include "loci/engine/core/places.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. Each call costs O(blocks · groups) of its request at
// most.
class Windows {
 public:
  // `config` has limited windows. All five must outlive it.
  Windows(const CoreConfig& config, BlockIndex& index, const Transfers& transfers, const Prefixes& prefixes,
          const Places& places);

  bool any() const { return any_; }
  bool windowed(std::uint32_t group) const { return places_.windowed(group); }
  // The most tokens of a prompt and its output together, by context and pools.
  std::uint32_t sequence_tokens_max() const { return sequence_tokens_max_; }
  // The most blocks that can be touched by `tokens` consecutive tokens to be computed, together with the
  // window of the first of them.
  std::uint32_t ring_blocks(std::uint32_t group, std::uint32_t tokens) const;
  // The slots that a prompt of `blocks` blocks needs at once.
  std::uint64_t blocks_needed(std::uint32_t group, std::uint64_t blocks) const;

  // --- admission ---

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
  // Passes over complete blocks (CoreRequest::whole_blocks), and lets go of blocks behind the window. True: a
  // promise became smaller. Without windows it only passes over.
  bool advance(CoreRequest& request);

  // `promised`, `lingering`: as requests and passes have them. Aborts on a broken invariant.
  void check_invariants(const GroupCounts& promised, const GroupCounts& lingering) const;
  // Of a request that runs.
  void check_invariants(const CoreRequest& request) const;
  // `lent`: as passes have it. (What a request lent that has ended or given way is kept for nobody.)
  static void check_lent(const CoreRequest& request, const GroupCounts& lent);

 private:
  bool let_go_behind_window(CoreRequest& request);

  const CoreConfig& config_;
  BlockIndex& index_;
  const Transfers& transfers_;
  const Prefixes& prefixes_;
  const Places& places_;
  std::uint32_t group_count_;
  bool any_;
  std::uint32_t sequence_tokens_max_;
  GroupCounts chunk_tokens_{};  // of a prompt, for which slots are promised
  GroupCounts promised_{};      // to all that run
  GroupCounts lingering_{};     // begin_lingering()
};

}  // namespace loci
