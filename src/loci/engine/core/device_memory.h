// SPDX-License-Identifier: Apache-2.0
// How much of the device's memory may hold kept state while the machine is short of memory (MemoryRoom). This
// helps only on a CPU, where the system provides memory only for slots that were used.
//
// An example: a pool of 100 slots, 70 of them used, 20 of these by running requests, and room for 40.
//
//     used  70   needed 20   free  0     50 hold what may be evicted: 30 of them are evicted, the least
//     used  40   needed 20   free  0     valuable first, and their memory goes back to the system
//     used  45   needed 45   free  0     those who run need more, and get it; nobody is admitted beside them
//     used  40   needed 10   free  0     when they have ended, what they had beyond the room goes, too
//
// So the room bounds the state that is kept, and which requests are admitted beside running ones. It never
// makes a request wait that is alone or already runs: these were promised the pool, not the room.
//
// It owns the room of each pool, and whether more is to be given back. It requires that give_back() is called
// at the end of each step, and that its caller gives the memory of all that it returns back before anybody
// writes to those slots again. It promises to evict only what nobody needs. It calls only the index.
// Invariants, which check_invariants() tests (core.h has all):
//   1. What is held has memory, within the pool; what is kept beyond the room is needed, or is still to be
//      given back.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "loci/engine/core/core.h"
#include "loci/engine/core/plan.h"
#include "loci/memory/block_index.h"

namespace loci {

// Thread-compatible; used by whoever steps the core. O(groups) where not said otherwise.
class DeviceMemory {
 public:
  // Both must outlive it.
  DeviceMemory(const CoreConfig& config, BlockIndex& index);

  // Sets the room. It is limited to the pools; a pool that `room` does not name has no limit.
  void limit(const MemoryRoom& room);
  // True: some group has less room than its pool.
  bool limited() const { return limited_; }
  std::uint32_t room(std::uint32_t group) const { return room_[group]; }
  // Slots that requests beside one another may need: of the pool, or of the room while that is less, but a
  // quarter of the pool however small the room.
  std::uint32_t for_requests(std::uint32_t group) const {
    return std::max(room_[group], index_.slot_count(group) / 4);
  }
  // Slots whose memory may be given back now, few enough for one step. O(log) for each.
  std::vector<FreedSlot> give_back();
  // True: the last call has not given back all that it could.
  bool has_more() const { return has_more_; }

  void add_stats(CoreStats& stats) const;
  // Aborts on a broken invariant.
  void check_invariants() const;

 private:
  BlockIndex& index_;
  std::uint32_t group_count_;
  std::array<std::uint32_t, kLayerGroupsMax> room_{};
  bool limited_ = false;
  bool has_more_ = false;
  std::uint64_t given_back_ = 0;
};

}  // namespace loci
