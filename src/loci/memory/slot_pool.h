// SPDX-License-Identifier: Apache-2.0
// The slots of one tier's pool: which are free. Metadata only; the bytes are the tier's own. The same
// calls give the same slots: the slot that was freed last is taken first (its memory is warm), and fresh
// slots are taken in ascending order. A fresh slot was never taken, or was made fresh again: the system need
// not hold memory for it.
//
// A slot whose write failed is set aside when it is freed, or the next write would fail there too. Of these,
// one is tried each 1,024 takes; after one that proves good the next is tried after half as many, so that a
// disk that was mended has all its slots again.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "loci/base/ids.h"

namespace loci {

class SlotPool;

// One slot that is taken. Move-only; dropping it frees the slot.
class SlotReservation {
 public:
  SlotReservation(SlotReservation&& other) noexcept;
  SlotReservation& operator=(SlotReservation&& other) noexcept;
  SlotReservation(const SlotReservation&) = delete;
  SlotReservation& operator=(const SlotReservation&) = delete;
  ~SlotReservation();

  SlotId slot() const { return slot_; }
  // Its write failed.
  void doubt() { is_doubted_ = true; }
  // Its write went well.
  void prove();

 private:
  friend class SlotPool;
  SlotReservation(SlotPool* pool, SlotId slot, bool is_trial)
      : pool_(pool), slot_(slot), is_trial_(is_trial) {}
  void release();

  SlotPool* pool_;  // null: moved from
  SlotId slot_;
  bool is_trial_;  // it was set aside before
  bool is_doubted_ = false;
};

// Thread-compatible. Must outlive its reservations. O(1) a call.
class SlotPool {
 public:
  explicit SlotPool(std::uint32_t count);
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // Absent: all slots are taken. One that was set aside is taken in its turn, and where there is no other.
  std::optional<SlotReservation> take();
  // Takes this slot, while a tier's content is found again after a restart. Absent: it is taken already.
  // Calls of take() between those to it may cost O(slots), once.
  std::optional<SlotReservation> take(SlotId slot);

  std::uint32_t count() const { return static_cast<std::uint32_t>(taken_.size()); }
  std::uint32_t free_count() const { return count() - taken_count_; }
  // Of them, those that are not set aside; the one that the next take() tries counts.
  std::uint32_t ready_count() const;
  // Writes have failed one after the other: it is not the slots, and to free others helps nothing.
  bool fails() const { return doubts_ >= kDoubtsMost && !aside_.empty(); }
  // The next take() tries one that was set aside.
  bool is_trial_next() const { return !aside_.empty() && takes_ + 1 >= next_trial_; }
  bool taken(SlotId slot) const { return taken_[slot.value]; }
  // Slots that are not fresh.
  std::uint32_t used_count() const { return used_count_; }

  // Makes a free slot that was used fresh, so that it is taken after all others. Absent: there is no such
  // slot.
  std::optional<SlotId> rest();

 private:
  friend class SlotReservation;
  static constexpr std::uint64_t kTrialsApart = 1'024;
  static constexpr std::uint32_t kDoubtsMost = 8;
  void put_back(const SlotReservation& reservation);
  std::optional<SlotReservation> take_as(SlotId slot, bool is_trial);
  std::optional<SlotReservation> try_aside();

  // The next one last; some may be taken (by name) or set aside, and are passed by.
  std::vector<SlotId> free_;
  std::vector<SlotId> fresh_;
  std::deque<SlotId> aside_;  // the one that was set aside first is tried first
  std::vector<bool> is_aside_;
  std::uint32_t doubts_ = 0;  // since a write went well
  std::uint64_t takes_ = 0;
  std::uint64_t next_trial_ = 0;
  std::uint64_t trials_apart_ = kTrialsApart;
  std::vector<bool> taken_;
  std::vector<bool> used_;  // since it was fresh
  std::uint32_t taken_count_ = 0;
  std::uint32_t used_count_ = 0;
};

}  // namespace loci
