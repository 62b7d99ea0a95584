// SPDX-License-Identifier: Apache-2.0
// Whether the device has room for a request, and taking it: its blocks are placed and held.
//
// All blocks of a request's tokens are placed and held when it is admitted, in groups without window; in the
// others it is promised slots. So a prompt that has begun never lacks memory. The block of the last token is
// the request's own tail even when the index has it whole: the last token is computed again for its logits,
// and nobody writes where others read.
//
// An example, of blocks of four tokens and a pool of eight slots. Four are held by others, two hold what may
// be evicted (e), two are free; one is kept for decodes. The prompt has three blocks A B C and a token t:
//
//     A   e   on the device     1 pin: one slot fewer may be evicted
//     B   .                     1 slot
//     C   k   half of it is a sibling's tail that nobody uses: taken over, 1 pin
//     t       its own tail      1 slot         2 slots + 2 pins + 1 kept > 4: it waits
//
// (None would be kept if those that run and this one could not come to a further block: a reply has a limit.)
// With one more block let go it is taken: first A and C are held, so that making room for the rest takes none
// of them, then B and t are placed.
//
// It owns how much of each pool is kept at most for running decodes, and which of a request's blocks were
// public when it was admitted (RequestPrefix). It requires that what it is given was found by Restores in the
// same step, with nothing in between that takes room. It calls the index, the transfers, the prefixes, the
// windows, the device's memory, Restores and the batch. Invariants, which check_invariants() tests (core.h
// has all):
//   1. What is kept for decodes fits the pool, and is kept only in groups without a window.
//   5. Blocks that were public are before a request's tail, and in the front of a history that was cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "loci/engine/core/batch.h"
#include "loci/engine/core/core.h"
#include "loci/engine/core/core_pass.h"
#include "loci/engine/core/device_memory.h"
#include "loci/engine/core/prefixes.h"
#include "loci/engine/core/probes.h"
#include "loci/engine/core/request.h"
#include "loci/engine/core/restores.h"
#include "loci/engine/core/transfers.h"
#include "loci/engine/core/windows.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(blocks · groups · log) of the request, unless noted.
class Admission {
 public:
  // All eight must outlive it.
  Admission(const CoreConfig& config, BlockIndex& index, const Transfers& transfers, Prefixes& prefixes,
            Windows& windows, const DeviceMemory& device_memory, const Restores& restores,
            const Batch& batch);

  // Slots of the group that are kept for decodes if this request comes beside those that run: a share of the
  // pool (PolicySet::decode_reserve_percent, Pensieve §4.3.5), or as many as all their replies can still come
  // to. O(the batch), and less where one reply alone may take the share.
  std::uint32_t reserve(std::uint32_t group, const CoreRequest& request) const;

  // --- whether there is room ---

  // Of one attempt to admit a request.
  struct Beside {
    bool others_run = false;  // some request is in the batch
    // Whose sources are held: of the pass that is being formed, and of those in flight.
    std::size_t copies = 0;
    GroupCounts kept{};  // reserve() by group, where others run
  };
  // O(groups).
  bool admissible(const CoreProbes& probes, const Beside& beside) const;
  // Whether those that run keep to the room of memory with the request beside them. A quarter of the pool is
  // theirs however small the room is, or one long request would keep all others waiting. O(groups).
  bool keeps_to_room(const CoreProbes& probes, const Beside& beside) const;
  // Whether the sources of copies can be held for one pass.
  bool copies_fit(const CoreProbes& probes, const Beside& beside) const;
  // Originals on the device are held beside their new blocks for a while. Where there is no room for both the
  // first of them are computed instead.
  void fit_originals(CoreProbes& probes, const Beside& beside) const;

  // --- taking it ---

  // Holds the originals, so that making room for the request takes none of them before their moves hold them.
  std::vector<BlockPin> hold_originals(const CoreProbes& probes);
  // Holds and places all that the request needs, which fits; copies are added to the pass.
  void take(CoreRequest& request, const CoreProbes& probes, bool with_copies, CorePass& pass);

  // --- before it is taken: its loads begin ---

  // Pins the blocks of the request's past that the device has, so that finding slots for loads evicts none of
  // them.
  std::vector<BlockPin> hold_there(const CoreProbes& probes);
  // Whether the device has slots for these blocks, and in groups with a window for what the request is
  // promised beside them: it never waits at admission for room that its own loads have.
  bool has_room_ahead(const CoreRequest& request, const CoreProbes& probes,
                      std::span<const std::uint32_t> begins) const;
  // Whether the device has a slot for one more block, from which the request's first tokens will be copied;
  // in groups with a window beside what the request is promised.
  bool has_room_to_copy(const CoreRequest& request, const CoreProbes& probes) const;
  // The blocks that what a cut has moved is rotated into, and those between: they become known before anybody
  // is admitted who needs them. Pinned until their loads hold them.
  std::vector<BlockPin> open_rotated(const CoreRequest& request, CoreProbes& probes,
                                     std::span<const std::uint32_t> begins);

  // Of a request that runs. Aborts on a broken invariant. O(groups).
  void check_invariants(const CoreRequest& request) const;

 private:
  bool windowed(std::uint32_t group) const { return windows_.windowed(group); }
  // Blocks that the request's reply may still open, where it has so many. O(1).
  std::uint64_t growth(const CoreRequest& request, std::uint64_t blocks) const;
  // Of its tables, from the start.
  std::size_t room_for(const CoreRequest& request, std::size_t blocks) const;
  void take_blocks(CoreRequest& request, const CoreProbes& probes, BlockPin root,
                   std::vector<std::optional<BlockPin>> siblings, CorePass& pass);
  void place(BlockPin& pin, bool all_groups);
  std::uint32_t first_untouched(const CoreRequest& request) const;
  void fill_tables(CoreRequest& request) const;
  void add_copy(CoreRequest& request, BlockPin source, BlockId target, std::uint32_t tokens, bool to_tail,
                CorePass& pass);

  const CoreConfig& config_;
  BlockIndex& index_;
  const Transfers& transfers_;
  Prefixes& prefixes_;
  Windows& windows_;
  const DeviceMemory& device_memory_;
  const Restores& restores_;
  const Batch& batch_;
  std::uint32_t group_count_;
  GroupCounts reserve_most_{};  // groups without window
};

}  // namespace loci
