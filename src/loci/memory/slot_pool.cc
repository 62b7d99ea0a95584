// SPDX-License-Identifier: Apache-2.0
#include "loci/memory/slot_pool.h"

#include <utility>

#include "loci/base/check.h"

namespace loci {

SlotReservation::SlotReservation(SlotReservation&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), slot_(other.slot_) {}

SlotReservation& SlotReservation::operator=(SlotReservation&& other) noexcept {
  if (this != &other) {
    release();
    pool_ = std::exchange(other.pool_, nullptr);
    slot_ = other.slot_;
  }
  return *this;
}

SlotReservation::~SlotReservation() { release(); }

void SlotReservation::release() {
  if (SlotPool* pool = std::exchange(pool_, nullptr)) pool->put_back(slot_);
}

SlotPool::SlotPool(std::uint32_t count) : taken_(count, false), used_(count, false) {
  fresh_.reserve(count);
  for (std::uint32_t i = count; i > 0; --i) fresh_.push_back(SlotId(i - 1));
}

std::optional<SlotReservation> SlotPool::take() {
  for (std::vector<SlotId>* slots : {&free_, &fresh_}) {
    while (!slots->empty()) {
      const SlotId slot = slots->back();
      slots->pop_back();
      if (std::optional<SlotReservation> taken = take(slot)) return taken;
    }
  }
  return std::nullopt;
}

std::optional<SlotId> SlotPool::rest() {
  while (!free_.empty()) {
    const SlotId slot = free_.back();
    free_.pop_back();
    if (taken_[slot.value] || !used_[slot.value]) continue;
    used_[slot.value] = false;
    --used_count_;
    fresh_.push_back(slot);
    return slot;
  }
  return std::nullopt;
}

std::optional<SlotReservation> SlotPool::take(SlotId slot) {
  if (slot.value >= count() || taken_[slot.value]) return std::nullopt;
  taken_[slot.value] = true;
  ++taken_count_;
  if (!used_[slot.value]) {
    used_[slot.value] = true;
    ++used_count_;
  }
  return SlotReservation(this, slot);
}

void SlotPool::put_back(SlotId slot) {
  LOCI_CHECK(taken_[slot.value], "a slot was freed twice");
  taken_[slot.value] = false;
  --taken_count_;
  free_.push_back(slot);
}

}  // namespace loci
