// SPDX-License-Identifier: Apache-2.0
// The slots of one tier's pool: which are free. Metadata only; the bytes are the tier's own. The same
// calls give the same slots: the slot that was freed last is taken first (its memory is warm), and fresh
// slots are taken in ascending order. A fresh slot was never taken, or was made fresh again: the system need
// not hold memory for it.
#pragma once

#include <cstdint>
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

 private:
  friend class SlotPool;
  SlotReservation(SlotPool* pool, SlotId slot) : pool_(pool), slot_(slot) {}
  void release();

  SlotPool* pool_;  // null: moved from
  SlotId slot_;
};

// Thread-compatible. Must outlive its reservations. O(1) a call.
class SlotPool {
 public:
  explicit SlotPool(std::uint32_t count);
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;

  // Absent: all slots are taken.
  std::optional<SlotReservation> take();
  // Takes this slot, while a tier's content is found again after a restart. Absent: it is taken already.
  // Calls of take() between those to it may cost O(slots), once.
  std::optional<SlotReservation> take(SlotId slot);

  std::uint32_t count() const { return static_cast<std::uint32_t>(taken_.size()); }
  std::uint32_t free_count() const { return count() - taken_count_; }
  bool taken(SlotId slot) const { return taken_[slot.value]; }
  // Slots that are not fresh.
  std::uint32_t used_count() const { return used_count_; }

  // Makes a free slot that was used fresh, so that it is taken after all others. Absent: there is no such
  // slot.
  std::optional<SlotId> rest();

 private:
  friend class SlotReservation;
  void put_back(SlotId slot);

  // The next one last; some may be taken (by name), and are passed by.
  std::vector<SlotId> free_;
  std::vector<SlotId> fresh_;
  std::vector<bool> taken_;
  std::vector<bool> used_;  // since it was fresh
  std::uint32_t taken_count_ = 0;
  std::uint32_t used_count_ = 0;
};

}  // namespace loci
