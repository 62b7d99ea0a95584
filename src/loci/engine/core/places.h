// SPDX-License-Identifier: Apache-2.0
// Where a request of a model with windows may go on from kept state: its places
// (docs/decisions/layer-groups.md). All who have to know ask here. Places and positions are numbers of tokens
// before them in the sequence; blocks are numbered from its first one, 0.
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
//                          ^---^ n           block 0.
//
// The rules:
//   - A token at n reads [first_visible(n), n) in every group. A request can go on at each n where all of
//     this state is there: a place. choose_start() takes the last one, Restores::plan() may choose an
//     earlier one. The request computes everything after n that is not complete, from the left.
//   - What is "there" depends on who asks. A request that is admitted counts what it may load; the queue's
//     needs count what somebody computes, too; distances count copies in any tier, and look at some blocks
//     for all. So a PlaceWalk is told what is there, and Places says whether it stands at a place.
//
// What is loaded for a place is what its layers see there and the device lacks (PlaceLoads): in the example,
// for 96, the parts of blocks 0 to 2 in the group that sees all, and of 1 and 2 in the other.
//
// The corner cases:
//   - A window counts as at least a block, so that a block that was begun is seen from its first token; a
//     window as wide as the context counts as none. limited_windows() applies this.
//   - Behind a block that some group without window lacks there is no place.
//   - 0 is a place.
//
// It owns the rule, which never changes: it has no invariant to test. It calls the index and the transfers,
// and changes nothing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/load_link.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/transfers.h"
#include "loci/memory/block_index.h"

namespace loci {

// The configuration with windows as they count: at least a block; none if the window is as wide as the
// context.
CoreConfig limited_windows(CoreConfig config);

// A walk over a sequence's blocks from the first one on. It knows what is right before the place where it
// stands. Thread-compatible; each call is O(groups).
class PlaceWalk {
 public:
  // Walks over `count` blocks, of which the groups in `there` have the state, and the others lack some.
  void step(GroupSet there, std::uint32_t count = 1) {
    for (std::uint32_t group = 0; group < kLayerGroupsMax; ++group)
      whole_[group] = has_group(there, group) ? whole_[group] + count : 0;
    blocks_ += count;
  }
  // The blocks that it has walked over.
  std::uint32_t blocks() const { return blocks_; }
  // The group has so many blocks right before, without a hole.
  std::uint32_t whole(std::uint32_t group) const { return whole_[group]; }

 private:
  GroupCounts whole_{};
  std::uint32_t blocks_ = 0;
};

// Thread-compatible; used by whoever steps the core. O(groups) where not said otherwise.
class Places {
 public:
  // `config` has limited windows. All three must outlive it.
  Places(const CoreConfig& config, const BlockIndex& index, const Transfers& transfers);

  // --- what layers see ---

  std::uint32_t group_count() const { return group_count_; }
  bool any_windows() const { return seeing_all_ != every_group_; }
  bool windowed(std::uint32_t group) const { return config_.groups[group].window != 0; }
  // The groups without window.
  GroupSet seeing_all() const { return seeing_all_; }
  // The first block of which the token at `position` sees some in the group. (If it sees none of those before
  // its own block, that one.) O(1).
  std::uint32_t first_seen(std::uint32_t group, std::uint32_t position) const {
    return first_visible(config_.groups[group].window, position) / kBlockTokens;
  }
  // The groups in which the token at `position`, which is behind the block, sees some of it.
  GroupSet groups_seen(std::uint32_t position, std::uint32_t block) const;
  // The token at `position` sees all tokens before it in every group: a request that goes on there may
  // compute some of them instead of loading them, because no window has moved past any.
  bool sees_all(std::uint32_t position) const;

  // --- what a place is ---

  // Where the walk stands, or so many tokens further in the next block, is a place. `tokens`: less than a
  // block's.
  bool is_place(const PlaceWalk& walk, std::uint32_t tokens = 0) const;
  // There is no place where the walk goes on: a group without window has a hole.
  bool is_over(const PlaceWalk& walk) const;

  // --- places of a request that waits, in what it has found (`probes`) ---

  // The groups that have the whole block, or get what they lack of it from a tier not slower than `slowest`.
  GroupSet groups_there(BlockId block, Tier slowest) const;
  // Chooses the last place to continue from that is not behind `last_block`, and says which blocks have to be
  // loaded for it. Siblings' state is of use only at that place. `coming`: the first tokens of one of the
  // blocks are on their way; may be null. O(blocks · groups).
  void choose_start(CoreProbes& probes, Tier slowest, const CoreBeginning* coming,
                    std::uint32_t last_block) const;
  // All places to continue from, the earliest first; at least one. None is right before a whole block, which
  // the request would only pass over. (Siblings' state is
  // known only for the place that was chosen.) O(blocks · groups).
  std::vector<std::uint32_t> all(const CoreProbes& probes, Tier slowest, const CoreBeginning* coming) const;
  // Whether `tokens` tokens of the block lead to a place, once they are there. O(blocks · groups).
  bool can_start(const CoreProbes& probes, std::uint32_t block, std::uint32_t tokens, Tier slowest) const;
  // A public prefix holds all of its state in every group, so none of it is passed over. O(blocks).
  static void compute_all(CoreProbes& probes);

 private:
  bool is_there(BlockId block, std::uint32_t group, Tier slowest) const;
  std::uint32_t begun_tokens(const CoreProbe& found, std::uint32_t number, const CoreBeginning* coming) const;
  template <class Visit>
  void visit_places(const CoreProbes& probes, Tier slowest, const CoreBeginning* coming,
                    const Visit& visit) const;
  bool lacks(const CoreProbe& found) const;

  const CoreConfig& config_;
  const BlockIndex& index_;
  const Transfers& transfers_;
  std::uint32_t group_count_;
  GroupSet every_group_ = 0;  // that the model has
  GroupSet seeing_all_ = 0;
};

// How much a waiting request would load for each of its places. It is computed once, when it is made, and
// does not follow what changes later. One that is made of nothing loads nothing. Thread-compatible.
class PlaceLoads {
 public:
  // Parts of blocks that the device lacks, by the link over which they come.
  struct Parts {
    std::array<std::uint64_t, kLoadLinks> bytes{};    // to be loaded
    std::array<std::uint32_t, kLoadLinks> awaited{};  // on their way, in blocks of a group
  };

  PlaceLoads() = default;
  // `places` must outlive it. O(blocks · groups).
  PlaceLoads(const Places& places, const Transfers& transfers, const CoreProbes& probes);

  // Of all that layers see from `place`, which is not behind the blocks that were found. O(groups · links).
  Parts at(std::uint32_t place) const;

 private:
  const Places* places_ = nullptr;
  std::vector<std::vector<Parts>> sums_;  // [group][i]: of the blocks before block i
};

}  // namespace loci
