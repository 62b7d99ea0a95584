// SPDX-License-Identifier: Apache-2.0
// Remembers the slots whose record must not be found again and may still be on the disk: the disk refused the
// write that was to clear or replace it, or did not answer. Such a slot *owes* a clear, which is tried again
// until the disk takes it, or takes a later record in its place.
//
// An example, in one slot. The block's record gets a new date; the disk stalls, and the write is given up
// after the answer limit. The block is forgotten, and the disk, which answers again, takes the zeros. But the
// date's write, which it began before, may reach the disk after them and bring the record back. So the slot
// owes a clear that waits until the date's write has been answered.
//
// A clear that fails is tried again after an eighth of the answer limit, and then after pauses twice as long
// each, up to the answer limit. At most one clear for each slot is remembered.
//
// Decides only: DiskWriter writes. Thread-compatible. due(), when a pause has passed, and hurry() are
// O(slots that owe), everything else is O(1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "loci/base/clock.h"
#include "loci/memory/disk/disk_counters.h"

namespace loci {

class DiskClears {
 public:
  using Slot = std::uint64_t;  // DiskWriter's name of a slot and its group

  // Counts in DiskCounters::uncleared, which must outlive it.
  DiskClears(Nanos answer_limit, DiskCounters& counters);

  // A record that is not wanted may be in the slot; the write that was to replace it has just failed.
  void owe(Slot slot, Nanos now);
  // The disk has taken zeros or a new record.
  void settle(Slot slot);

  // A write of a record, not of zeros, which the disk has begun is not waited for any longer.
  void give_up(Slot slot) { ++unanswered_[slot].writes; }
  // What such writes may still put into the slot is not wanted.
  void replace(Slot slot);
  // The disk has answered one of them.
  void answer(Slot slot, Nanos now);

  bool owes(Slot slot) const { return owed_.contains(slot); }
  // Those to be tried now; each is due again after its pause, unless it is settled before.
  std::vector<Slot> due(Nanos now);
  // How long from `now` on due() will return nothing; kNever: until something changes.
  Nanos wait(Nanos now) const;
  // The store ends: all are due, and pauses stay short.
  void hurry();

 private:
  struct Owed {
    Nanos due = 0, pause = 0;
  };
  struct Unanswered {
    std::uint32_t writes = 0;
    bool unwanted = false;
  };

  void count() { counters_.uncleared.store(owed_.size(), std::memory_order_relaxed); }

  const Nanos pause_min_, pause_max_;
  DiskCounters& counters_;
  std::unordered_map<Slot, Owed> owed_;
  std::unordered_map<Slot, Unanswered> unanswered_;  // bounded by the operations in flight
  Nanos look_at_ = kNever;                           // nothing is due before
  bool hurries_ = false;
};

}  // namespace loci
