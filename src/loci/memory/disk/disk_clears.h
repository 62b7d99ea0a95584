// SPDX-License-Identifier: Apache-2.0
// Remembers the slots whose record must not be found again and may still be on the disk: the disk refused the
// write that was to clear or replace it, or did not answer. Such a slot *owes* a clear, which is tried again
// until the disk takes it, or takes a later record in its place.
//
// An example, in one slot. The block's record gets a new date; the disk stalls, and the write is given up
// after the answer limit. The block is forgotten, and the disk, which answers again, takes the zeros. But the
// date's write, which it began before, may reach the disk after them and bring the record back. So the slot
// owes a clear that waits until the date's write has been answered. And the disk may
// tell of zeros late: it took them, then took the date, and tells of the date first. So zeros that were given
// to it before it answered the late write do not settle the slot; they are written once more.
//
// An example, of many slots. A disk refuses the clears of 100,000 slots. An eighth of the answer limit later,
// kAtOnce of these clears are tried. The first that fails makes all of its directory pause, for an eighth of
// the answer limit; then those that have waited longest are tried, kAtOnce again. Each pause after a clear
// that failed is twice as long, up to the answer limit, until a clear succeeds. So a disk that refuses all
// is asked for a few records in each pause, and one that works again has kAtOnce clears in flight until none
// is owed.
//
// Decides only: DiskWriter writes. At most one clear for each slot is remembered. Thread-compatible. due() is
// O(slots that it returns + directories), hurry() O(slots that owe), everything else O(1), but for a
// logarithm of the slots that owe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "loci/base/clock.h"
#include "loci/memory/disk/disk_counters.h"

namespace loci {

class DiskClears {
 public:
  using Slot = std::uint64_t;  // DiskWriter's name of a slot and its group
  using DirectoryOf = std::function<std::uint32_t(Slot)>;

  // Clears of one directory that are tried at a time.
  static constexpr std::uint32_t kAtOnce = 64;

  // Counts in DiskCounters::uncleared, which must outlive it.
  DiskClears(std::uint32_t directories, DirectoryOf directory_of, Nanos answer_limit, DiskCounters& counters);

  // A record that is not wanted may be in the slot; the write that was to replace it has just failed.
  void owe(Slot slot, Nanos now);
  // Zeros or a new record are given to the disk now: writes that it has answered before cannot come after.
  void begin(Slot slot);
  // The disk has taken them.
  void settle(Slot slot);

  // A write of a record, not of zeros, which the disk has begun is not waited for any longer.
  void give_up(Slot slot) { ++unanswered_[slot].writes; }
  // What such writes may still put into the slot is not wanted.
  void replace(Slot slot);
  // The disk has answered one of them.
  void answer(Slot slot, Nanos now);

  bool owes(Slot slot) const { return owed_.contains(slot); }
  // Those to be tried now. For each, one of owe(), settle() and postpone() follows.
  std::vector<Slot> due(Nanos now);
  // One that was due is not tried: another write is about to replace the record.
  void postpone(Slot slot, Nanos now);
  // How long from `now` on due() will return nothing; kNever: until something changes.
  Nanos wait(Nanos now) const;
  // The store ends: all are due, and pauses stay short.
  void hurry();

 private:
  enum class Stage : std::uint8_t {
    kHeld,     // until writes that were given up are answered
    kWaiting,  // until it is due and its directory does not pause
    kTried,    // due() has returned it
  };
  struct Owed {
    Stage stage = Stage::kHeld;
    Nanos due = 0;           // where it waits
    bool overtaken = false;  // the disk has answered a write that was given up, and no begin() came since
  };
  struct Directory {
    std::set<std::pair<Nanos, Slot>> waiting;  // by when they are due
    std::uint32_t tried = 0;
    Nanos pause = 0;  // after the latest clear that failed; 0: one has succeeded since
    Nanos paused_until = 0;
  };
  struct Unanswered {
    std::uint32_t writes = 0;
    bool unwanted = false;
  };

  Directory& directory_of(Slot slot) { return directories_[directory_of_(slot)]; }
  void move(Slot slot, Owed& owed, Stage to, Nanos due);
  void count() { counters_.uncleared.store(owed_.size(), std::memory_order_relaxed); }

  const DirectoryOf directory_of_;
  const Nanos pause_min_, pause_max_;
  DiskCounters& counters_;
  std::vector<Directory> directories_;
  std::unordered_map<Slot, Owed> owed_;
  std::unordered_map<Slot, Unanswered> unanswered_;  // bounded by the operations in flight
  bool hurries_ = false;
};

}  // namespace loci
